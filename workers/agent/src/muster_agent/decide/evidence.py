"""From what lies on disk, and evidence about it, to candidates.

The disk says what exists; a manifest or the server only add trust, and only where they speak of these very files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from muster_agent.decide.model import Candidate
from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.checkpoint import files_of
from muster_agent.formats.fingerprint import fingerprint
from muster_agent.manifest.compare import matches
from muster_agent.manifest.model import Manifest
from muster_agent.protocol.trust import Trust


class ServerEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the control plane knows of one placement; it counts only for files with this fingerprint."""

    path: str
    fingerprint: str
    trust: str
    manifest_id: str | None = None
    as_of: str | None = None
    damage: tuple[str, ...] = ()
    tier: str | None = None
    tier_order: int = 0


def from_disk(shard_map: ShardMap, now_unix_seconds: float) -> Candidate:
    """What the disk alone proves: `complete` where every promised shard is there with the right size, as of now."""
    mtime_ns = shard_map.newest_mtime_ns
    return Candidate(
        path=shard_map.path,
        step=shard_map.step,
        format=shard_map.format,
        status=shard_map.status.value,
        resumable=shard_map.resumable,
        not_resumable_reasons=shard_map.not_resumable_reasons,
        world_size=shard_map.world_size,
        dp=shard_map.dp,
        trust=Trust.COMPLETE if shard_map.status is Status.COMPLETE else Trust.LISTED,
        as_of=datetime.fromtimestamp(now_unix_seconds, UTC).isoformat(timespec="seconds"),
        age_seconds=None if mtime_ns is None else max(0.0, now_unix_seconds - mtime_ns / 1e9),
    )


def with_manifest(candidate: Candidate, shard_map: ShardMap, manifest: Manifest) -> Candidate:
    """`sealed` where the manifest lists files of the sizes and times that lie there; unchanged where it does not."""
    same, _ = matches(manifest, files_of(shard_map))
    if not same or not _may_rise(candidate, Trust.SEALED):
        return candidate
    return msgspec.structs.replace(candidate, trust=Trust.SEALED, as_of=manifest.sealed_at, source="disk+manifest")


def with_server(candidate: Candidate, shard_map: ShardMap, evidence: Sequence[ServerEvidence]) -> Candidate:
    """The candidate with what the server knows of these very files: its trust, damage that audits found, its tier."""
    own = [one for one in evidence if one.path == candidate.path]
    if not own:
        return candidate
    mark = fingerprint(files_of(shard_map))
    for one in own:
        if one.fingerprint == mark:
            candidate = _with_one(candidate, one)
    return candidate


def _with_one(candidate: Candidate, one: ServerEvidence) -> Candidate:
    candidate = msgspec.structs.replace(
        candidate,
        damage=(*candidate.damage, *one.damage),
        tier=one.tier,
        tier_order=one.tier_order,
        source="disk+server",
    )
    trust = _trust(one.trust)
    if trust is None or not _may_rise(candidate, trust):
        return candidate
    return msgspec.structs.replace(candidate, trust=trust, as_of=one.as_of)


def _may_rise(candidate: Candidate, trust: Trust) -> bool:
    """Evidence never makes more of a checkpoint that the disk shows not to be complete."""
    return candidate.status == Status.COMPLETE.value and trust.rung > candidate.trust.rung


def _trust(word: str) -> Trust | None:
    """None for a word of a newer server."""
    return Trust(word) if word in set(Trust) else None


def candidates_of(
    shard_maps: Iterable[ShardMap],
    now_unix_seconds: float,
    manifests: dict[str, Manifest],
    evidence: Sequence[ServerEvidence],
) -> list[Candidate]:
    """One candidate per checkpoint on disk, with the trust that its manifest and the server add."""
    found = []
    for shard_map in shard_maps:
        candidate = from_disk(shard_map, now_unix_seconds)
        if shard_map.path in manifests:
            candidate = with_manifest(candidate, shard_map, manifests[shard_map.path])
        found.append(with_server(candidate, shard_map, evidence))
    return found
