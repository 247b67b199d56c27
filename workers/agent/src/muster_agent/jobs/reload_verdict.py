"""What one pass over the bytes proved, and what of it was not read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muster_agent.formats.base import Finding
from muster_agent.jobs.checkpoint_place import CheckpointPlace, StatedShard
from muster_agent.jobs.chunks import ChunkDigester, observe, read_failures, tell_rewrites
from muster_agent.jobs.selection import Selection
from muster_agent.jobs.transports import PathTaken, Transport
from muster_agent.manifest.compare import ObservedShard, compare, verdict
from muster_agent.manifest.model import Manifest
from muster_agent.protocol.wire import ReloadParams
from muster_agent.reload.totals import ReadTotals


@dataclass(frozen=True, slots=True)
class ReadPass:
    """What one pass over the bytes gave."""

    shards: Sequence[StatedShard]
    selection: Selection
    """Its damage, by the checkpoint's own metadata, counts where there is no manifest to compare with."""
    digester: ChunkDigester | None
    totals: ReadTotals
    taken: PathTaken
    resolved_at: float
    allocated_at: float
    planned_bytes: Mapping[int, int]
    """By shard number."""
    stopped: bool
    transport: Transport


def judge(
    read: ReadPass, place: CheckpointPlace, manifest: Manifest | None, params: ReloadParams
) -> tuple[bool | None, tuple[Finding, ...]]:
    """(whether the bytes are those that were sealed, None where that is not known; what was found)."""
    if manifest is None or read.digester is None:
        if read.stopped:
            return None, ()
        failures = read_failures(read.shards, read.totals)
        known = {(found.code, found.path) for found in failures}
        return None, (*failures, *(f for f in read.selection.damage if (f.code, f.path) not in known))
    sealed = {shard.path for shard in manifest.shards}
    observed = {
        stated.path: observe(stated, number, read.digester.digests[number], read.totals)
        for number, stated in enumerate(read.shards)
    }
    if read.stopped:
        return _judge_stopped(compare(manifest, observed))
    observed |= {path: ObservedShard(size_bytes=None) for path in _sealed_but_not_selected(manifest, params, observed)}
    findings = tell_rewrites(place, manifest, read.shards, observed, compare(manifest, observed))
    failures = [found for found in read_failures(read.shards, read.totals) if found.path not in sealed]
    outcome = verdict((*findings, *failures))
    if outcome is True and any(stated.path not in sealed for stated in read.shards):
        outcome = None  # bytes that nothing was sealed about are not proven by those that were
    return outcome, (*findings, *failures)


def _sealed_but_not_selected(
    manifest: Manifest, params: ReloadParams, observed: Mapping[str, ObservedShard]
) -> list[str]:
    """Sealed shards that the checkpoint's own metadata no longer names, where the whole of it was to be read."""
    if params.shards or params.ranks:
        return []
    return [shard.path for shard in manifest.shards if shard.path not in observed]


def _judge_stopped(found: Sequence[Finding]) -> tuple[bool | None, tuple[Finding, ...]]:
    """Of what was read before the stop, only bytes that differ are known; the rest was not looked at."""
    differing = tuple(one for one in found if one.code == "digest_mismatch")
    return (False if differing else None), differing


def unread_evidence(read: ReadPass) -> dict[str, Any]:
    """How much was to be read and what of it was not: `stopped` where the pass was told to end, `unread` where shards
    did not give all; nothing where everything came."""
    unread = [
        {"path": read.shards[number].path, "read_bytes": read.totals.read_by_shard.get(number, 0), "bytes": planned}
        for number, planned in read.planned_bytes.items()
        if read.totals.read_by_shard.get(number, 0) < planned
    ]
    if not unread and not read.stopped:
        return {}
    told = {"planned_bytes": sum(read.planned_bytes.values()), "not_read": unread}
    return {"stopped" if read.stopped else "unread": told}


def ranks_evidence(read: ReadPass) -> dict[str, Any]:
    """Where several ranks were read for at once: how many bytes that gave each of them. What they share was read once,
    and `delivered_bytes` counts it once for each."""
    if len(read.selection.by_rank) < 2:
        return {}
    came = {stated.path: read.totals.read_by_shard.get(number, 0) for number, stated in enumerate(read.shards)}
    by_rank = {
        str(rank): sum(came[path] for path in paths & came.keys()) for rank, paths in read.selection.by_rank.items()
    }
    delivered_bytes = sum(by_rank.values())
    return {"ranks": {"unique_bytes": read.totals.read_bytes, "delivered_bytes": delivered_bytes, "by_rank": by_rank}}
