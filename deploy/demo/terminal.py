"""What the demo prints: numbered steps with their duration, facts under them, and tables."""

from __future__ import annotations

import time
from collections.abc import Sequence


class Terminal:
    """Plain lines, readable in a log as well as on a screen."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._step_count = 0

    def step(self, title: str) -> None:
        self._step_count += 1
        print(f"\n[{time.monotonic() - self._began:5.1f} s] {self._step_count}. {title}", flush=True)

    def fact(self, text: str) -> None:
        print(f"          {text}", flush=True)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
        for row in [header, *rows]:
            print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began
