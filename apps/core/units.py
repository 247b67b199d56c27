"""Numbers for people, and spans of time from them: durations, bytes and rates. Exact values belong into the title
attribute beside them."""

from __future__ import annotations

import re
from datetime import datetime

NOT_MEASURED = "not measured"
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(s|m|min|h|d)?")
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(text: str) -> float | None:
    """Of a span as people write it: seconds, or a number with s, m, min, h or d; None for anything else."""
    match = _DURATION.fullmatch(text)
    return None if match is None else float(match[1]) * _UNIT_SECONDS[match[2] or "s"]


def duration(seconds: float | None) -> str:
    """`0.42 s`, `9.3 s`, `78 s`, `4 min 05 s`, `1 h 03 min`, `3 d 4 h`; "not measured" for None."""
    if seconds is None:
        return NOT_MEASURED
    if seconds < 0:
        return "-" + duration(-seconds)
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if round(seconds) < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def size(count_bytes: int | None) -> str:
    """Decimal bytes as storage people quote them: `287 MB`, `1.30 TB`; "unknown" for None."""
    if count_bytes is None:
        return "unknown"
    value, unit = _scaled(float(count_bytes))
    return f"{count_bytes} B" if unit == "" else f"{_three_digits(value)} {unit}B"


def rate(bytes_per_second: float | None) -> str:
    """Decimal GB/s, MB/s; "not measured" for None."""
    if bytes_per_second is None:
        return NOT_MEASURED
    value, unit = _scaled(bytes_per_second)
    return f"{_three_digits(value)} {unit}B/s"


def percent(ratio: float | None) -> str:
    """`97.4 %` of a ratio 0..1; "unknown" for None. Never rounds up to 100 % or down to 0 %."""
    if ratio is None:
        return "unknown"
    shown = f"{100 * ratio:.1f}"
    if shown == "100.0" and ratio < 1:
        shown = ">99.9"
    if shown == "0.0" and ratio > 0:
        shown = "<0.1"
    return f"{shown} %"


def age(at: datetime | None, now: datetime) -> str:
    """`14 min ago`, `in 3 h`; "never" for None."""
    if at is None:
        return "never"
    seconds = (now - at).total_seconds()
    if abs(seconds) < 2:
        return "just now"
    text = _coarse(abs(seconds))
    return f"{text} ago" if seconds > 0 else f"in {text}"


def _coarse(seconds: float) -> str:
    for unit_seconds, unit, limit in ((1, "s", 120), (60, "min", 120), (3600, "h", 48)):
        if seconds / unit_seconds < limit:
            return f"{seconds / unit_seconds:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def _scaled(value: float) -> tuple[float, str]:
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5:
            return value, unit
        value /= 1000
    return value, "P"


def _three_digits(value: float) -> str:
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"
