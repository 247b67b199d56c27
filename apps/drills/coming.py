"""The calendar of plans: their due times of the coming days with what they will hold up."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from django.db.models import QuerySet
from django.utils import timezone

from apps.core import cron
from apps.drills import calendar
from apps.drills.models import Drill, DrillPlan

MAX_PER_PLAN = 500
ASSUMED_SECONDS = 600.0
"""What a plan is taken to need that has never run."""
_DRILLS_LOOKED_AT = 2000


@dataclass(frozen=True, kw_only=True)
class Coming:
    """One due time. `conflicts` are the plans that it meets on its cluster."""

    plan: DrillPlan
    planned_at: datetime
    begins_at: datetime
    expected_seconds: float
    conflicts: tuple[DrillPlan, ...]


def coming(plans: QuerySet[DrillPlan], days: int = 7, now: datetime | None = None) -> list[Coming]:
    """The occurrences of enabled plans in the next `days`, in order; of a plan at most the next 500."""
    begin = now or timezone.now()
    by_id = {plan.pk: plan for plan in plans.filter(enabled=True).exclude(cron="").select_related("run__cluster")}
    usual = _usual_seconds(list(by_id))
    found = [one for plan in by_id.values() for one in _of(plan, begin, begin + timedelta(days=days), usual)]
    return [
        Coming(
            plan=by_id[one.plan_id],
            planned_at=one.planned_at,
            begins_at=one.begins_at,
            expected_seconds=one.seconds,
            conflicts=tuple(by_id[plan_id] for plan_id in others),
        )
        for one, others in calendar.conflicts(found)
    ]


def _of(plan: DrillPlan, begin: datetime, end: datetime, usual: dict[str, float]) -> list[calendar.Planned]:
    try:
        moments = cron.next_times(plan.cron, plan.time_zone, begin, MAX_PER_PLAN)
    except cron.BadSchedule:
        return []
    return [
        calendar.Planned(
            plan_id=plan.pk,
            cluster_id=plan.run.cluster_id,
            planned_at=moment,
            begins_at=moment + calendar.smear(plan.pk, moment, plan.smear_seconds),
            seconds=usual.get(plan.pk, ASSUMED_SECONDS),
        )
        for moment in moments
        if moment <= end
    ]


def _usual_seconds(plan_ids: list[str]) -> dict[str, float]:
    """The median time from start to end of each plan's drills."""
    rows = Drill.objects.filter(plan__in=plan_ids, started_at__isnull=False, finished_at__isnull=False)
    taken: dict[str, list[float]] = defaultdict(list)
    newest = rows.order_by("-created_at").values_list("plan", "started_at", "finished_at")[:_DRILLS_LOOKED_AT]
    for plan_id, started_at, finished_at in newest:
        if plan_id and started_at and finished_at:
            taken[plan_id].append((finished_at - started_at).total_seconds())
    return {plan_id: median(seconds) for plan_id, seconds in taken.items()}
