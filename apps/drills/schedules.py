"""Drill plans that are due."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.utils import timezone

from apps.core.schedules import Schedule
from apps.drills import engine, node_actions, selectors, services
from apps.drills.calendar import smear
from apps.drills.finish import UNFINISHED
from apps.drills.models import Drill, DrillPlan, PlanOccurrence


def fire_due(now: datetime | None = None) -> int:
    """Start what is due, and wake drills whose next look has come. Gives how many drills were started."""
    now = now or timezone.now()
    started = PLANS.fire_due(now)
    engine.wake_due(now)
    node_actions.wake_due(now)
    return started


def _plans() -> QuerySet[DrillPlan]:
    return DrillPlan.objects.select_related("run__cluster")


def _in_the_way(plan: DrillPlan) -> str:
    paused = selectors.paused_reason()
    if paused:
        return paused
    running = _running(plan).first()
    if running is None or plan.overlap != DrillPlan.Overlap.SKIP:
        return ""
    return f"The drill before it, {running.pk}, had not finished."


def _running(plan: DrillPlan) -> QuerySet[Drill]:
    return Drill.objects.filter(plan=plan, state__in=UNFINISHED)


def _start(plan: DrillPlan, occurrence: PlanOccurrence) -> None:
    actor = f"plan {plan.name}"
    if plan.overlap == DrillPlan.Overlap.CANCEL:
        for running in _running(plan):
            services.cancel_drill(drill=running, actor=actor)
    later = smear(plan.pk, occurrence.planned_at, plan.smear_seconds)
    not_before_at = occurrence.planned_at + later if later else None
    drill = services.create_drill(
        run=plan.run, spec=services.spec_of(plan), actor=actor, plan=plan, not_before_at=not_before_at
    )
    PlanOccurrence.objects.filter(pk=occurrence.pk).update(drill=drill)


def _start_window(plan: DrillPlan) -> timedelta:
    return timedelta(seconds=plan.start_window_seconds)


PLANS = Schedule(_plans, PlanOccurrence, _in_the_way, _start, start_window=_start_window)
