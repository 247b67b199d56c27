"""Plans that are due. One occurrence of a plan gives at most one drill, however many beats run or die."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from apps.core import cron
from apps.core.errors import ApplicationError
from apps.drills import engine, services
from apps.drills.finish import UNFINISHED
from apps.drills.models import Drill, DrillPlan, PlanOccurrence

log = logging.getLogger(__name__)
LATE = timedelta(seconds=60)
"""An occurrence later than this was missed: nobody was there to start it."""
MAX_MISSED_ROWS = 50
_MISSED = "Missed: nothing was running at that time to start it."


def fire_due(now: datetime | None = None) -> int:
    """Start what is due, and wake drills whose next look has come. Gives how many drills were started."""
    now = now or timezone.now()
    due = DrillPlan.objects.filter(enabled=True, next_at__lte=now).select_related("run__cluster").order_by("next_at")
    started = sum(_fire(plan, now) for plan in due[:200])
    engine.wake_due(now)
    return started


def _fire(plan: DrillPlan, now: datetime) -> int:
    """Everything of this plan up to `now`, in one transaction: whoever moves `next_at` on does it, nobody else."""
    planned_at = plan.next_at
    assert planned_at is not None
    try:
        moments, earlier, following = due_times(plan.cron, plan.time_zone, planned_at, now)
    except cron.BadSchedule as problem:
        return _give_up(plan, planned_at, problem)
    with transaction.atomic():
        mine = DrillPlan.objects.filter(pk=plan.pk, next_at=planned_at, enabled=True).update(next_at=following)
        if mine != 1:
            return 0
        for moment in moments[:-1]:
            note = " Earlier ones were missed too." if earlier and moment == moments[0] else ""
            _skip(plan, moment, _MISSED + note)
        return _fire_latest(plan, moments[-1], now)


def due_times(text: str, zone: str, first: datetime, now: datetime) -> tuple[list[datetime], bool, datetime]:
    """(`first` and its successors up to `now`, at most the latest 50; whether earlier ones were left out; the time
    after `now`)."""
    moments = [first, *cron.times_between(text, zone, first, now, MAX_MISSED_ROWS)]
    return moments[-MAX_MISSED_ROWS:], len(moments) > MAX_MISSED_ROWS, cron.next_time(text, zone, now)


def _fire_latest(plan: DrillPlan, moment: datetime, now: datetime) -> int:
    if now - moment > LATE and plan.missed == DrillPlan.Missed.SKIP:
        _skip(plan, moment, _MISSED)
        return 0
    running = Drill.objects.filter(plan=plan, state__in=UNFINISHED).first()
    if running is not None:
        _skip(plan, moment, f"The drill before it, {running.pk}, had not finished.")
        return 0
    occurrence, fresh = PlanOccurrence.objects.get_or_create(plan=plan, planned_at=moment, defaults={"created_at": now})
    if not fresh:
        return 0
    try:
        drill = services.create_drill(run=plan.run, spec=services.spec_of(plan), actor=f"plan {plan.name}", plan=plan)
    except ApplicationError as problem:
        PlanOccurrence.objects.filter(pk=occurrence.pk).update(skipped_reason=problem.detail)
        return 0
    PlanOccurrence.objects.filter(pk=occurrence.pk).update(drill=drill)
    return 1


def _skip(plan: DrillPlan, moment: datetime, reason: str) -> None:
    PlanOccurrence.objects.get_or_create(
        plan=plan, planned_at=moment, defaults={"created_at": timezone.now(), "skipped_reason": reason}
    )


def _give_up(plan: DrillPlan, planned_at: datetime, problem: cron.BadSchedule) -> int:
    """The stored schedule cannot be read any more (a time zone that was removed, say): say so once and wait."""
    log.error("plan %s is not scheduled any more: %s", plan.pk, problem.detail)
    with transaction.atomic():
        if DrillPlan.objects.filter(pk=plan.pk, next_at=planned_at).update(next_at=None) == 1:
            _skip(plan, planned_at, f"{problem.detail} Save the plan again with a schedule that can be used.")
    return 0
