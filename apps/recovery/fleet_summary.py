"""All judged runs in one sentence: how many are ready, what the worst is, and what one bad hour would cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from apps.core import units
from apps.recovery.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class RunFigures:
    """What the summary needs of one run; None is not measured. `skipped_newest`: its newest checkpoint is passed over.
    `back_seconds`: until it would train again. `lost_gpu_hours` is the work of all its GPUs that would be lost."""

    run_id: str
    name: str
    verdict: Verdict
    skipped_newest: bool
    back_seconds: float | None
    lost_gpu_hours: float | None
    lost_cost: float | None
    drilled_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Counts of runs. `slowest` names the run that would be back last, of those whose whole restart is predicted or
    measured. Lost work and cost are of the `lost_known_count` and `cost_known_count` runs where they are known."""

    run_count: int
    ready_count: int
    start_over_count: int
    unproven_count: int
    skipped_count: int
    never_drilled_count: int
    slowest: str
    slowest_seconds: float | None
    lost_known_count: int
    lost_gpu_hours: float | None
    cost_known_count: int
    lost_cost: float | None
    sentence: str


def fleet(runs: Sequence[RunFigures]) -> Fleet:
    timed = [(run.back_seconds, run.name) for run in runs if run.back_seconds is not None]
    slowest_seconds, slowest = max(timed, default=(None, ""))
    lost = [run.lost_gpu_hours for run in runs if run.lost_gpu_hours is not None]
    costs = [run.lost_cost for run in runs if run.lost_cost is not None]
    verdicts = [run.verdict for run in runs]
    counts = {
        "run_count": len(runs),
        "ready_count": verdicts.count(Verdict.READY),
        "start_over_count": verdicts.count(Verdict.NOTHING_RESUMABLE),
        "unproven_count": verdicts.count(Verdict.NOT_PROVEN),
        "skipped_count": sum(run.skipped_newest for run in runs),
        "never_drilled_count": sum(run.drilled_at is None for run in runs),
        "lost_known_count": len(lost),
        "cost_known_count": len(costs),
    }
    lost_gpu_hours, lost_cost = sum(lost) if lost else None, sum(costs) if costs else None
    told = [
        _ready_words(counts),
        _fault_words(counts),
        _slowest_words(slowest, slowest_seconds),
        _loss_words(counts, lost_gpu_hours, lost_cost),
    ]
    return Fleet(
        **counts,
        slowest=slowest,
        slowest_seconds=slowest_seconds,
        lost_gpu_hours=lost_gpu_hours,
        lost_cost=lost_cost,
        sentence=" ".join(part for part in told if part),
    )


def undrilled(runs: Sequence[RunFigures], now: datetime, max_age: timedelta) -> list[RunFigures]:
    """Runs whose last drill with a result is older, never drilled ones first, then the longest ago."""
    late = [run for run in runs if run.drilled_at is None or now - run.drilled_at > max_age]
    return sorted(late, key=lambda run: (run.drilled_at is not None, run.drilled_at or now, run.name))


def _ready_words(counts: dict[str, int]) -> str:
    total, ready = counts["run_count"], counts["ready_count"]
    if total == 0:
        return ""
    what = "proven, timed and within the objectives"
    if ready == total:
        return f"The only run is ready: {what}." if total == 1 else f"All {total:,} runs are ready: {what}."
    if ready == 0:
        return f"None of {total:,} runs is ready ({what})." if total > 1 else f"The only run is not ready ({what})."
    return f"{ready:,} of {total:,} runs {'is' if ready == 1 else 'are'} ready: {what}."


def _fault_words(counts: dict[str, int]) -> str:
    told = [
        (counts["start_over_count"], "would start over"),
        (counts["unproven_count"], "would resume from bytes that nobody has proven"),
        (counts["skipped_count"], "would pass over the newest checkpoint"),
    ]
    found = [f"{count:,} {words}" for count, words in told if count]
    return f"{', '.join(found)}." if found else ""


def _slowest_words(name: str, seconds: float | None) -> str:
    if seconds is None:
        return "No whole restart was ever timed."
    return f"If all died now, the last to be back would be {name}, after {units.duration(seconds)}."


def _loss_words(counts: dict[str, int], gpu_hours: float | None, cost: float | None) -> str:
    if gpu_hours is None:
        return "Lost work is not measured."
    known, total = counts["lost_known_count"], counts["run_count"]
    where = "" if known == total else f" in the {known:,} of {total:,} where that is measured"
    money = ""
    if cost is not None:
        only = "" if counts["cost_known_count"] == known else f" for {counts['cost_known_count']:,} of them"
        money = f", which cost about {cost:,.0f}{only}"
    return f"Lost work: {gpu_hours:,.1f} GPU-hours{money}{where}."
