"""Reading drills for their pages."""

from __future__ import annotations

from apps.checkpoints.models import TrainingRun
from apps.core.models import Transition
from apps.dashboard.charts import herd, ranks
from apps.drills import selectors
from apps.drills.models import Drill, DrillRung, RankResult
from apps.drills.report import widest_results
from apps.drills.rounds import typical


def recent(run: TrainingRun, limit: int) -> list[Drill]:
    return list(selectors.drills().filter(run=run).order_by("-created_at", "-pk")[:limit])


def ladder(drill: Drill) -> list[herd.Step]:
    """The measured rungs of a herd drill, in order."""
    measured = DrillRung.objects.filter(drill=drill, placement=drill.placement_id).exclude(bytes_per_second=None)
    rungs = typical(list(measured.order_by("order")))
    return [herd.Step(r.client_count, r.bytes_per_second or 0.0, r.seconds, r.jain_index) for r in rungs]


def results(drill: Drill) -> list[RankResult]:
    """What each client of the widest rung that has results measured, by rank."""
    return widest_results(drill)


def clients(rows: list[RankResult]) -> list[ranks.Client]:
    """The chart's clients: those that measured a time."""
    starts = [row.started_at for row in rows if row.started_at is not None]
    first = min(starts, default=None)
    return [
        ranks.Client(
            name=name_of(row),
            node=row.node.name if row.node else "",
            start_seconds=(row.started_at - first).total_seconds() if row.started_at and first else None,
            seconds=row.seconds,
            phases=row.phases,
            bytes_per_second=row.bytes_per_second,
        )
        for row in rows
        if row.seconds is not None
    ]


def name_of(row: RankResult) -> str:
    """`rank 3`, `ranks 0 to 7`; `client 2` where the format knows no ranks."""
    if not row.ranks:
        return f"client {row.rank}"
    return f"rank {row.ranks[0]}" if len(row.ranks) == 1 else f"ranks {row.ranks[0]} to {row.ranks[-1]}"


def events(drill: Drill) -> list[Transition]:
    """The drill's own changes of state, oldest first."""
    rows = Transition.objects.filter(owner_kind="drill", owner_id=drill.pk)
    return list(rows.order_by("at", "pk")[:200])
