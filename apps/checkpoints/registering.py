"""Checkpoints that somebody tells of by the API: known at once, and believed once a listing has seen them.

What is told proves nothing: such a copy is `unknown` and not resumable until a scan has looked, which is asked for.
What a scan has seen already is never overwritten by what somebody says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.checkpoints.folders import folder_of, hold_tier
from apps.checkpoints.models import Checkpoint, Placement, RunFolder, TrainingRun
from apps.checkpoints.rescans import SETTLE
from apps.checkpoints.runs import get_or_create_run
from apps.checkpoints.scan_models import ScanDemand
from apps.checkpoints.shard_rows import upsert_shards
from apps.core.errors import Conflict, InvalidInput
from apps.core.transitions import record
from apps.storage.models import StorageTier
from apps.storage.paths import contains, normalized_uri

UNSEEN = "it was told by the API, and no scan has seen it yet"


@dataclass(frozen=True)
class Registered:
    """`is_new` is False where the copy was known already."""

    placement: Placement
    is_new: bool


@transaction.atomic
def register(*, tier: StorageTier, told: Mapping[str, Any], actor: str) -> Registered:
    """Record one copy with its shards. Raises InvalidInput with a pointer into `told`, and Conflict where it
    contradicts what is known: another step at that path, or another run in that folder."""
    hold_tier(tier.pk)
    path = normalized_uri(told["path"], pointer="/path")
    if not contains(tier.uri, path) or path == tier.uri:
        raise InvalidInput(f"{path} is not below {tier.uri}, the place of {tier.name}.", pointer="/path")
    known = Placement.objects.select_related("checkpoint__run").filter(tier=tier, path=path).first()
    if known is not None:
        _same(known, told)
        return Registered(known, False)
    run = _run_of(tier, folder_of(path), told["run"])
    now = timezone.now()
    placement = _write(tier, path, run, told, now)
    record("placement", placement.pk, old="", new=placement.status, reason="told by the API", actor=actor)
    log_activity(
        actor=actor,
        action="checkpoint.register",
        target_kind="placement",
        target_id=placement.pk,
        cluster_id=placement.tier.cluster_id,
        detail={"path": path},
    )
    return Registered(placement, True)


def ask_for_scans(tiers: Sequence[StorageTier]) -> None:
    """Have the tiers listed soon; a demand that stands already is not put off."""
    due_at = timezone.now() + SETTLE
    ScanDemand.objects.bulk_create(
        [ScanDemand(tier=tier, due_at=due_at, asked_at=due_at) for tier in sorted(tiers, key=lambda one: one.pk)],
        update_conflicts=True,
        unique_fields=["tier"],
        update_fields=["asked_at"],
    )


def _same(known: Placement, told: Mapping[str, Any]) -> None:
    if known.checkpoint.step != told["step"]:
        raise Conflict(f"{known.path} is known as step {known.checkpoint.step}.")
    if known.checkpoint.run.name != told["run"]:
        raise Conflict(f"{known.path} is known as a checkpoint of {known.checkpoint.run.name}.")


def _run_of(tier: StorageTier, folder: str, name: str) -> TrainingRun:
    """The run of this name; on one tier a run has one folder, and a folder one run."""
    there = RunFolder.objects.select_related("run").filter(tier=tier, path=folder).first()
    if there is not None:
        if there.run.name != name:
            raise Conflict(f"{folder} holds the checkpoints of {there.run.name}; a folder belongs to one run.")
        return there.run
    run = get_or_create_run(cluster=tier.cluster, name=name)
    other = RunFolder.objects.filter(tier=tier, run=run).first()
    if other is not None:
        raise Conflict(f"On {tier.name} the run {name} lies in {other.path}; two folders are two runs.")
    RunFolder.objects.create(tier=tier, run=run, path=folder)
    return run


def _write(tier: StorageTier, path: str, run: TrainingRun, told: Mapping[str, Any], now: datetime) -> Placement:
    shards = told["shards"]
    total_bytes = sum(shard["size_bytes"] for shard in shards)
    shape = {"format": told["format"], "world_size": told["world_size"], "total_bytes": total_bytes}
    checkpoint, _is_new = Checkpoint.objects.get_or_create(
        run=run, step=told["step"], defaults={**shape, "saved_at": told["saved_at"], "created_at": now}
    )
    placement = Placement.objects.create(
        checkpoint=checkpoint,
        tier=tier,
        path=path,
        **shape,
        not_resumable_reasons=[UNSEEN],
        shard_count=len(shards),
        first_seen_at=now,
        last_seen_at=now,
    )
    upsert_shards(
        (placement.pk, shard["path"], shard["size_bytes"], None, shard["rank"], shard["role"], None) for shard in shards
    )
    return placement
