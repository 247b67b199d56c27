"""Copies that Muster itself made or removed: recorded at once, so that nobody has to wait for the next listing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from django.db import transaction
from django.utils import timezone
from muster_agent.formats.base import ShardMap
from muster_agent.manifest.model import Manifest
from muster_agent.protocol.trust import Trust
from muster_agent.protocol.wire import InventoryBody

from apps.checkpoints.describe import LAYOUT
from apps.checkpoints.evidence import add_evidence
from apps.checkpoints.folders import folder_of, hold_tier
from apps.checkpoints.intake import Listed, sort_listing
from apps.checkpoints.manifests import store_manifest
from apps.checkpoints.models import Checkpoint, Finding, Placement, RunFolder, SentSums, Shard
from apps.checkpoints.shard_rows import upsert_shards
from apps.core.errors import Conflict
from apps.core.transitions import record, transition
from apps.storage.models import StorageTier

REMOVED = "removed by a transfer"


@transaction.atomic
def record_arrival(
    *,
    checkpoint: Checkpoint,
    tier: StorageTier,
    shard_map: ShardMap,
    manifest: Manifest,
    source_kind: str,
    source_id: str,
    detail: Mapping[str, Any],
    sums: Mapping[str, str] | None = None,
) -> Placement:
    """A copy that was made on `tier` and proven to the last byte; `shard_map` is how it reads there, `sums` the CRCs
    that its objects were sent with (`SentSums`). Recording it again changes nothing. Raises Conflict where it does not
    read as a checkpoint of that step."""
    hold_tier(tier.pk)
    item = _listed(tier, shard_map, manifest)
    if item is None or item.step != checkpoint.step:
        raise Conflict(f"{shard_map.path} does not read as step {checkpoint.step}; scan {tier.name} and look at it.")
    now = timezone.now()
    values = {name: getattr(item, name) for name in LAYOUT} | {
        "checkpoint": checkpoint,
        "listed_status": item.status,
        "resumable": item.resumable,
        "not_resumable_reasons": item.reasons,
        "shard_count": len(item.shards),
        "total_bytes": item.total_bytes,
        "newest_mtime_at": item.newest_mtime_at,
        "middle_mtime_at": item.middle_mtime_at,
        "fingerprint": item.fingerprint,
        "manifest": store_manifest(checkpoint=checkpoint, manifest=manifest),
        "rotated_away": False,
        "damaged_at": None,
        "last_seen_at": now,
    }
    placement, is_new = Placement.objects.update_or_create(
        tier=tier, path=item.path, defaults=values, create_defaults={**values, "first_seen_at": now}
    )
    _write_shards(placement, item)
    _take_folder(checkpoint, tier, item.path)
    if sums:
        told = {"fingerprint": item.fingerprint, "sums": dict(sums), "source_id": source_id, "at": now}
        SentSums.objects.update_or_create(placement=placement, defaults=told)
    if is_new:
        record("placement", placement.pk, old="", new=item.status, reason=f"made by {source_id}")
    for rung in (Trust.SEALED, Trust.VERIFIED):
        add_evidence(
            placement=placement,
            rung=rung.value,
            source_kind=source_kind,
            source_id=source_id,
            fingerprint=item.fingerprint,
            detail=detail,
        )
    return placement


def _listed(tier: StorageTier, shard_map: ShardMap, manifest: Manifest) -> Listed | None:
    shown = msgspec.structs.replace(shard_map, tensors=())
    body = InventoryBody(root=tier.uri, checkpoints=(shown,), manifests={shard_map.path: manifest})
    return next(iter(sort_listing(body, tier.uri).accepted), None)


def _write_shards(placement: Placement, item: Listed) -> None:
    Shard.objects.filter(placement=placement).exclude(path__in=list(item.shards)[:900]).delete()
    upsert_shards([(placement.pk, path, *fields) for path, fields in item.shards.items()])


def _take_folder(checkpoint: Checkpoint, tier: StorageTier, path: str) -> None:
    """The run's folder on that tier, unless it has one."""
    taken = RunFolder.objects.filter(tier=tier, path=folder_of(path)).exists()
    if not taken and not RunFolder.objects.filter(tier=tier, run=checkpoint.run_id).exists():
        RunFolder.objects.create(tier=tier, run_id=checkpoint.run_id, path=folder_of(path))


@transaction.atomic
def record_departure(*, placement: Placement, source_id: str) -> None:
    """A copy that a transfer removed: missing, and nobody need worry."""
    now = timezone.now()
    Finding.objects.filter(placement=placement, resolved_at=None).update(resolved_at=now, resolved_reason=REMOVED)
    gone: dict[str, Any] = {
        "listed_status": Placement.Status.MISSING,
        "trust": Placement.Trust.LISTED,
        "trust_at": None,
        "resumable": False,
        "not_resumable_reasons": [REMOVED],
        "rotated_away": True,
    }
    placement.refresh_from_db()
    if placement.status != Placement.Status.MISSING:
        transition(
            placement,
            old=placement.status,
            new=Placement.Status.MISSING,
            field="status",
            reason=f"{REMOVED} ({source_id})",
            **gone,
        )
