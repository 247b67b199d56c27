"""What the data plane is asked for, from the rows; for a removal, once no rule of the rows speaks against it."""

from __future__ import annotations

from typing import Any

import msgspec
from muster_agent.formats.base import Role
from muster_agent.jobs.copy_removal import Stays
from muster_agent.jobs.copy_retire import known_files
from muster_agent.protocol.copies import ColderCopy, CopyCursor, CopyOrder, Known, RemovalOrder

from apps.checkpoints.manifests import load_manifest
from apps.checkpoints.models import Placement, Shard
from apps.transfers.limits import allowed_rate
from apps.transfers.models import Transfer
from apps.transfers.retiring import ask_rules


def order_of(transfer: Transfer) -> CopyOrder:
    """The copy that a transfer makes."""
    assert transfer.target_tier is not None
    source = transfer.source
    return CopyOrder(
        source=source.path,
        source_root=source.tier.uri,
        target=transfer.target_path,
        target_root=transfer.target_tier.uri,
        source_store=source.tier.store,
        target_store=transfer.target_tier.store,
        tag=transfer.pk,
        manifest=None if source.manifest is None else load_manifest(source.manifest),
        leave_out_roles=(Role.OPTIMIZER.value,) if transfer.without_optimizer else (),
        max_bytes_per_second=allowed_rate(transfer),
        proof=transfer.proof,
    )


def removal_of(transfer: Transfer, cursor: CopyCursor) -> RemovalOrder:
    """The removal of a transfer's source. Raises Stays where a rule speaks against it; where an earlier attempt may
    have begun it already, the order says so instead, and only what is under way is finished."""
    source = transfer.source
    order = RemovalOrder(
        source=source.path,
        source_root=source.tier.uri,
        source_store=source.tier.store,
        tag=transfer.pk,
        source_mark=tuple(cursor.source_mark),
        lacks_nothing=transfer.kind == Transfer.Kind.RETIRE,
        **_files(source, cursor),
    )
    source.refresh_from_db(fields=["leaving"])
    was_begun = source.leaving == transfer.pk
    try:
        colder = ask_rules(transfer)
    except Stays as why:
        if not was_begun:
            raise
        return msgspec.structs.replace(order, stays=str(why))
    if transfer.kind == Transfer.Kind.EXPIRE:
        return order
    return msgspec.structs.replace(order, colder=tuple(map(_colder, colder)))


def _files(source: Placement, cursor: CopyCursor) -> dict[str, Any]:
    """The files that may go: those that were copied, or all, where they are those that the evidence speaks of."""
    if cursor.is_surveyed:
        return {"known": tuple(known_files([*cursor.files, *cursor.left_out]))}
    recorded = tuple(path for path, _size, _mtime in _shards(source))
    return {"recorded": recorded, "fingerprint": source.fingerprint}


def _colder(placement: Placement) -> ColderCopy:
    tier = placement.tier
    return ColderCopy(tier=tier.name, path=placement.path, root=tier.uri, store=tier.store, files=_shards(placement))


def _shards(placement: Placement) -> tuple[Known, ...]:
    rows = Shard.objects.filter(placement=placement).values_list("path", "size_bytes", "mtime_ns")
    return tuple((path, size, mtime) for path, size, mtime in rows if size is not None and mtime is not None)
