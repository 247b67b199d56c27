"""The history of a run's drills of one kind, and what they prove together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from apps.checkpoints.models import TrainingRun
from apps.drills.models import Drill, DrillKind
from apps.recovery import rto, selectors

MAX_POINTS = 2000


def history(run: TrainingRun, kind: str, days: int, now: datetime | None = None) -> dict[str, Any]:
    """Every point, oldest first, with statistics over exactly these; nothing is sampled."""
    since = (now or timezone.now()) - timedelta(days=days)
    rows = selectors.rto_drills(run, kind, since)
    newest = list(rows.order_by("-created_at", "-pk")[:MAX_POINTS])
    total = len(newest) if len(newest) < MAX_POINTS else rows.count()
    return {
        "run": run.pk,
        "run_name": run.name,
        "kind": kind,
        "is_storage_only": kind != DrillKind.FAILOVER,
        "objective_seconds": run.rto_objective_seconds,
        "points": newest[::-1],
        "statistics": statistics(newest),
        "left_out_count": total - len(newest),
    }


def statistics(newest_first: Sequence[Drill]) -> dict[str, Any]:
    """A drill that did not restore has no time, and counts as a miss; one without an objective is judged by nothing."""
    measured = [drill for drill in newest_first if drill.outcome == Drill.Outcome.PASSED and drill.seconds is not None]
    seconds = [drill.seconds for drill in measured if drill.seconds is not None]
    spread = rto.spread(seconds)
    met = sum(drill.objective_state == Drill.ObjectiveState.MET for drill in measured)
    breached = sum(drill.objective_state == Drill.ObjectiveState.BREACHED for drill in measured)
    failed = sum(drill.outcome != Drill.Outcome.PASSED for drill in newest_first)
    interval = rto.wilson_interval(met, met + breached + failed)
    regression = _regression(measured)
    return {
        "count": len(measured),
        "p50_seconds": spread.p50 if spread else None,
        "p95_seconds": spread.p95 if spread else None,
        "p99_seconds": spread.p99 if spread else None,
        "max_seconds": spread.max if spread else None,
        "judged_count": met + breached + failed,
        "met_count": met,
        "breached_count": breached,
        "failed_count": failed,
        "met_ratio_low": interval[0] if interval else None,
        "met_ratio_high": interval[1] if interval else None,
        "more_passes_needed": rto.more_passes_needed(met, breached + failed),
        "regressed": regression is not None,
        "regression_ratio": regression.ratio if regression else None,
    }


def _regression(measured: Sequence[Drill]) -> rto.Regression | None:
    """The newest against its like: the same plan, tier, bytes and cache share (within a tenth)."""
    if not measured:
        return None
    newest, *earlier = measured
    alike = [drill.seconds for drill in earlier if drill.seconds is not None and _alike(drill, newest)]
    return rto.regression(newest.seconds, alike) if newest.seconds is not None else None


def _alike(drill: Drill, newest: Drill) -> bool:
    same = (drill.plan_id, drill.node_count, drill.backend) == (newest.plan_id, newest.node_count, newest.backend)
    return (
        same
        and _tier(drill) == _tier(newest)
        and _near(drill.total_bytes, newest.total_bytes)
        and _cached_alike(drill.cached_ratio_before, newest.cached_ratio_before)
    )


def _tier(drill: Drill) -> str | None:
    return drill.placement.tier_id if drill.placement else None


def _near(one: int | None, other: int | None) -> bool:
    if one is None or other is None:
        return one == other
    return abs(one - other) <= 0.1 * max(one, other)


def _cached_alike(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one == other
    return abs(one - other) <= 0.1
