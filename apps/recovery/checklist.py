"""The five things that must have been rehearsed before a run is called recoverable, each judged by its last evidence.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

DEFAULT_MAX_AGE = timedelta(days=7)
LINE_RATE_RATIO = 0.8
"""A read is at line rate from this share of what was measured of the tier with as many clients."""
BALANCED_JAIN = 0.9
"""Below it some clients waited for others: the shards were not read in parallel as well as they could be."""


class Step(StrEnum):
    """In the order in which they are shown."""

    CHAOS_NODE_FAILURE = "chaos_node_failure"
    LINE_RATE_READ = "line_rate_read"
    RANK_SHARD_PARALLELISM = "rank_shard_parallelism"
    INTEGRITY_HASHING = "integrity_hashing"
    HOT_STANDBY = "hot_standby"


TITLES: Mapping[Step, str] = {
    Step.CHAOS_NODE_FAILURE: "Chaos: a failure in the running job",
    Step.LINE_RATE_READ: "Read at line rate",
    Step.RANK_SHARD_PARALLELISM: "Rank shards in parallel, and their CPU cost",
    Step.INTEGRITY_HASHING: "Every byte hashed",
    Step.HOT_STANDBY: "Hot standby",
}
WEIGHTS: Mapping[Step, int] = {
    Step.CHAOS_NODE_FAILURE: 30,
    Step.LINE_RATE_READ: 20,
    Step.RANK_SHARD_PARALLELISM: 15,
    Step.INTEGRITY_HASHING: 20,
    Step.HOT_STANDBY: 15,
}
_BY_DOING: Mapping[Step, str] = {
    Step.CHAOS_NODE_FAILURE: "Run a failover drill of this run while it trains.",
    Step.LINE_RATE_READ: "Run a reload drill that evicts first and has no cap.",
    Step.RANK_SHARD_PARALLELISM: "Run a reload drill on two nodes or more.",
    Step.INTEGRITY_HASHING: "Seal the newest checkpoint, then audit it in full.",
    Step.HOT_STANDBY: "Run a standby drill on this cluster.",
}


class StepVerdict(StrEnum):
    PASSED = "passed"
    STALE = "stale"
    FAILED = "failed"
    MISSING = "missing"


CREDIT: Mapping[StepVerdict, float] = {
    StepVerdict.PASSED: 1.0,
    StepVerdict.STALE: 0.5,
    StepVerdict.FAILED: 0.0,
    StepVerdict.MISSING: 0.0,
}


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The newest thing that says something about a step: a drill, a recovery or an audit. `cure` is the next action
    where it does not hold."""

    source_kind: str
    source_id: str
    at: datetime
    holds: bool
    detail: str
    cure: str = ""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One step. `points` of `weight` count for the score; `next_action` is empty where there is nothing to do."""

    step: Step
    verdict: StepVerdict
    evidence: Evidence | None
    age_seconds: float | None
    detail: str
    next_action: str

    @property
    def title(self) -> str:
        return TITLES[self.step]

    @property
    def weight(self) -> int:
        return WEIGHTS[self.step]

    @property
    def points(self) -> float:
        return self.weight * CREDIT[self.verdict]


def judge(step: Step, evidence: Evidence | None, now: datetime, max_age: timedelta) -> Judged:
    """What the evidence says now. Something that failed stays failed however old it is: age heals nothing."""
    if evidence is None:
        return Judged(
            step=step,
            verdict=StepVerdict.MISSING,
            evidence=None,
            age_seconds=None,
            detail="Nothing has shown this yet.",
            next_action=_BY_DOING[step],
        )
    age = max(timedelta(0), now - evidence.at)
    verdict = StepVerdict.PASSED if age <= max_age else StepVerdict.STALE
    if not evidence.holds:
        verdict = StepVerdict.FAILED
    again = "" if verdict == StepVerdict.PASSED else evidence.cure or _BY_DOING[step]
    return Judged(
        step=step,
        verdict=verdict,
        evidence=evidence,
        age_seconds=age.total_seconds(),
        detail=evidence.detail,
        next_action=again,
    )


def judge_all(
    evidence: Mapping[Step, Evidence | None], now: datetime, max_age: timedelta = DEFAULT_MAX_AGE
) -> list[Judged]:
    """All five steps in order, whether or not there is evidence of each."""
    return [judge(step, evidence.get(step), now, max_age) for step in Step]


def score(steps: list[Judged]) -> float:
    """The weighted share of what holds, 0 to 100: a stale step counts half, a failed or missing one nothing."""
    total = sum(judged.weight for judged in steps)
    share = sum(judged.points for judged in steps) / total if total else 0.0
    return min(100.0, max(0.0, 100.0 * share))
