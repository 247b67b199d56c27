"""Reading storage tiers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db.models import Max, QuerySet

from apps.fleet.models import Cluster
from apps.storage.models import StorageTier, TierCeiling


def tiers_of(cluster: Cluster) -> QuerySet[StorageTier]:
    """Fastest first."""
    return StorageTier.objects.filter(cluster=cluster).order_by("speed_order", "name")


def best_ceilings(tier_ids: Iterable[str]) -> dict[str, float]:
    """The best measured read rate (bytes per second) by tier; a tier that was never measured is absent."""
    rows = TierCeiling.objects.filter(tier__in=list(tier_ids)).values("tier").annotate(best=Max("bytes_per_second"))
    return {row["tier"]: row["best"] for row in rows}


CEILING_LASTS = timedelta(days=90)
"""A rate that was measured longer ago says little of what the storage can do now."""


def ceiling_for(tier_id: str, client_count: int, now: datetime) -> TierCeiling | None:
    """The best recent rate with just as many clients: what few clients reach is no limit of many, nor the other way
    round. None where that was not measured."""
    rows = TierCeiling.objects.filter(tier=tier_id, client_count=client_count, measured_at__gte=now - CEILING_LASTS)
    return rows.order_by("-bytes_per_second", "-measured_at").first()
