"""Clock times as agents send them, as datetimes."""

from __future__ import annotations

from datetime import UTC, datetime

LATEST_UNIX_SECONDS = 32503680000.0  # the year 3000; a clock beyond it is no clock


def utc_moment(unix_seconds: float) -> datetime | None:
    """In UTC; None for what no clock shows: before 1970, after the year 3000, or no number."""
    if not 0 <= unix_seconds <= LATEST_UNIX_SECONDS:
        return None
    return datetime.fromtimestamp(unix_seconds, UTC)
