"""Reading what drills measured, for the history of one run."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Count, QuerySet
from django.http import HttpRequest

from apps.checkpoints.models import TrainingRun
from apps.dashboard.charts.rto import Point
from apps.drills.models import Drill, DrillKind
from apps.fleet.access import scoped
from apps.recovery import history
from apps.recovery.history import Group, GroupBy, Groups
from apps.recovery.selectors import WITH_RESULT

MAX_POINTS = 200
DAYS = 90
# A failover measures all of the way back; the others only its storage part.
_PREFERENCE = (DrillKind.FAILOVER, DrillKind.RELOAD, DrillKind.HERD)


def kinds_of(run: TrainingRun) -> list[str]:
    """The kinds of drill of which `run` has a measured time, the most telling first."""
    rows = measured(run).order_by().values_list("kind", flat=True).distinct()
    found = set(rows)
    return [kind.value for kind in _PREFERENCE if kind in found]


def measured(run: TrainingRun, kind: str = "") -> QuerySet[Drill]:
    rows = Drill.objects.filter(run=run, outcome=Drill.Outcome.PASSED, seconds__isnull=False)
    return rows.filter(kind=kind) if kind else rows


def points(run: TrainingRun, kind: str) -> list[Point]:
    """The newest 200 drills that restored, oldest first. Failed, cancelled and skipped ones have no time to show."""
    rows = measured(run, kind).order_by("-created_at", "-pk")[:MAX_POINTS]
    return [_point(row) for row in reversed(rows)]


def telling(run: TrainingRun) -> tuple[str, list[Point]]:
    """The most telling kind among the newest 200 drills that restored, and its points, in one query."""
    return telling_of(list(measured(run).order_by("-created_at", "-pk")[:MAX_POINTS]))


def telling_of(drills: Sequence[Drill]) -> tuple[str, list[Point]]:
    """The same from drills at hand, newest first."""
    rows = [row for row in drills if row.outcome == Drill.Outcome.PASSED and row.seconds is not None]
    kind = next((kind.value for kind in _PREFERENCE if any(row.kind == kind for row in rows)), "")
    return kind, [_point(row) for row in reversed(rows) if row.kind == kind]


def _point(row: Drill) -> Point:
    return Point(
        drill_id=row.pk,
        at=row.finished_at or row.created_at,
        seconds=row.seconds or 0.0,
        phases=row.phases,
        objective_seconds=row.objective_seconds,
        breached=row.objective_state == Drill.ObjectiveState.BREACHED,
    )


def coverage(run: TrainingRun, kind: str) -> dict[str, int]:
    """How many drills ended in which way: what is left out of the times still counts here."""
    rows = Drill.objects.filter(run=run, kind=kind, state=Drill.State.FINISHED).order_by()
    return dict(rows.values_list("outcome").annotate(count=Count("pk")))


def kinds_in_sight(request: HttpRequest) -> list[str]:
    """The kinds of drill that ended with a result where this user looks, the most telling first."""
    rows = scoped(request, Drill.objects.filter(outcome__in=WITH_RESULT), "cluster")
    found = set(rows.order_by().values_list("kind", flat=True).distinct())
    return [kind.value for kind in _PREFERENCE if kind in found]


def groups_in_sight(request: HttpRequest, by: GroupBy, kind: str) -> Groups:
    return history.groups(scoped(request, Drill.objects.all(), "cluster"), by, kind, DAYS)


def group_of_run(run: TrainingRun, kind: str) -> Group:
    """What the run's drills of one kind in the last 90 days prove together; it may hold no trial."""
    return history.run_group(run, kind, DAYS)
