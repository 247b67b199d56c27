"""Reading what drills measured, for the history of one run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

from django.db.models import Count, F, QuerySet, Sum
from django.http import HttpRequest
from django.utils import timezone

from apps.checkpoints.models import Placement, TrainingRun
from apps.dashboard.charts.node_rates import Cell
from apps.dashboard.charts.rto import Point
from apps.dashboard.charts.stored import Part
from apps.dashboard.charts.trend import Dot
from apps.drills.models import Drill, DrillKind, DrillRung, RankResult
from apps.fleet.access import scoped
from apps.recovery import history, predict
from apps.recovery.history import Group, GroupBy, Groups
from apps.recovery.objectives import PREFERENCE
from apps.recovery.selectors import WITH_RESULT

MAX_POINTS = 200
MAX_DOTS = 20_000
MAX_WEEKS = 104
FORETOLD_FROM = 50
MAX_GRID_DRILLS = 40
MAX_CELLS = 50_000
DAYS = 90


def kinds_of(run: TrainingRun) -> list[str]:
    """The kinds of drill of which `run` has a measured time, the most telling first."""
    rows = measured(run).order_by().values_list("kind", flat=True).distinct()
    found = set(rows)
    return [kind.value for kind in PREFERENCE if kind in found]


def measured(run: TrainingRun, kind: str = "") -> QuerySet[Drill]:
    rows = Drill.objects.filter(run=run, outcome=Drill.Outcome.PASSED, seconds__isnull=False)
    return rows.filter(kind=kind) if kind else rows


def points(run: TrainingRun, kind: str) -> list[Point]:
    """The newest 200 drills that restored, oldest first. Failed, cancelled and skipped ones have no time to show."""
    rows = measured(run, kind).select_related("placement").order_by("-created_at", "-pk")[: MAX_POINTS + FORETOLD_FROM]
    newest_first = list(rows)
    told = foretold(newest_first)
    return [_point(row, foretold_seconds=told.get(row.pk)) for row in reversed(newest_first[:MAX_POINTS])]


def foretold(newest_first: Sequence[Drill]) -> dict[str, float]:
    """What the predictor would have said before each drill, from the 50 before it; by id, absent where it could not."""
    known = [_measured(row) for row in newest_first]
    found = {}
    for number, row in enumerate(newest_first):
        before = known[number + 1 : number + 1 + FORETOLD_FROM]
        if row.placement is None or not row.total_bytes or not before:
            continue
        guess = predict.prediction(
            run_id=row.run_id, total_bytes=row.total_bytes, tier_id=row.placement.tier_id, drills=before
        )
        if guess is not None:
            found[row.pk] = guess.seconds
    return found


def _measured(row: Drill) -> predict.Measured:
    return predict.Measured(
        run_id=row.run_id,
        tier_id=row.placement.tier_id if row.placement else None,
        total_bytes=row.total_bytes,
        seconds=row.seconds,
        phases=row.phases,
        is_restart=row.kind == DrillKind.FAILOVER,
    )


def telling(run: TrainingRun) -> tuple[str, list[Point]]:
    """The most telling kind among the newest 200 drills that restored, and its points, in one query."""
    return telling_of(list(measured(run).order_by("-created_at", "-pk")[:MAX_POINTS]))


def telling_of(drills: Sequence[Drill]) -> tuple[str, list[Point]]:
    """The same from drills at hand, newest first."""
    rows = [row for row in drills if row.outcome == Drill.Outcome.PASSED and row.seconds is not None]
    kind = next((kind.value for kind in PREFERENCE if any(row.kind == kind for row in rows)), "")
    return kind, [_point(row) for row in reversed(rows) if row.kind == kind]


def older_weeks(newest: Sequence[Point], every: Sequence[Dot]) -> list[Point]:
    """For the drills of `every` before the newest 200 (`newest`), oldest first: of each week the one whose time is the
    median, so that its phases are real and add up. At most 104 weeks, in one query; none where there are no more."""
    if len(newest) < MAX_POINTS:
        return []
    shown = {point.drill_id for point in newest}
    weeks: dict[tuple[int, int], list[tuple[float, str]]] = defaultdict(list)
    for dot in every:
        if dot.drill_id not in shown:
            weeks[dot.at.isocalendar()[:2]].append((dot.seconds, dot.drill_id))
    newest_weeks = [found for _week, found in sorted(weeks.items())[-MAX_WEEKS:]]
    counts = {sorted(found)[(len(found) - 1) // 2][1]: len(found) for found in newest_weeks}
    drills = sorted(Drill.objects.filter(pk__in=counts), key=lambda row: row.created_at)
    return [_point(row, of_week=counts[row.pk]) for row in drills]


def dots(run: TrainingRun, kind: str) -> tuple[list[Dot], int]:
    """The time of each of the newest 20,000 drills that restored, oldest first, and how many older ones there are."""
    rows = measured(run, kind).order_by("-created_at", "-pk")
    fields = ("pk", "finished_at", "created_at", "seconds", "objective_seconds", "objective_state")
    found = [
        Dot(pk, finished_at or created_at, seconds or 0.0, objective, state == Drill.ObjectiveState.BREACHED)
        for pk, finished_at, created_at, seconds, objective, state in rows.values_list(*fields)[:MAX_DOTS]
    ]
    left_out = rows.count() - len(found) if len(found) == MAX_DOTS else 0
    return found[::-1], left_out


def _point(row: Drill, of_week: int = 0, foretold_seconds: float | None = None) -> Point:
    return Point(
        drill_id=row.pk,
        at=row.finished_at or row.created_at,
        seconds=row.seconds or 0.0,
        phases=row.phases,
        objective_seconds=row.objective_seconds,
        breached=row.objective_state == Drill.ObjectiveState.BREACHED,
        of_week=of_week,
        foretold_seconds=foretold_seconds,
        efficiency_ratio=row.efficiency_ratio,
    )


def coverage(run: TrainingRun, kind: str) -> dict[str, int]:
    """How many drills ended in which way: what is left out of the times still counts here."""
    rows = Drill.objects.filter(run=run, kind=kind, state=Drill.State.FINISHED).order_by()
    return dict(rows.values_list("outcome").annotate(count=Count("pk")))


def kinds_in_sight(request: HttpRequest) -> list[str]:
    """The kinds of drill that ended with a result where this user looks, the most telling first."""
    rows = scoped(request, Drill.objects.filter(outcome__in=WITH_RESULT), "cluster")
    found = set(rows.order_by().values_list("kind", flat=True).distinct())
    return [kind.value for kind in PREFERENCE if kind in found]


def groups_in_sight(request: HttpRequest, by: GroupBy, kind: str) -> Groups:
    return history.groups(scoped(request, Drill.objects.all(), "cluster"), by, kind, DAYS)


def group_of_run(run: TrainingRun, kind: str) -> Group:
    """What the run's drills of one kind in the last 90 days prove together; it may hold no trial."""
    return history.run_group(run, kind, DAYS)


