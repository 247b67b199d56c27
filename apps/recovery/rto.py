"""What so many measured recoveries allow to say. Pure.

Nothing here averages a percentile: every figure comes from the raw measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp, lgamma, log, sqrt
from statistics import median

MIN_FOR_P95 = 20
MIN_FOR_P99 = 100
COMPARED_DRILLS = 10
REGRESSION_RATIO = 1.25
REGRESSION_MADS = 3.0
MIN_FOR_REGRESSION = 3


@dataclass(frozen=True)
class Spread:
    """Of `count` measurements, in seconds. `p95` is None below 20 and `p99` below 100: then only the largest stands
    for the tail."""

    count: int
    p50: float
    p95: float | None
    p99: float | None
    max: float


def spread(seconds: Sequence[float]) -> Spread | None:
    """None without a measurement."""
    if not seconds:
        return None
    ascending = sorted(seconds)
    count = len(ascending)
    return Spread(
        count=count,
        p50=median(ascending),
        p95=_nearest_rank(ascending, 0.95) if count >= MIN_FOR_P95 else None,
        p99=_nearest_rank(ascending, 0.99) if count >= MIN_FOR_P99 else None,
        max=ascending[-1],
    )


def _nearest_rank(ascending: Sequence[float], ratio: float) -> float:
    """The smallest measurement that at least `ratio` of all do not exceed: always one that was really measured."""
    return ascending[ceil(ratio * len(ascending)) - 1]


def wilson_interval(passes: int, count: int, z: float = 1.959964) -> tuple[float, float] | None:
    """Where the true share of passes lies, at 95 % confidence; None without a trial."""
    if count == 0:
        return None
    share = passes / count
    scale = 1 + z * z / count
    centre = (share + z * z / (2 * count)) / scale
    half = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / scale
    return max(0.0, centre - half), min(1.0, centre + half)


@lru_cache(maxsize=4096)
def trials_needed(misses: int, *, share: float = 0.95, confidence: float = 0.95) -> int:
    """Trials with at most `misses` misses that allow to claim "at least `share` pass" at `confidence`.

    59 without a miss, 93 with one, 124 with two.
    """
    too_few, enough = misses, 2 * misses + 2
    while _chance_of_at_most(misses, enough, share) > 1 - confidence:
        too_few, enough = enough, 2 * enough
    while enough - too_few > 1:  # more trials with as many misses are always less likely
        middle = (too_few + enough) // 2
        if _chance_of_at_most(misses, middle, share) > 1 - confidence:
            too_few = middle
        else:
            enough = middle
    return enough


def more_passes_needed(passes: int, misses: int) -> int:
    """Passes in a row that are still missing before "95 % within the objective" may be claimed at 95 % confidence."""
    return max(0, trials_needed(misses) - passes - misses)


def _chance_of_at_most(misses: int, count: int, share: float) -> float:
    """Of at most `misses` among `count` if only `share` of all passed. By logarithms: the binomials of thousands of
    trials are larger than any float."""
    likeliest, total = (1 - share) * count, 0.0
    for k in range(min(misses, count), -1, -1):
        ways = lgamma(count + 1) - lgamma(k + 1) - lgamma(count - k + 1)
        term = exp(ways + k * log(1 - share) + (count - k) * log(share))
        total += term
        if k < likeliest and term < 1e-15 * total:
            break  # from here on down they only get smaller
    return total


@dataclass(frozen=True)
class Regression:
    """The newest measurement against the median of the comparable ones before it."""

    newest_seconds: float
    median_seconds: float
    ratio: float


def regression(newest: float, earlier: Sequence[float]) -> Regression | None:
    """Whether the newest is slower than it should be: at least 1.25 times the median of the last ten comparable ones
    and more than three median absolute deviations above it. `earlier` is newest first; None also where fewer than three
    are there to compare with."""
    compared = list(earlier[:COMPARED_DRILLS])
    if len(compared) < MIN_FOR_REGRESSION:
        return None
    middle = median(compared)
    deviation = median([abs(value - middle) for value in compared])
    if middle <= 0 or newest < REGRESSION_RATIO * middle or newest - middle <= REGRESSION_MADS * deviation:
        return None
    return Regression(newest, middle, newest / middle)
