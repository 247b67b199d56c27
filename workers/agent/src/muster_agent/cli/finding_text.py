"""Findings and progress for people: what was seen, and what to do."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import IO

from muster_agent.cli.output import human_bytes, human_rate, printable, say
from muster_agent.decide.evidence import sentence
from muster_agent.formats.base import Finding
from muster_agent.jobs.control import JobControl

_REDRAW_SECONDS = 0.1
_BAR_CHARACTERS = 30


def say_findings(findings: Sequence[Finding]) -> None:
    """Write every finding with its cure to stderr."""
    for found in findings:
        say(f"{found.severity.value}: {found.code}: {sentence(found)}")
        say(f"  what to do: {found.cure}")


class ProgressBar:
    """A bar on a terminal, nothing where stderr is a file or a pipe. Thread-safe."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream or sys.stderr
        self._enabled = self._stream.isatty()
        self._lock = threading.Lock()
        self._drawn_at = 0.0
        self._began_at = time.monotonic()

    def control(self) -> JobControl:
        """A job's control that draws this bar."""
        return JobControl(progress=self.update)

    def update(self, phase: str, done_bytes: int, total_bytes: int) -> None:
        """Draw, at most ten times a second."""
        now = time.monotonic()
        if not self._enabled or total_bytes <= 0 or now - self._drawn_at < _REDRAW_SECONDS:
            return
        with self._lock:
            self._drawn_at = now
            filled = _BAR_CHARACTERS * done_bytes // total_bytes
            bar = "#" * filled + "-" * (_BAR_CHARACTERS - filled)
            rate = done_bytes / max(now - self._began_at, 1e-9)
            text = f"{phase} [{bar}] {human_bytes(done_bytes)} of {human_bytes(total_bytes)}, {human_rate(rate)}"
            self._stream.write("\r" + printable(text) + "\x1b[K")
            self._stream.flush()

    def clear(self) -> None:
        """Remove the bar before other text is written."""
        if self._enabled and self._drawn_at:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
