"""A look at a checkpoint that reads no data: its metadata, and which files it has with which sizes."""

from __future__ import annotations

import time

from muster_agent.formats.base import Finding, Severity, ShardMap, Status
from muster_agent.formats.codes import finding
from muster_agent.formats.fingerprint import fingerprint
from muster_agent.formats.object_store import ObjectStore
from muster_agent.jobs.checkpoint_place import CheckpointPlace, place_at
from muster_agent.jobs.chunks import observe, tell_rewrites
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.verify import chunk_count, unusable
from muster_agent.manifest.check import why_invalid
from muster_agent.manifest.compare import compare
from muster_agent.manifest.model import Manifest
from muster_agent.manifest.rewrites import CHANGED
from muster_agent.protocol.wire import VerifyBody
from muster_agent.reload.totals import ReadTotals


def look(
    path: str, manifest: Manifest | None, *, control: JobControl | None = None, store: ObjectStore | None = None
) -> VerifyBody:
    """Whether every file that the metadata promises is there with its size and, where there is a manifest, every sealed
    one with the sealed size. `verified` says this much and no more: `checked_bytes` is 0. Raises as `verify` does."""
    began = time.monotonic()
    place = place_at(path, store)
    place.require()
    (control or JobControl()).check()
    fault = why_invalid(manifest) if manifest is not None else None
    if fault is not None:
        return unusable(fault)
    shard_map = place.read()
    findings = _without_repeats([*_against(manifest, place), *shard_map.findings])
    verified = _verdict(shard_map, findings)
    if verified is None and not findings:
        findings = [finding("metadata_missing", path=".", detail=f"{shard_map.path} is {shard_map.status.value}")]
    present = [one for one in shard_map.shards if one.size_bytes is not None and one.mtime_ns is not None]
    return VerifyBody(
        verified=verified,
        checked_bytes=0,
        checked_chunks=0,
        total_chunks=chunk_count(manifest) if manifest is not None else 0,
        seconds=time.monotonic() - began,
        fingerprint=fingerprint((one.path, one.size_bytes or 0, one.mtime_ns or 0) for one in present),
        findings=tuple(findings),
    )


def _verdict(shard_map: ShardMap, findings: list[Finding]) -> bool | None:
    """A warning about what is whole (no optimizer state, say) is no reason to doubt it."""
    if any(found.severity is Severity.DAMAGE for found in findings):
        return False
    is_other = any(found.code == CHANGED for found in findings)
    return True if shard_map.status is Status.COMPLETE and not is_other else None


def _against(manifest: Manifest | None, place: CheckpointPlace) -> tuple[Finding, ...]:
    if manifest is None:
        return ()
    shards = place.stat_all([shard.path for shard in manifest.shards])
    observed = {one.path: observe(one, number, {}, ReadTotals()) for number, one in enumerate(shards)}
    return tell_rewrites(place, manifest, shards, observed, compare(manifest, observed))


def _without_repeats(findings: list[Finding]) -> list[Finding]:
    """The manifest and the metadata may both miss one file."""
    seen: dict[tuple[str, str], Finding] = {}
    for found in findings:
        seen.setdefault((found.code, found.path), found)
    return list(seen.values())
