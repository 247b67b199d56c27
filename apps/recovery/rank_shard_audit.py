"""The rank-shard audit of one copy: its shards as scanned, the tier's measured rates, what a drill saw of stripes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max
from django.utils import timezone
from muster_agent.formats.base import Role

from apps.checkpoints.models import Placement, Shard
from apps.drills.models import RankResult
from apps.recovery.rank_shards import Rates, Shape, ShapeFinding, shape_findings
from apps.storage.models import TierCeiling
from apps.storage.selectors import CEILING_LASTS

NO_STATE = (Role.METADATA.value, Role.OTHER.value)
_RESULTS_LOOKED_AT = 200


@dataclass(frozen=True, kw_only=True)
class RankShardAudit:
    """What was found of one copy; an empty list of findings says that its cut holds nobody up."""

    placement: Placement
    shape: Shape
    rates: Rates
    findings: list[ShapeFinding]


def rank_shard_audit(placement: Placement, now: datetime | None = None) -> RankShardAudit:
    """In four queries, however many shards."""
    shape, rates = _shape(placement), _rates(placement, now or timezone.now())
    return RankShardAudit(placement=placement, shape=shape, rates=rates, findings=shape_findings(shape, rates))


def _shape(placement: Placement) -> Shape:
    shards = Shard.objects.filter(placement=placement, size_bytes__isnull=False).exclude(role__in=NO_STATE)
    rank_bytes: dict[int, int] = {}
    common = files = 0
    for rank, size_bytes in shards.values_list("rank", "size_bytes"):
        files += 1
        if rank is None:
            common += size_bytes or 0
        else:
            rank_bytes[rank] = rank_bytes.get(rank, 0) + (size_bytes or 0)
    return Shape(
        rank_bytes=rank_bytes,
        common_bytes=common,
        file_count=files,
        readers=placement.world_size or len(rank_bytes) or files,
        stripe_count=_stripe_count(placement),
    )


def _stripe_count(placement: Placement) -> int | None:
    """The least that the clients of this copy's drills saw."""
    rows = RankResult.objects.filter(rung__placement=placement).order_by("-pk")
    evidence = rows.values_list("evidence", flat=True)[:_RESULTS_LOOKED_AT]
    counts = [one["stripe_count"] for one in evidence if isinstance(one.get("stripe_count"), int)]
    return min(counts, default=None)


def _rates(placement: Placement, now: datetime) -> Rates:
    recent = TierCeiling.objects.filter(tier=placement.tier_id, measured_at__gte=now - CEILING_LASTS)
    together = recent.aggregate(best=Max("bytes_per_second"))["best"]
    return Rates(together, recent.filter(client_count=1).aggregate(best=Max("bytes_per_second"))["best"])
