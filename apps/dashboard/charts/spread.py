"""What so many measurements allow to say. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, comb
from statistics import median

MIN_FOR_P95 = 20
CLAIMED_RATIO = 0.95


@dataclass(frozen=True)
class Spread:
    """`p95` is None below 20 measurements: then the largest is shown instead."""

    p50: float
    p95: float | None
    max: float


def spread(seconds: Sequence[float]) -> Spread:
    """Raises ValueError without a measurement."""
    if not seconds:
        raise ValueError("nothing was measured")
    ascending = sorted(seconds)
    p95 = ascending[ceil(0.95 * len(ascending)) - 1] if len(ascending) >= MIN_FOR_P95 else None
    return Spread(p50=median(ascending), p95=p95, max=ascending[-1])


def passes_needed(count: int, misses: int) -> int:
    """How many more in time would allow to claim "95 % in time" at 95 % confidence, with no further miss."""
    needed = max(count, misses + 1)
    while _chance_of_at_most(misses, needed) > 1 - CLAIMED_RATIO:
        needed += 1
    return needed - count


def _chance_of_at_most(misses: int, count: int) -> float:
    """Of at most `misses` among `count` if only 95 % were in time."""
    late = 1 - CLAIMED_RATIO
    return sum(comb(count, k) * late**k * CLAIMED_RATIO ** (count - k) for k in range(misses + 1))
