"""Times of files as the outside world reads them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso_time(mtime_ns: int | None) -> str | None:
    """ISO 8601 in UTC to the second; None where the time is not known or no calendar has it."""
    if mtime_ns is None:
        return None
    try:
        return datetime.fromtimestamp(mtime_ns / 1e9, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return None
