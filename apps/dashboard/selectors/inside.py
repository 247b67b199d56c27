"""Reading what the clients of one drill reported on the way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from django.db.models import F, Max, Q

from apps.core.phases import Phase
from apps.dashboard.charts.throughput import Track
from apps.drills.models import RankResult
from apps.fleet.models import AgentEvent

MAX_REPORTS = 20_000


class _Report(NamedTuple):
    attempt: int
    is_begin: bool
    at: float
    done_bytes: int | None


def tracks(results: Sequence[RankResult]) -> list[Track]:
    """How each of these clients read, in two queries. Of more than 20,000 reports every k-th and each client's last are
    taken: bytes are counted from the beginning, so what lies between is not lost."""
    by_task = {result.task_id: result for result in results if result.bytes}
    told = AgentEvent.objects.filter(task__in=list(by_task), phase=Phase.READ)
    reports = told.filter(kind="progress")
    every = 1 + reports.count() // MAX_REPORTS
    last = reports.order_by().values("task").annotate(last=Max("pk")).values("last")
    wanted = told.annotate(nth=F("seq") % every).filter(
        Q(kind="phase", edge="begin") | Q(kind="progress", nth=0) | Q(pk__in=last)
    )
    found: dict[str, list[_Report]] = defaultdict(list)
    rows = wanted.order_by("task", "attempt", "seq").values_list("task", "attempt", "edge", "at", "data")
    for task_id, attempt, edge, at, data in rows:
        done = data.get("done_bytes")
        found[task_id].append(
            _Report(attempt, edge == "begin", at.timestamp(), done if isinstance(done, int) else None)
        )
    lines = [_points(reported, by_task[task_id]) for task_id, reported in found.items()]
    whole = [(points, count) for points, count in lines if len(points) > 1]
    first = min((points[0][0] for points, _count in whole), default=0.0)
    return [Track(tuple((round(at - first, 6), done) for at, done in points), count) for points, count in whole]


def _points(reported: Sequence[_Report], result: RankResult) -> tuple[list[tuple[float, int]], int]:
    """Of the last attempt: from nothing at the begin of reading, never backwards; and how many reports those are."""
    attempt = max(one.attempt for one in reported)
    of_it = [one for one in reported if one.attempt == attempt]
    told = [(one.at, one.done_bytes) for one in of_it if one.done_bytes is not None and not one.is_begin]
    begins = [one.at for one in of_it if one.is_begin]
    if result.started_at is not None:
        begins.append(result.started_at.timestamp())
    earlier = [at for at in begins if told and at < told[0][0]]
    points: list[tuple[float, int]] = [(max(earlier), 0)] if earlier else []
    for at, done in told:
        if not points or (at >= points[-1][0] and done >= points[-1][1]):
            points.append((at, done))
    return points, len(told)
