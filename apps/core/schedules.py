"""Plans that are due. One occurrence of a plan is started at most once, however many beats run or die."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.core import cron
from apps.core.errors import ApplicationError
from apps.core.models import Occurrence, Scheduled

log = logging.getLogger(__name__)
LATE = timedelta(seconds=60)
"""An occurrence later than this was missed: nobody was there to start it."""
MAX_MISSED_ROWS = 50
_AT_ONCE = 200
_MISSED = "Missed: nothing was running at that time to start it."

_P = TypeVar("_P", bound=Scheduled)
_O = TypeVar("_O", bound=Occurrence)


@dataclass(frozen=True)
class Schedule(Generic[_P, _O]):
    """One kind of plan. `plans` gives all of them; `in_the_way` says why one cannot start now, such as that the one
    before has not finished, "" where it can; `start` does what the plan is for, and leaves what came of it in the
    occurrence. An ApplicationError of `start` becomes the reason why the occurrence was skipped."""

    plans: Callable[[], QuerySet[_P]]
    occurrences: type[_O]
    in_the_way: Callable[[_P], str]
    start: Callable[[_P, _O], None]
    plan_field: str = "plan"
    """The occurrence's field that names the plan."""
    start_window: Callable[[_P], timedelta] = lambda _plan: LATE
    """How late an occurrence may still start; after that it was missed."""

    def fire_due(self, now: datetime) -> int:
        """Start what is due. Gives how many were started."""
        due = self.plans().filter(enabled=True, next_at__lte=now).order_by("next_at")
        return sum(self.fire(plan, now) for plan in due[:_AT_ONCE])

    def fire(self, plan: _P, now: datetime) -> int:
        """Everything of this plan up to `now`, in one transaction: whoever moves `next_at` on does it, nobody else."""
        planned_at = plan.next_at
        assert planned_at is not None
        try:
            moments, earlier, following = due_times(plan.cron, plan.time_zone, planned_at, now)
        except cron.BadSchedule as problem:
            return self._give_up(plan, planned_at, problem)
        with transaction.atomic():
            if not self._move_on(plan, planned_at, following):
                return 0
            for moment in moments[:-1]:
                note = " Earlier ones were missed too." if earlier and moment == moments[0] else ""
                self._skip(plan, moment, _MISSED + note)
            return self._fire_latest(plan, moments[-1], now)

    def _move_on(self, plan: _P, planned_at: datetime, following: datetime | None) -> bool:
        mine = self.plans().filter(pk=plan.pk, next_at=planned_at, enabled=True)
        return mine.update(next_at=following) == 1

    def _fire_latest(self, plan: _P, moment: datetime, now: datetime) -> int:
        is_missed = now - moment > self.start_window(plan) and plan.missed == Scheduled.Missed.SKIP
        reason = _MISSED if is_missed else self.in_the_way(plan)
        if reason:
            self._skip(plan, moment, reason)
            return 0
        occurrence, fresh = self._occurrence(plan, moment, "")
        if not fresh:
            return 0
        try:
            with transaction.atomic():
                self.start(plan, occurrence)
        except ApplicationError as problem:
            self.occurrences._default_manager.filter(pk=occurrence.pk).update(skipped_reason=problem.detail)
            return 0
        return 1

    def _skip(self, plan: _P, moment: datetime, reason: str) -> None:
        self._occurrence(plan, moment, reason)

    def _occurrence(self, plan: _P, moment: datetime, reason: str) -> tuple[_O, bool]:
        defaults = {"created_at": timezone.now(), "skipped_reason": reason}
        key = {self.plan_field: plan, "planned_at": moment}
        return self.occurrences._default_manager.get_or_create(**key, defaults=defaults)

    def _give_up(self, plan: _P, planned_at: datetime, problem: cron.BadSchedule) -> int:
        """The stored schedule cannot be read any more (a time zone that was removed, say): say so once and wait."""
        log.error("plan %s is not scheduled any more: %s", plan.pk, problem.detail)
        with transaction.atomic():
            if self._move_on(plan, planned_at, None):
                told = f"{problem.detail} Save the plan again with a schedule that can be used."
                self._skip(plan, planned_at, told)
        return 0


def due_times(text: str, zone: str, first: datetime, now: datetime) -> tuple[list[datetime], bool, datetime]:
    """(`first` and its successors up to `now`, at most the latest 50; whether earlier ones were left out; the time
    after `now`)."""
    moments = [first, *cron.times_between(text, zone, first, now, MAX_MISSED_ROWS)]
    return moments[-MAX_MISSED_ROWS:], len(moments) > MAX_MISSED_ROWS, cron.next_time(text, zone, now)
