"""Work that a worker does for at most half a minute at a time: its lease, its clock, and its cursor between turns."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from django.db.models import Q
from django.utils import timezone
from muster_agent.jobs.control import Cancelled, JobControl

from apps.core.ids import new_id
from apps.core.models import Sliced, WorkCursor

SLICE_SECONDS = 30.0
STEP_SECONDS = 5.0
"""After each the cursor is saved, and the row is asked whether the work is still wanted."""
LEASE = timedelta(seconds=120)
"""Longer than a Celery task may live: a second worker takes over only from a dead one."""

_SLACK = timedelta(minutes=1)
"""Between the clocks of hosts."""

_C = TypeVar("_C", bound=msgspec.Struct)


class StepEnded(Cancelled):
    """The step's time is over; the work is not."""


class StepControl(JobControl):
    """Ends a step of the work when its time is over. `outward`: `progress` and `tell` of `JobControl`."""

    def __init__(
        self, seconds: float = STEP_SECONDS, monotonic: Callable[[], float] = time.monotonic, **outward: Any
    ) -> None:
        super().__init__(**outward)
        self._seconds, self._monotonic, self._began_at = seconds, monotonic, monotonic()

    @property
    def elapsed_seconds(self) -> float:
        return self._monotonic() - self._began_at

    def check(self) -> None:
        super().check()
        if self.elapsed_seconds > self._seconds:
            raise StepEnded("the step's time is over")


def is_free(now: datetime, lease: timedelta = LEASE) -> Q:
    """Nobody holds the lease. One that ends later than any lease can was written before the clock went back."""
    return Q(lease_expires_at=None) | Q(lease_expires_at__lte=now) | Q(lease_expires_at__gt=now + lease + _SLACK)


def is_due(now: datetime, longest_wait: timedelta) -> Q:
    """Its next attempt is due, or was set before the clock went back: nothing waits longer than `longest_wait`."""
    return Q(next_attempt_at__lte=now) | Q(next_attempt_at__gt=now + longest_wait + _SLACK)


def take_lease(row: Sliced, *, lease: timedelta = LEASE, **states: Any) -> bool:
    """Keep other workers out for a while; False when one is at it, or the row is not as `states` says any more."""
    now, token = timezone.now(), new_id("lse")
    free = type(row)._default_manager.filter(is_free(now, lease), pk=row.pk, **states)
    taken = free.update(lease_expires_at=now + lease, lease_token=token, next_attempt_at=now + lease)
    row.lease_token = token
    return taken == 1


def give_lease_back(row: Sliced, *, again: bool) -> None:
    """`again`: any worker may take the next turn at once, unless the row waits for none any more."""
    mine = type(row)._default_manager.filter(pk=row.pk, lease_token=row.lease_token)
    changes: dict[str, Any] = {"lease_expires_at": None, "lease_token": ""}
    if again and mine.exclude(next_attempt_at=None).update(**changes, next_attempt_at=timezone.now()):
        return
    mine.update(**changes)


def is_mine(row: Sliced, **states: Any) -> bool:
    """Whether the lease is still this worker's and the row as it was: the last look before something is done. It also
    makes the lease last longer."""
    mine = type(row)._default_manager.filter(pk=row.pk, lease_token=row.lease_token, **states)
    until = timezone.now() + LEASE
    return mine.update(lease_expires_at=until, next_attempt_at=until) == 1


def load_cursor(owner_id: str, kind: type[_C]) -> _C:
    """How far it is; a new one where nothing was begun, or what was saved cannot be read."""
    return unpacked(WorkCursor.objects.filter(pk=owner_id).first(), kind)


def save_cursor(owner_id: str, cursor: msgspec.Struct) -> None:
    """Only for whoever holds the lease."""
    WorkCursor.objects.update_or_create(owner_id=owner_id, defaults=packed(cursor))


def forget_cursor(owner_id: str) -> None:
    WorkCursor.objects.filter(pk=owner_id).delete()


def packed(cursor: msgspec.Struct) -> dict[str, Any]:
    """The columns of a row that keeps it."""
    return {"body": zlib.compress(msgspec.json.encode(cursor), 1), "saved_at": timezone.now()}


def unpacked(row: Any, kind: type[_C]) -> _C:
    """What such a row keeps; a new one where there is no row, or what it has cannot be read."""
    if row is None:
        return kind()
    try:
        return msgspec.json.decode(zlib.decompress(bytes(row.body)), type=kind)
    except (zlib.error, msgspec.DecodeError, ValueError):
        return kind()
