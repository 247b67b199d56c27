"""Signs of life of Muster's own parts, each written by the part itself when its work is done."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.core.models import Heartbeat

TICKS, SWEEPS = "ticks", "sweeps"
QUEUES = ("control", "scan", "move", "notify")
PARTS = (TICKS, SWEEPS, *(f"queue:{queue}" for queue in QUEUES))
RESOLUTION = timedelta(seconds=5)
"""Of a part that works every second, one row in five is written."""


def beat(part: str) -> None:
    """This part has just done its work. Two at once, and a clock that was set back, are harmless."""
    now = timezone.now()
    fresh = Heartbeat.objects.filter(part=part, beat_at__gt=now - RESOLUTION, beat_at__lte=now)
    if fresh.exists() or Heartbeat.objects.filter(part=part).update(beat_at=now):
        return
    try:
        with transaction.atomic():
            Heartbeat.objects.create(part=part, beat_at=now)
    except IntegrityError:
        return  # another was first, with the same news


def last_beats() -> dict[str, datetime | None]:
    """Every part's newest sign of life; None where it never gave one. One query."""
    return of_every_part(Heartbeat.objects.values_list("part", "beat_at"))


def of_every_part(rows: Iterable[tuple[str, datetime]]) -> dict[str, datetime | None]:
    seen = dict(rows)
    return {part: seen.get(part) for part in PARTS}
