"""Whether the copies on a colder tier fall behind, so that losing the hot one would lose work. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

ALLOWED_GAPS = 2
"""A copy that is under way, and the one before it, are no lag."""


class TierSteps(NamedTuple):
    """The steps of one run that lie whole on one tier; at least the newest of them. Tier 0 is the fastest."""

    tier: str
    speed_order: int
    steps: tuple[int, ...]


class Lag(NamedTuple):
    """`ahead` has steps newer than any on `behind`; `only_count` of them are known."""

    ahead: str
    ahead_step: int
    behind: str
    behind_step: int
    only_count: int

    @property
    def sentence(self) -> str:
        steps = "a newer step lies" if self.only_count == 1 else f"{self.only_count} newer steps lie"
        return (
            f"{self.behind} is behind: its newest whole checkpoint is step {self.behind_step}, that of {self.ahead} is "
            f"step {self.ahead_step}; {steps} on {self.ahead} only"
        )


def lags(tiers: Iterable[TierSteps]) -> list[Lag]:
    """Of each tier that is not faster than the one with the newest step, whether it is further behind than its own
    rhythm explains: a tier that takes every tenth checkpoint is not late after three more. A tier with none is no
    target of copies."""
    holding = [one for one in tiers if one.steps]
    if len(holding) < 2:
        return []
    ahead = min(holding, key=lambda one: (-max(one.steps), one.speed_order, one.tier))
    slower = [one for one in holding if one.tier != ahead.tier and one.speed_order >= ahead.speed_order]
    return [lag for one in sorted(slower, key=lambda one: one.tier) if (lag := _lag(ahead, one)) is not None]


def _lag(ahead: TierSteps, behind: TierSteps) -> Lag | None:
    newest, reached = max(ahead.steps), max(behind.steps)
    rhythm = max(_gap(ahead.steps), _gap(behind.steps))
    if newest - reached <= ALLOWED_GAPS * rhythm:
        return None
    only = sum(1 for step in set(ahead.steps) if step > reached)
    return Lag(ahead.tier, newest, behind.tier, reached, only)


def _gap(steps: Sequence[int]) -> float:
    """The usual distance of one step to the next; 0 where one step tells none."""
    ordered = sorted(set(steps))
    return (
        float(median(after - before for before, after in zip(ordered, ordered[1:], strict=False))) if ordered[1:] else 0
    )