def node_rates(request: HttpRequest, kind: str) -> list[Cell]:
    """What each node's client read in the widest round of each of the newest 40 drills of one kind, at most 50,000."""
    drills = scoped(request, Drill.objects.filter(kind=kind, outcome=Drill.Outcome.PASSED), "cluster")
    newest = drills.filter(created_at__gte=timezone.now() - timedelta(days=DAYS)).order_by("-created_at", "-pk")
    chosen = dict(newest.values_list("pk", "created_at")[:MAX_GRID_DRILLS])
    rungs = DrillRung.objects.filter(drill__in=list(chosen), placement=F("drill__placement"), bytes_per_second__gt=0)
    widest = dict(rungs.order_by("client_count", "order").values_list("drill", "pk"))  # the last one of each is widest
    rows = RankResult.objects.filter(rung__in=list(widest.values()), node__isnull=False, bytes_per_second__gt=0)
    fields = rows.order_by("rung", "rank").values_list("node__name", "rung__drill", "bytes_per_second")
    return [Cell(node, drill_id, chosen[drill_id], rate) for node, drill_id, rate in fields[:MAX_CELLS] if rate]


def stored(request: HttpRequest) -> list[Part]:
    """What each run has on each tier in sight, without what is gone; tiers of one name are told apart by cluster."""
    rows = scoped(request, Placement.objects.exclude(status=Placement.Status.MISSING), "tier__cluster")
    names = ("tier__name", "tier__cluster__name", "tier__capacity_bytes", "checkpoint__run__name")
    sums = rows.order_by().values_list("tier", *names).annotate(total=Sum("total_bytes"), copies=Count("pk"))
    found = list(sums)
    clusters: dict[str, set[str]] = defaultdict(set)
    for _tier, name, cluster, *_rest in found:
        clusters[name].add(cluster)
    return [
        Part(name if len(clusters[name]) == 1 else f"{name} ({cluster})", run, total or 0, copies, room)
        for _tier, name, cluster, room, run, total, copies in found
    ]
