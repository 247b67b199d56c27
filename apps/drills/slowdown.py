"""Whether jobs that train suffer from a drill beside them: their seconds per step before it and since. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

MIN_INTERVALS = 5
"""Fewer steps, before or since, say nothing."""
MIN_SILENCE_SECONDS = 30.0
SILENT_STEPS = 10


def seconds_per_step(times: Sequence[float]) -> float | None:
    """The median between reports of one job in order (Unix seconds); None where there are too few."""
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return median(gaps) if len(gaps) >= MIN_INTERVALS else None


def harm(before: Sequence[float], since: Sequence[float], now: float, limit_ratio: float) -> str:
    """Half a sentence on how a job suffers, "" while it does not or too little is known. `before` and `since` are when
    its steps were done, in order; `now` when nothing more was heard."""
    usual = seconds_per_step(before)
    if usual is None or usual <= 0:
        return ""
    current = seconds_per_step(since)
    if current is not None and current > limit_ratio * usual:
        return f"takes {current:.2f} s per step, {current / usual:.1f} times what it took before"
    silence = now - (since[-1] if since else before[-1])
    if silence > max(MIN_SILENCE_SECONDS, SILENT_STEPS * limit_ratio * usual):
        return f"has reported no step for {silence:.0f} s, and took {usual:.2f} s for one before"
    return ""
