"""The demo's folder: one demo at a time in it, emptied at the start, and never one that holds somebody's own files."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import IO

from deploy.demo.control_plane import DemoFailure

LEAST_FREE_BYTES = 6_000_000_000
MARKER = ".muster-demo"
"""Its presence says that what lies beside it is the demo's to remove; its lock, that a demo runs here."""
ELSEWHERE = "name another folder with `make demo FOLDER=...`"


def claim(folder: Path, *, own: Path) -> IO[str]:
    """Take `folder` for this process and empty it; `own` is the checkout's, which only the demo ever fills.

    The lock holds until the given file is closed or this process ends, however it ends. Raises DemoFailure where
    another demo runs, where files lie that no demo made, and where there is no room or no permission.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if folder.resolve() != own.resolve() and not (folder / MARKER).exists() and any(folder.iterdir()):
            raise DemoFailure(f"{folder} holds files that no demo made, and the demo empties its folder; {ELSEWHERE}.")
        marker = _lock(folder)
        _empty(folder)
    except OSError as error:
        raise DemoFailure(f"{folder} cannot be used ({error.strerror}: {error.filename}); {ELSEWHERE}.") from error
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < LEAST_FREE_BYTES:
        raise DemoFailure(
            f"{folder} has {free_bytes / 1e9:.1f} GB free; the demo needs 6 GB. Free some, or {ELSEWHERE}."
        )
    return marker


def _lock(folder: Path) -> IO[str]:
    marker = (folder / MARKER).open("a")
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        marker.close()
        raise DemoFailure(f"Another demo runs in {folder}. End it with Ctrl-C, or {ELSEWHERE}.") from None
    return marker


def _empty(folder: Path) -> None:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        elif entry.name != MARKER:
            os.unlink(entry.path)
