"""The rungs of trust in one placement, lowest first. Each rung is separate evidence; the highest that holds shows."""

from __future__ import annotations

from enum import StrEnum


class Trust(StrEnum):
    LISTED = "listed"
    COMPLETE = "complete"
    SEALED = "sealed"
    VERIFIED = "verified"
    RELOADED = "reloaded"
    RESUMED = "resumed"

    @property
    def rung(self) -> int:
        """0 for `listed` up to 5 for `resumed`."""
        return list(Trust).index(self)
