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


def duration(seconds: float) -> str:
    """Seconds as a person says them: `45 s`, `12 min`, `3 h`, `2.5 d`."""
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.1f} d"
