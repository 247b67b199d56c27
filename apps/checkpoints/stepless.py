"""Checkpoints whose step nothing tells: kept beside the others, so that whoever looks for one on a disk finds it."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from muster_agent.formats.base import Severity, ShardMap
from muster_agent.formats.checkpoint import state_shards

from apps.checkpoints import intake
from apps.checkpoints.findings import as_json, bounded, clean
from apps.checkpoints.models import InventoryScan, SteplessCheckpoint

MAX_FINDINGS = 50
_SEEN = (
    "run_name", "format", "status", "world_size", "shard_count", "total_bytes", "saved_at", "findings", "damage_count",
    "last_seen_at",
)  # fmt: skip


@transaction.atomic
def take_stepless(scan: InventoryScan, listing: intake.Listing, listed_at: datetime, *, forgets: bool) -> None:
    """Record what a listing that began at `listed_at` found. With `forgets`, what it looked for and did not find goes.
    Repeating it is harmless."""
    rows = [_row(scan, shard_map, listed_at) for shard_map in listing.stepless]
    SteplessCheckpoint.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["tier", "path"], update_fields=_SEEN, batch_size=500
    )
    if forgets:
        _forget(scan, listing, listed_at)


def _row(scan: InventoryScan, shard_map: ShardMap, listed_at: datetime) -> SteplessCheckpoint:
    told = bounded(shard_map.findings, shard_map.path)
    return SteplessCheckpoint(
        tier=scan.tier,
        path=shard_map.path,
        run_name=clean(shard_map.run, 255),
        format=clean(shard_map.format, 32),
        status=shard_map.status.value,
        world_size=intake.small(shard_map.world_size),
        shard_count=state_shards(shard_map),
        total_bytes=min(shard_map.total_bytes, 2**63 - 1),
        saved_at=intake.time_of(shard_map.newest_mtime_ns),
        findings=[as_json(found) for found in told[:MAX_FINDINGS]],
        damage_count=sum(found.severity is Severity.DAMAGE for found in told),
        first_seen_at=timezone.now(),
        last_seen_at=listed_at,
    )


def _forget(scan: InventoryScan, listing: intake.Listing, listed_at: datetime) -> None:
    inside = Q(path=scan.root) | Q(path__startswith=scan.root.rstrip("/") + "/")
    before = SteplessCheckpoint.objects.filter(inside, tier=scan.tier, last_seen_at__lt=listed_at)
    gone = [row.pk for row in before.only("path") if intake.was_looked_at(row.path, listing.not_looked_at)]
    for begin in range(0, len(gone), 500):
        SteplessCheckpoint.objects.filter(pk__in=gone[begin : begin + 500]).delete()
