"""Checking a checkpoint that was never sealed: its bytes are held against the check sums that its format carries."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.own_checks import SumChecker, recorded_sums
from muster_agent.formats.recorded import RecordedSum
from muster_agent.jobs.checkpoint_place import place_at
from muster_agent.jobs.chunks import ReadingPass, extents_of, read_failures, read_shards
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.seal import SealConsumer
from muster_agent.manifest.model import CHUNK_BYTES


class OwnSums(msgspec.Struct, frozen=True, kw_only=True):
    """`checked_bytes` of `total_bytes` carry check sums; `findings` are those ranges whose bytes differ from them, and
    files that could not be read or are damaged by their own metadata."""

    checked_bytes: int
    total_bytes: int
    seconds: float
    findings: tuple[Finding, ...]


def check_own_sums(
    path: str, *, control: JobControl | None = None, threads: int | None = None, store: ObjectStore | None = None
) -> OwnSums:
    """Read every file of the checkpoint that has check sums, of its format or of the storage, around the page cache
    where that is allowed.
    `store` is the client of a path in a bucket. Raises CheckpointNotFound, RootUnreadable and Cancelled."""
    began = time.monotonic()
    place = place_at(path, store)
    place.require()
    shard_map = place.read()
    present = [shard for shard in shard_map.shards if shard.size_bytes is not None]
    stated = {one.path: one for one in place.stat_all([shard.path for shard in present])}
    sums: dict[str, Sequence[RecordedSum]] = {**recorded_sums(shard_map, lambda name: place.open_file(stated[name]))}
    for name, stored in place.stored_sums(list(stated.values()), or_etags=True).items():
        if stored and not (stored[0].part_bytes and sums.get(name)):  # an ETag only ever proves that bytes are right
            sums[name] = stored
    shards = [stated[shard.path] for shard in present if sums.get(shard.path)]
    checkers = [SumChecker(shard.path, sums[shard.path]) for shard in shards]
    consumer = SealConsumer([[] for _ in shards], checkers)
    totals = read_shards(
        extents_of(shards, None),
        shards,
        consumer,
        control or JobControl(),
        ReadingPass("verify", CHUNK_BYTES, threads),
        place=place,
    )
    seen = [found for found in shard_map.findings if found.severity is Severity.DAMAGE]
    differences = [found for checker in checkers for found in checker.findings]
    return OwnSums(
        checked_bytes=sum(checker.checked_bytes for checker in checkers),
        total_bytes=sum(shard.size_bytes or 0 for shard in present),
        seconds=time.monotonic() - began,
        findings=(*seen, *read_failures(shards, totals), *differences),
    )
