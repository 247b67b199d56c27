"""What a series of drills proves together: the spread, the objective, the budget of misses, a regression and its phase.
Pure. Every figure comes from the trials themselves; no percentile is averaged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import floor
from statistics import median

from apps.core.phases import PHASES
from apps.recovery import rto

BUDGET_WINDOW = timedelta(days=28)
BUDGET_SHARE = 0.95
ALERT_TRIALS, ALERT_MISSES = 5, 2
NEAR = 0.1
_NUMBER_AT_END = re.compile(r"[-_.]?[0-9]+$")


@dataclass(frozen=True, kw_only=True)
class Like:
    """What must be equal (bytes and cached share: within a tenth) for two drills to be compared."""

    plan_id: str | None = None
    node_count: int | None = None
    backend: str = ""
    tier_id: str | None = None
    total_bytes: int | None = None
    cached_ratio: float | None = None

    def is_like(self, other: Like) -> bool:
        same = (self.plan_id, self.node_count, self.backend, self.tier_id)
        return (
            same == (other.plan_id, other.node_count, other.backend, other.tier_id)
            and _near(self.total_bytes, other.total_bytes, NEAR * max(self.total_bytes or 0, other.total_bytes or 0))
            and _near(self.cached_ratio, other.cached_ratio, NEAR)
        )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One drill that ended with a result. `seconds` is None where it did not restore; `is_met` None where it restored
    and nothing judges it."""

    at: datetime
    seconds: float | None
    is_met: bool | None
    phases: Mapping[str, float]
    like: Like = Like()

    @property
    def is_miss(self) -> bool:
        return self.seconds is None or self.is_met is False


@dataclass(frozen=True)
class Budget:
    """Of the trials of the last 28 days. Two misses in the newest five, or any that did not restore, is an alarm: with
    so few trials a burn rate would misfire."""

    trial_count: int
    allowed: int
    used: int
    is_alarming: bool

    @property
    def left(self) -> int:
        return self.allowed - self.used


@dataclass(frozen=True)
class Blame:
    """The phase that grew most against its own median in the comparable trials; `before_seconds` None where none of
    them had it."""

    phase: str
    seconds: float
    before_seconds: float | None


@dataclass(frozen=True)
class Slower:
    """The newest trial is a regression, and which phase is to blame (None where phases were not measured)."""

    found: rto.Regression
    blame: Blame | None


def budget(newest_first: Sequence[Trial], now: datetime) -> Budget:
    """Misses allowed: 5 % of the trials in the window, rounded down, and at least one."""
    window = [one for one in newest_first if one.at >= now - BUDGET_WINDOW and (one.is_met is not None or one.is_miss)]
    allowed = max(1, floor((1 - BUDGET_SHARE) * len(window) + 1e-9))
    alarming = sum(one.is_miss for one in window[:ALERT_TRIALS]) >= ALERT_MISSES
    return Budget(
        trial_count=len(window),
        allowed=allowed,
        used=sum(one.is_miss for one in window),
        is_alarming=alarming or any(one.seconds is None for one in window),
    )


def slower(newest_first: Sequence[Trial]) -> Slower | None:
    """Whether the newest that restored is slower than the ten of its like before it (`rto.regression`)."""
    measured = [one for one in newest_first if one.seconds is not None]
    if not measured:
        return None
    newest = measured[0]
    alike = [one for one in measured[1:] if one.like.is_like(newest.like)][: rto.COMPARED_DRILLS]
    found = rto.regression(newest.seconds or 0.0, [one.seconds or 0.0 for one in alike])
    return Slower(found, blame(newest.phases, [one.phases for one in alike])) if found else None


def blame(newest: Mapping[str, float], earlier: Sequence[Mapping[str, float]]) -> Blame | None:
    """The phase with the most seconds more than usual; None where no phase grew, or none was measured."""
    grown = []
    for phase in PHASES:
        if phase not in newest:
            continue
        usual = [phases[phase] for phases in earlier if phase in phases]
        before = median(usual) if usual else None
        grown.append((newest[phase] - (before or 0.0), Blame(phase.value, newest[phase], before)))
    worst = max(grown, key=lambda pair: pair[0], default=None)
    return worst[1] if worst is not None and worst[0] > 0 else None


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Counts, and seconds of those that restored. p95 is None below 20 and p99 below 100 of them."""

    spread: rto.Spread | None
    met_count: int
    breached_count: int
    failed_count: int
    met_interval: tuple[float, float] | None
    more_passes_needed: int
    budget: Budget
    slower: Slower | None

    @property
    def judged_count(self) -> int:
        return self.met_count + self.breached_count + self.failed_count


def summary(newest_first: Sequence[Trial], now: datetime) -> Summary:
    """A trial that did not restore has no time, and counts as a miss; one without an objective is judged by nothing."""
    restored = [one for one in newest_first if one.seconds is not None]
    met = sum(one.is_met is True for one in restored)
    breached = sum(one.is_met is False for one in restored)
    failed = len(newest_first) - len(restored)
    return Summary(
        spread=rto.spread([one.seconds for one in restored if one.seconds is not None]),
        met_count=met,
        breached_count=breached,
        failed_count=failed,
        met_interval=rto.wilson_interval(met, met + breached + failed),
        more_passes_needed=rto.more_passes_needed(met, breached + failed),
        budget=budget(newest_first, now),
        slower=slower(newest_first),
    )


def node_group(name: str) -> str:
    """Nodes that differ only in the number at the end of their names are one group: `gpu-a-017` is of `gpu-a`."""
    host = name.split(".", 1)[0]
    return _NUMBER_AT_END.sub("", host) or host


def _near(one: float | None, other: float | None, within: float) -> bool:
    if one is None or other is None:
        return one == other
    return abs(one - other) <= within
