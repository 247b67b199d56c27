"""Turns transition rows into events for the webhooks that asked for them.

A transition row is written with the change itself, so nothing can happen without one; this only reads them, once each.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.utils import timezone

from apps.alerts.events import enabled_channels, publish, wishes_of
from apps.alerts.models import Channel
from apps.alerts.sources import SOURCES, Source
from apps.core.models import Transition

AT_ONCE = 500


def relay() -> int:
    """Look at up to 500 transitions that nobody has looked at yet. Gives how many. Two at once tell each only once."""
    rows = list(Transition.objects.filter(processed_at=None).order_by("pk")[:AT_ONCE])
    if not rows:
        return 0
    channels = [channel for channel in enabled_channels() if channel.kind == Channel.Kind.WEBHOOK]
    telling = {row.pk for row in rows if _may_be_wanted(row, channels)}
    for row in rows:
        if row.pk in telling:
            _tell(row, SOURCES[row.owner_kind], channels)
    rest = [row.pk for row in rows if row.pk not in telling]
    Transition.objects.filter(pk__in=rest, processed_at=None).update(processed_at=timezone.now())
    return len(rows)


def _may_be_wanted(row: Transition, channels: Sequence[Channel]) -> bool:
    """By the change alone: what nobody asked for is not read."""
    source = SOURCES.get(row.owner_kind)
    types = source.may_be(row) if source is not None and channels else ()
    return any(wishes_of(channel).has(one) for one in types for channel in channels)


@transaction.atomic
def _tell(row: Transition, source: Source, channels: Sequence[Channel]) -> None:
    """Whoever marks the row tells it."""
    if Transition.objects.filter(pk=row.pk, processed_at=None).update(processed_at=timezone.now()) != 1:
        return
    owner = source.find(row.owner_id)
    if owner is None:
        return
    for event_type in source.types(row, owner):
        publish(source.draft(row, owner, event_type), channels)
