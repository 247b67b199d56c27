"""How far a scan is: checkpoints read of those found, names seen and how fast, and folders still to be listed."""

from __future__ import annotations

import time
from collections.abc import Callable

from muster_agent.formats.scan_reading import Counts
from muster_agent.jobs.control import JobControl

NOTE_SECONDS = 5.0
TELL_SECONDS = 0.5


class ScanProgress:
    """Tells `control` while folders are found and checkpoints read, and `note` in words, every few seconds."""

    def __init__(self, counts: Counts, control: JobControl, note: Callable[[str], None]) -> None:
        self._counts, self._control, self._note = counts, control, note
        self._done = self._total = 0
        self._began_at = self._told_at = self._noted_at = time.monotonic()

    def listed(self) -> None:
        """A folder was listed while checkpoints were being looked for."""
        self._tell()

    def more(self, checkpoints: int) -> None:
        """So many checkpoints were found, and are to be read."""
        self._total += checkpoints

    def done(self) -> None:
        """A checkpoint was read."""
        self._done += 1
        self._control.progress("inventory", self._done, self._total)
        self._tell()

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told_at < TELL_SECONDS:
            return
        self._told_at = now
        rate = self._counts.entries / (now - self._began_at)
        left = max(0, self._counts.unlisted)
        self._control.tell({"entries": self._counts.entries, "entries_per_second": round(rate), "folders_left": left})
        if now - self._noted_at >= NOTE_SECONDS:
            self._noted_at = now
            checkpoints = self._total - self._done
            said = f"{self._counts.entries} entries seen, {rate:.0f} a second; {left} folders are left to list"
            self._note(f"{said}, {checkpoints} checkpoints found are left to read")
