"""The history of drills of one kind, and what they prove together: of one run, or side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from apps.checkpoints.models import TrainingRun
from apps.drills.models import Drill, DrillKind, RankResult
from apps.fleet.models import AgentTask
from apps.recovery import selectors
from apps.recovery.trials import Like, Summary, Trial, node_group, summary

MAX_POINTS = 2000
MAX_CLIENT_DRILLS = 250
"""Of which every client is read, and a drill may have a thousand."""
_GROUPED_COLUMNS = (
    "kind", "outcome", "created_at", "seconds", "objective_seconds", "objective_state", "phases", "plan_id",
    "node_count", "backend", "total_bytes", "cached_ratio_before", "run__name", "run__cluster__name",
    "placement__format", "placement__tier__name",
)  # fmt: skip
_CLIENT_COLUMNS = (
    "node__name", "rung__drill_id", "rung__client_count", "rung__order", "seconds", "outcome", "phases"
)  # fmt: skip
"""Of thousands of rows, only what groups and trials are made of."""


class GroupBy(StrEnum):
    RUN = "run"
    TIER = "tier"
    FORMAT = "format"
    NODE_GROUP = "node_group"


@dataclass(frozen=True)
class Group:
    """`key` is the id of a run or tier, or the name of a format or node group; trials are newest first."""

    key: str
    name: str
    cluster_name: str
    objective_seconds: float | None
    trials: tuple[Trial, ...]
    summary: Summary


@dataclass(frozen=True)
class Groups:
    """Slowest first; `left_out_count` older drills are beyond the newest 2,000."""

    items: list[Group]
    drill_count: int
    left_out_count: int


def history(run: TrainingRun, kind: str, days: int, now: datetime | None = None) -> dict[str, Any]:
    """Every point, oldest first, with statistics over exactly these; nothing is sampled."""
    at = now or timezone.now()
    rows = selectors.rto_drills(run, kind, at - timedelta(days=days))
    newest, left_out = _newest(rows)
    return {
        "run": run.pk,
        "run_name": run.name,
        "kind": kind,
        "is_storage_only": kind in (DrillKind.RELOAD, DrillKind.HERD),
        "objective_seconds": run.rto_objective_seconds,
        "points": newest[::-1],
        "statistics": figures(summary([trial_of(drill) for drill in newest if _says_something(drill)], at)),
        "left_out_count": left_out,
    }


def groups(drills: QuerySet[Drill], by: GroupBy, kind: str, days: int, now: datetime | None = None) -> Groups:
    """The visible `drills` of one kind that ended with a result, by run, tier, format or node group. A node group's
    time is that of its slowest client in each drill, so a failover, which has no clients, has no node groups."""
    at = now or timezone.now()
    wanted = drills.filter(kind=kind, outcome__in=selectors.WITH_RESULT, created_at__gte=at - timedelta(days=days))
    rows = wanted.select_related("run__cluster", "placement__tier").only(*_GROUPED_COLUMNS)
    newest, left_out = _newest(rows, MAX_CLIENT_DRILLS if by == GroupBy.NODE_GROUP else MAX_POINTS)
    parts = _by_node_group(newest) if by == GroupBy.NODE_GROUP else _by_row(newest, by)
    found = []
    for (cluster_name, key, name), pairs in parts.items():
        trials = tuple(trial for _drill, trial in pairs)
        objective = next((drill.objective_seconds for drill, _trial in pairs if drill.objective_seconds), None)
        found.append(Group(key, name, cluster_name, objective, trials, summary(trials, at)))
    found.sort(key=lambda group: (-(group.summary.spread.p50 if group.summary.spread else 0.0), group.name))
    return Groups(found, len(newest), left_out)


def run_group(run: TrainingRun, kind: str, days: int, now: datetime | None = None) -> Group:
    """One run as `groups` would give it; it may hold no trial."""
    at = now or timezone.now()
    newest, _left_out = _newest(selectors.rto_drills(run, kind, at - timedelta(days=days)))
    trials = tuple(trial_of(drill) for drill in newest if _says_something(drill))
    return Group(run.pk, run.name, run.cluster.name, run.rto_objective_seconds, trials, summary(trials, at))


def trial_of(drill: Drill) -> Trial:
    restored = drill.outcome == Drill.Outcome.PASSED
    judged = {Drill.ObjectiveState.MET: True, Drill.ObjectiveState.BREACHED: False}
    return Trial(
        at=drill.created_at,
        seconds=drill.seconds if restored else None,
        is_met=judged.get(Drill.ObjectiveState(drill.objective_state)) if restored else None,
        phases=drill.phases,
        like=_like(drill),
    )


def figures(found: Summary) -> dict[str, Any]:
    """As the API gives them."""
    spread, slow = found.spread, found.slower
    return {
        "count": spread.count if spread else 0,
        "p50_seconds": spread.p50 if spread else None,
        "p95_seconds": spread.p95 if spread else None,
        "p99_seconds": spread.p99 if spread else None,
        "max_seconds": spread.max if spread else None,
        "judged_count": found.judged_count,
        "met_count": found.met_count,
        "breached_count": found.breached_count,
        "failed_count": found.failed_count,
        "met_ratio_low": found.met_interval[0] if found.met_interval else None,
        "met_ratio_high": found.met_interval[1] if found.met_interval else None,
        "more_passes_needed": found.more_passes_needed,
        "budget": found.budget,
        "regressed": slow is not None,
        "regression_ratio": slow.found.ratio if slow else None,
        "regression_blame": slow.blame if slow else None,
    }


def _says_something(drill: Drill) -> bool:
    return drill.outcome != Drill.Outcome.PASSED or drill.seconds is not None


_Parts = dict[tuple[str, str, str], list[tuple[Drill, Trial]]]


def _newest(rows: QuerySet[Drill], most: int = MAX_POINTS) -> tuple[list[Drill], int]:
    newest = list(rows.order_by("-created_at", "-pk")[:most])
    total = len(newest) if len(newest) < most else rows.count()
    return newest, total - len(newest)


def _by_row(drills: Iterable[Drill], by: GroupBy) -> _Parts:
    parts: _Parts = defaultdict(list)
    for drill in drills:
        group = _group_of(drill, by)
        if group is not None and _says_something(drill):
            parts[drill.run.cluster.name, *group].append((drill, trial_of(drill)))
    return parts


def _group_of(drill: Drill, by: GroupBy) -> tuple[str, str] | None:
    """Key and name; None for a drill that belongs to no group, as one whose copy is gone."""
    if by == GroupBy.RUN:
        return drill.run_id, drill.run.name
    copy = drill.placement
    if copy is None or (by == GroupBy.FORMAT and not copy.format):
        return None
    return (copy.format, copy.format) if by == GroupBy.FORMAT else (copy.tier_id, copy.tier.name)


def _by_node_group(drills: Sequence[Drill]) -> _Parts:
    slowest: dict[str, dict[str, RankResult]] = defaultdict(dict)
    rows = RankResult.objects.filter(rung__drill__in=[drill.pk for drill in drills], node__isnull=False)
    rows = rows.select_related("node", "rung").only(*_CLIENT_COLUMNS)
    rows = rows.order_by("-rung__client_count", "-rung__order")
    for result in rows:
        if result.node is None:
            continue
        group = node_group(result.node.name)
        kept = slowest[result.rung.drill_id].get(group)
        # of a ladder, the widest rung that this group took part in
        if kept is None or (kept.rung_id == result.rung_id and _slower(result, kept)):
            slowest[result.rung.drill_id][group] = result
    parts: _Parts = defaultdict(list)
    for drill in drills:
        for group, result in slowest[drill.pk].items():
            parts[drill.run.cluster.name, group, group].append((drill, _client_trial(drill, result)))
    return parts


def _slower(one: RankResult, other: RankResult) -> bool:
    """A client that did not end is slower than any that did."""
    if one.seconds is None or other.seconds is None:
        return one.seconds is None
    return one.seconds > other.seconds


def _client_trial(drill: Drill, result: RankResult) -> Trial:
    seconds = result.seconds if result.outcome == AgentTask.Outcome.DONE else None
    objective = drill.objective_seconds
    is_met = None if seconds is None or objective is None else seconds <= objective
    return Trial(at=drill.created_at, seconds=seconds, is_met=is_met, phases=result.phases, like=_like(drill))


def _like(drill: Drill) -> Like:
    return Like(
        plan_id=drill.plan_id,
        node_count=drill.node_count,
        backend=drill.backend,
        tier_id=drill.placement.tier_id if drill.placement else None,
        total_bytes=drill.total_bytes,
        cached_ratio=drill.cached_ratio_before,
    )
