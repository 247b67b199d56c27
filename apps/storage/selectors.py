"""Reading storage tiers."""

from __future__ import annotations

from collections.abc import Iterable

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
