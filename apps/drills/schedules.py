"""Drill plans that are due."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet
from django.utils import timezone

from apps.core.schedules import Schedule
from apps.drills import engine, services
from apps.drills.finish import UNFINISHED
from apps.drills.models import Drill, DrillPlan, PlanOccurrence


def fire_due(now: datetime | None = None) -> int:
    """Start what is due, and wake drills whose next look has come. Gives how many drills were started."""
    now = now or timezone.now()
    started = PLANS.fire_due(now)
    engine.wake_due(now)
    return started


def _plans() -> QuerySet[DrillPlan]:
    return DrillPlan.objects.select_related("run__cluster")


def _in_the_way(plan: DrillPlan) -> str:
    running = Drill.objects.filter(plan=plan, state__in=UNFINISHED).first()
    return f"The drill before it, {running.pk}, had not finished." if running is not None else ""


def _start(plan: DrillPlan, occurrence: PlanOccurrence) -> None:
    drill = services.create_drill(run=plan.run, spec=services.spec_of(plan), actor=f"plan {plan.name}", plan=plan)
    PlanOccurrence.objects.filter(pk=occurrence.pk).update(drill=drill)


PLANS = Schedule(_plans, PlanOccurrence, _in_the_way, _start)
