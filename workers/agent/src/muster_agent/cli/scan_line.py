"""One line on a terminal that says how far a listing is; nothing where stderr is a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import IO

from muster_agent.jobs.control import JobControl


class ScanLine:
    """A context manager: on leaving, the line is gone."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_drawn = False
        self._read = self._found = 0

    def control(self) -> JobControl:
        """A listing's control that draws this line."""
        return JobControl(self._moved, tell=self._draw) if self._stream.isatty() else JobControl()

    def __enter__(self) -> ScanLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _moved(self, _phase: str, done: int, total: int) -> None:
        self._read, self._found = done, total

    def _draw(self, counts: Mapping[str, int]) -> None:
        self._is_drawn = True
        folders = counts["folders_left"]
        left = f"{folders:,} folder{'' if folders == 1 else 's'} left"
        seen = f"{counts['entries']:,} entries, {counts['entries_per_second']:,} a second"
        self._stream.write(f"\r{seen}; {left}; {self._read:,} of {self._found:,} checkpoints read\x1b[K")
        self._stream.flush()
