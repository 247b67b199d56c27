"""Plans by their last due times: what became of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, Window
from django.db.models.functions import RowNumber
from django.urls import reverse

from apps.core.units import duration
from apps.dashboard.words import look
from apps.drills.models import Drill, DrillPlan, PlanOccurrence

SHOWN = 30
HEIGHTS = 10


@dataclass(frozen=True)
class Cell:
    """One due time. `height` 0 to 10 is its seconds, 10 being the objective or, without one, the plan's slowest."""

    url: str
    tone: str
    running: bool
    height: int
    planned_at: datetime
    told: str


def rows_of(plans: Sequence[DrillPlan]) -> list[tuple[DrillPlan, list[Cell | None]]]:
    """Each plan with its newest 30 due times, oldest first, in one query; None where it has had fewer."""
    newest = Window(RowNumber(), partition_by=F("plan"), order_by=F("planned_at").desc())
    found = PlanOccurrence.objects.filter(plan__in=[plan.pk for plan in plans]).annotate(place=newest)
    by_plan: dict[str, list[PlanOccurrence]] = {plan.pk: [] for plan in plans}
    for occurrence in found.filter(place__lte=SHOWN).select_related("drill").order_by("planned_at"):
        by_plan[occurrence.plan_id].append(occurrence)
    return [(plan, [*[None] * (SHOWN - len(by_plan[plan.pk])), *_cells(by_plan[plan.pk])]) for plan in plans]


def _cells(occurrences: Iterable[PlanOccurrence]) -> list[Cell]:
    listed = list(occurrences)
    slowest = max((one.drill.seconds or 0.0 for one in listed if one.drill), default=0.0)
    return [_cell(one, slowest) for one in listed]


def _cell(occurrence: PlanOccurrence, slowest: float) -> Cell:
    drill = occurrence.drill
    kind, value = _state(drill, occurrence.skipped_reason)
    shown = look(kind, value)
    seconds = drill.seconds if drill else None
    took = f" in {duration(seconds)}" if seconds is not None else ""
    why = f": {occurrence.skipped_reason or (drill.reason if drill and value != 'passed' else '')}"[:160]
    return Cell(
        url=reverse("drill", args=[drill.pk]) if drill else "",
        tone=shown.tone,
        running=shown.running,
        height=_height(seconds, (drill.objective_seconds if drill else None) or slowest),
        planned_at=occurrence.planned_at,
        told=f"{shown.word}{took}{why if len(why) > 2 else ''}",
    )


def _state(drill: Drill | None, skipped_reason: str) -> tuple[str, str]:
    """Which look: a drill that restored too late is breached, one at work shows its state."""
    if drill is None:
        return "drill_outcome", "skipped" if skipped_reason else "removed"
    if drill.state != Drill.State.FINISHED:
        return "drill_state", drill.state
    if drill.outcome == Drill.Outcome.PASSED and drill.objective_state == Drill.ObjectiveState.BREACHED:
        return "objective", "breached"
    return "drill_outcome", drill.outcome


def _height(seconds: float | None, full: float) -> int:
    if not seconds or full <= 0:
        return 0
    return max(1, min(HEIGHTS, round(HEIGHTS * seconds / full)))
