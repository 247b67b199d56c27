"""Which shards of a checkpoint a reload reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from muster_agent.formats.base import Finding, Severity, TensorRange
from muster_agent.jobs.checkpoint_place import CheckpointPlace
from muster_agent.manifest.model import Manifest


class ShardsNotFound(Exception):
    """None of the shards or ranks that were asked for belong to the checkpoint; the message names what there is."""


class Selection(NamedTuple):
    """Relative paths, the damage that the metadata shows in them, and (where asked for) the tensors in them. `by_rank`:
    of the ranks that were asked for, the paths that each reads; several may read the same."""

    shards: list[str]
    damage: tuple[Finding, ...] = ()
    tensors: tuple[TensorRange, ...] = ()
    by_rank: Mapping[int, frozenset[str]] = {}


def select(
    place: CheckpointPlace, shards: Sequence[str], ranks: Sequence[int], *, with_tensors: bool = False
) -> Selection:
    """The named shards as they are named (a restart does not read other ranks' files to find its own); otherwise what
    the checkpoint's metadata says belongs to it, or what the given ranks read: theirs, and those of no rank. Raises
    ShardsNotFound."""
    if shards and not with_tensors:
        return Selection(list(dict.fromkeys(shards)))
    shard_map = place.read(with_tensors=with_tensors)
    damage = tuple(found for found in shard_map.findings if found.severity == Severity.DAMAGE)
    if shards:
        chosen = list(dict.fromkeys(shards))
    elif ranks:
        if not any(shard.rank in ranks for shard in shard_map.shards):
            known = sorted({shard.rank for shard in shard_map.shards if shard.rank is not None})
            told = f"it has ranks {known[0]} to {known[-1]}" if known else "its format does not name ranks"
            raise ShardsNotFound(f"no shard of {place.path} belongs to rank {', '.join(map(str, ranks))}: {told}")
        # Files of no rank, such as a model that every rank loads beside its own optimizer, are read by each.
        chosen = [shard.path for shard in shard_map.shards if shard.rank is None or shard.rank in ranks]
    elif not shard_map.shards:
        told = damage[0].detail if damage else f"its status is {shard_map.status.value}"
        raise ShardsNotFound(f"nothing at {place.path} can be read as a checkpoint: {told}")
    else:
        return Selection([shard.path for shard in shard_map.shards], damage, shard_map.tensors)
    taken = set(chosen)
    tensors = tuple(tensor for tensor in shard_map.tensors if tensor.shard in taken)
    by_rank = {rank: frozenset(one.path for one in shard_map.shards if one.rank in (None, rank)) for rank in ranks}
    return Selection(chosen, tuple(found for found in damage if found.path in taken), tensors, by_rank)


def require_shards(place: CheckpointPlace, wanted: Sequence[str], manifest: Manifest | None) -> None:
    """Raises ShardsNotFound where a shard that was asked for by name is neither there, nor sealed, nor promised by the
    checkpoint's metadata: it is a slip of the pen, not a loss. A person's request is checked so; an agent's names come
    from an inventory, and for them a file that is gone is damage."""
    sealed = {shard.path for shard in manifest.shards} if manifest else set()
    gone = [one.path for one in place.stat_all(wanted) if one.size_bytes is None and one.path not in sealed]
    if not gone:
        return
    known = [shard.path for shard in place.read(with_tensors=False).shards]
    unknown = [name for name in gone if name not in known]
    if unknown:
        shown = ", ".join(known[:_SHOWN_SHARDS]) + (", ..." if len(known) > _SHOWN_SHARDS else "")
        raise ShardsNotFound(f"{place.path} has no shard {unknown[0]!r}; it has {shown or 'none'}")


_SHOWN_SHARDS = 4
