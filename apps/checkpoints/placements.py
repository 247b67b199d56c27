"""Copies of checkpoints: whose shards are whose, and who needs the copy."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.utils import timezone
from muster_agent.formats.base import Role

from apps.checkpoints.models import Placement, PlacementHold, Shard
from apps.core.errors import Conflict


def shards_by_rank(placement: Placement) -> dict[int | None, list[Shard]]:
    """What each rank reads: its own shards and the metadata, which every rank needs. Only what lies on disk.

    `{None: all}` where the names and the metadata tell no rank; `split_evenly` deals those out.
    """
    shards = list(placement.shards.filter(size_bytes__isnull=False).order_by("path"))
    ranks = sorted({shard.rank for shard in shards if shard.rank is not None})
    if not ranks:
        return {None: shards}
    shared = [shard for shard in shards if shard.rank is None]
    return {rank: [shard for shard in shards if shard.rank == rank] + shared for rank in ranks}


def split_evenly(shards: Sequence[Shard], parts: int) -> list[list[Shard]]:
    """`parts` lists of about the same size in bytes: the largest shard always to the lightest list. Metadata goes to
    every list, since every reader needs it; a list may hold nothing else where there are fewer shards than parts."""
    metadata = [shard for shard in shards if shard.role == Role.METADATA]
    data = [shard for shard in shards if shard.role != Role.METADATA]
    split: list[list[Shard]] = [[] for _ in range(parts)]
    loads_bytes = [0] * parts
    for shard in sorted(data, key=lambda item: (-(item.size_bytes or 0), item.path)):
        lightest = loads_bytes.index(min(loads_bytes))
        split[lightest].append(shard)
        loads_bytes[lightest] += shard.size_bytes or 0
    return [part + metadata for part in split]


@transaction.atomic
def hold(*, placement: Placement, source_kind: str, source_id: str) -> PlacementHold:
    """Say that this source needs the copy: nothing may retire it until released. Holding twice is holding once. Raises
    Conflict where it is being removed already."""
    # The update also takes the row's lock, so that of a hold and a removal at once the second sees the first.
    if Placement.objects.filter(pk=placement.pk, leaving="").update(leaving="") != 1:
        raise Conflict(f"{placement.path} is being removed; choose another copy of it.", code="leaving")
    row, _created = PlacementHold.objects.update_or_create(
        placement=placement,
        source_kind=source_kind,
        source_id=source_id,
        defaults={"released_at": None},
        create_defaults={"created_at": timezone.now()},
    )
    return row


def begin_leaving(*, placement: Placement, source_id: str) -> None:
    """Let nobody hold the copy from here on. To be called in the transaction that then looks for holds, and that is
    rolled back where it finds one. Raises Conflict where another transfer is removing it."""
    rows = Placement.objects.filter(pk=placement.pk, leaving__in=("", source_id))
    if rows.update(leaving=source_id) != 1:
        raise Conflict(f"{placement.path} is being removed by another transfer already.", code="leaving")


def end_leaving(*, placement: Placement, source_id: str) -> None:
    """It stays after all, or it is gone."""
    Placement.objects.filter(pk=placement.pk, leaving=source_id).update(leaving="")


@transaction.atomic
def release(*, placement: Placement, source_kind: str, source_id: str) -> bool:
    """The source no longer needs the copy. False when it did not hold it."""
    held = PlacementHold.objects.filter(
        placement=placement, source_kind=source_kind, source_id=source_id, released_at=None
    )
    return held.update(released_at=timezone.now()) == 1
