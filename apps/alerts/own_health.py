"""Whether Muster itself is watching: alerts come from its parts, so a part that stands still would look like peace.

Read by web processes, which do not depend on any of the parts judged here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import redis
from django.conf import settings
from django.db.models import Min, QuerySet
from django.utils import timezone

from apps.alerts import outbox_age
from apps.audits.models import Audit
from apps.checkpoints.models import InventoryScan
from apps.core import heartbeats
from apps.core.heartbeats import SWEEPS, TICKS
from apps.drills.models import Drill
from apps.storage.models import CeilingRun
from apps.transfers.models import Transfer

BROKER, OVERDUE, OUTBOX = "broker", "overdue work", "outbox"
OVERDUE_LIMIT = timedelta(minutes=5)
_BEAT_LIMITS = {TICKS: timedelta(seconds=30), SWEEPS: timedelta(minutes=1)}
_QUEUE_LIMIT = timedelta(seconds=150)
"""A pulse waits behind slices of half a minute each."""
_SAYS = {
    TICKS: ("schedules fire", "see that `celery beat` runs, and a worker with -Q control"),
    SWEEPS: ("silent agents and alerts are noticed", "see that `celery beat` runs, and a worker with -Q control"),
    "queue:control": ("a worker takes drills, scans and audits forward", "start a worker with -Q control"),
    "queue:scan": ("a worker lists tiers", "start a worker with -Q scan"),
    "queue:move": ("a worker moves checkpoints between tiers", "start a worker with -Q move"),
    "queue:notify": ("a worker tells others what happened", "start a worker with -Q notify"),
    BROKER: ("Redis carries wake-ups", "see that Redis runs and that REDIS_URL names it; nothing is lost meanwhile"),
    OUTBOX: ("events and alerts reach their channels", "see that a worker runs with -Q notify, and its log"),
    OVERDUE: ("what is due is looked at", "see the workers' logs for what fails again and again"),
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One part of Muster. `age_seconds`: since its last sign of life, or how long its oldest work has been due; None
    where it never gave one, or does not answer."""

    name: str
    age_seconds: float | None
    limit_seconds: float

    @property
    def is_well(self) -> bool:
        return self.age_seconds is not None and self.age_seconds <= self.limit_seconds

    @property
    def does(self) -> str:
        return _SAYS[self.name][0]

    @property
    def cure(self) -> str:
        return "" if self.is_well else _SAYS[self.name][1]


def parts() -> list[Part]:
    """Every part, as it stands now."""
    now = timezone.now()
    overdue = Part(OVERDUE, _overdue_seconds(now), OVERDUE_LIMIT.total_seconds())
    outbox = Part(OUTBOX, outbox_age.seconds(now), OVERDUE_LIMIT.total_seconds())
    return [*judge(heartbeats.last_beats(), now), Part(BROKER, _broker_answers(), 2.0), overdue, outbox]


def judge(beats: Mapping[str, datetime | None], now: datetime) -> list[Part]:
    """The parts that give signs of life. A sign from the future (a clock that was set back) counts as just given."""
    limits = {name: _BEAT_LIMITS.get(name, _QUEUE_LIMIT) for name in beats}
    return [Part(name, _age(at, now), limits[name].total_seconds()) for name, at in beats.items()]


def standing_still(beats: Mapping[str, datetime | None]) -> list[str]:
    """The names of parts whose sign of life is late."""
    return [part.name for part in judge(beats, timezone.now()) if not part.is_well]


def _age(at: datetime | None, now: datetime) -> float | None:
    return None if at is None else max(0.0, (now - at).total_seconds())


def _broker_answers() -> float | None:
    """Seconds that a ping took; None when none came back."""
    began = time.monotonic()
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
    try:
        client.ping()
    except redis.RedisError:
        return None
    finally:
        client.close()
    return time.monotonic() - began


def _overdue_seconds(now: datetime) -> float:
    """How long the activity that is due longest has been due; 0 when nothing is."""
    waiting: tuple[QuerySet[InventoryScan] | QuerySet[Drill] | QuerySet[Audit] | QuerySet[CeilingRun], ...] = (
        InventoryScan.objects.exclude(state=InventoryScan.State.FINISHED),
        Drill.objects.exclude(state=Drill.State.FINISHED),
        Audit.objects.exclude(state=Audit.State.FINISHED),
        CeilingRun.objects.exclude(state=CeilingRun.State.FINISHED),
    )
    moving = Transfer.objects.filter(next_attempt_at__lte=now).aggregate(at=Min("next_attempt_at"))["at"]
    due = [rows.filter(next_attempt_at__lte=now).aggregate(at=Min("next_attempt_at"))["at"] for rows in waiting]
    oldest = min((at for at in [moving, *due] if at is not None), default=now)
    return (now - oldest).total_seconds()
