"""Where hook files lie, and what their names say."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

DIRECTORY_VARIABLE = "MUSTER_HOOK_DIR"
_SPOOL_NAME = re.compile(r"(?P<pid>\d+)-(?P<start_ticks>\d+)-(?P<source>[0-9a-f]{16})-(?P<part>\d{6})\.jsonl")
_REGISTRATION_NAME = re.compile(r"(?P<pid>\d+)-(?P<start_ticks>\d+)-(?P<source>[0-9a-f]{16})\.process\.json")


class WriterName(NamedTuple):
    """Which process wrote a file. `start_ticks` tells it from a later process with the same pid."""

    pid: int
    start_ticks: int
    source: str


def hook_directory(given: str | os.PathLike[str] | None = None) -> Path:
    """`given`, else MUSTER_HOOK_DIR, else `muster-hooks-<uid>` in the folder for temporary files."""
    chosen = given or os.environ.get(DIRECTORY_VARIABLE)
    return Path(chosen) if chosen else default_directory()


def default_directory() -> Path:
    return Path(tempfile.gettempdir()) / f"muster-hooks-{os.getuid()}"


def spool_name(writer: WriterName, part: int) -> str:
    """Name of the `part`-th file of one writer; names sort in the order in which they were written."""
    return f"{writer.pid}-{writer.start_ticks}-{writer.source}-{part:06d}.jsonl"


def registration_name(writer: WriterName) -> str:
    return f"{writer.pid}-{writer.start_ticks}-{writer.source}.process.json"


def injection_name(writer: WriterName) -> str:
    """The file by whose presence a drill asks that process to raise."""
    return f"{writer.pid}-{writer.start_ticks}-{writer.source}.inject"


def parse_spool_name(name: str) -> WriterName | None:
    """The writer of a spool file, None for any other file."""
    return _writer(_SPOOL_NAME.fullmatch(name))


def parse_registration_name(name: str) -> WriterName | None:
    """The process of a registration file, None for any other file."""
    return _writer(_REGISTRATION_NAME.fullmatch(name))


def _writer(match: re.Match[str] | None) -> WriterName | None:
    return WriterName(int(match["pid"]), int(match["start_ticks"]), match["source"]) if match else None
