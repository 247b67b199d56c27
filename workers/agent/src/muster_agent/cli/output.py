"""What every `muster` command shares at its edge: exit codes, JSON on stdout, messages and errors on stderr."""

from __future__ import annotations

import json
import sys
from enum import IntEnum
from typing import IO, Any

import click
import msgspec


class ExitCode(IntEnum):
    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    AUTH = 4
    CONFLICT = 5
    TIMEOUT = 6
    DAMAGE = 7
    OBJECTIVE_BREACHED = 8
    SERVER_UNREACHABLE = 9


class CommandFailed(click.ClickException):
    """A failure that the user can act on: one sentence of what happened, one of what to do, and an exit code."""

    def __init__(self, message: str, *, hint: str = "", code: ExitCode = ExitCode.ERROR) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = int(code)  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: IO[Any] | None = None) -> None:
        say(f"muster: {self.message}", file)
        if self.hint:
            say(f"  what to do: {self.hint}", file)


def say(text: str, file: IO[Any] | None = None) -> None:
    """Write one message for a person, to stderr unless told otherwise."""
    click.echo(printable(text), file=file or sys.stderr)


def print_json(value: object) -> None:
    """Write one JSON document to stdout; `value` may hold msgspec structs, enums and tuples."""
    click.echo(json.dumps(msgspec.to_builtins(value), indent=2))


def printable(text: str) -> str:
    """`text` with control characters escaped, since file names come from disk and may hold terminal commands."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """As printable, with line breaks escaped too: a file's name cannot begin a line of its own."""
    return printable(text).replace("\n", "\\n")


def human_rate(bytes_per_second: float) -> str:
    """Decimal units, as storage is sold: `1.50 GB/s`, `48.0 MB/s`, `812.0 kB/s`."""
    if bytes_per_second >= 1e8:
        return f"{bytes_per_second / 1e9:.2f} GB/s"
    for unit, size in (("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_second >= size:
            return f"{bytes_per_second / size:.1f} {unit}"
    return f"{bytes_per_second:.0f} B/s"


def human_bytes(size_bytes: int) -> str:
    """Binary units with their label, such as `1.5 GiB`; below 1 KiB the exact count."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} PiB"
