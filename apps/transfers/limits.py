"""How fast a transfer may go now: its own limit, and its share of what each of its tiers allows at this time of day."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, time
from zoneinfo import ZoneInfo

from django.db.models import Q
from django.utils import timezone

from apps.transfers.models import TierRateLimit, Transfer

_BUSY = (Transfer.State.COPYING, Transfer.State.PROVING)


def allowed_rate(transfer: Transfer, now: datetime | None = None) -> int | None:
    """Bytes per second; None where nothing limits it. Asked anew for each slice, so a window that begins or ends takes
    hold within half a minute."""
    tiers = [transfer.source.tier_id, transfer.target_tier_id]
    at = now or timezone.now()
    limits = TierRateLimit.objects.filter(tier__in=[pk for pk in tiers if pk])
    rates = [transfer.max_bytes_per_second] if transfer.max_bytes_per_second else []
    for limit in limits:
        if holds(limit.begins, limit.ends, limit.time_zone, at):
            rates.append(max(1, limit.max_bytes_per_second // _at_work(limit.tier_id)))
    return min(rates, default=None)


def holds(begins: time, ends: time, time_zone: str, at: datetime) -> bool:
    """Whether a daily window holds at that moment; one that ends before it begins goes over midnight, and one that
    ends when it begins is the whole day."""
    local = at.astimezone(ZoneInfo(time_zone)).time()
    if begins == ends:
        return True
    return begins <= local < ends if begins < ends else local >= begins or local < ends


def _at_work(tier_id: str) -> int:
    """How many transfers share the tier now, this one among them."""
    of_tier = Q(source__tier=tier_id) | Q(target_tier=tier_id)
    return max(1, Transfer.objects.filter(of_tier, state__in=_BUSY).count())


def names(limits: Iterable[TierRateLimit]) -> list[str]:
    """As sentences, for pages."""
    return [
        f"{limit.max_bytes_per_second} B/s from {limit.begins:%H:%M} to {limit.ends:%H:%M} {limit.time_zone}"
        for limit in limits
    ]
