"""Verifying: the bytes are read again and compared with a manifest, all of them or a sample of the chunks."""

from __future__ import annotations

import time
from collections.abc import Sequence

from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.fingerprint import fingerprint
from muster_agent.formats.object_store import ObjectStore
from muster_agent.jobs.checkpoint_place import StatedShard, place_at
from muster_agent.jobs.chunks import (
    ChunkDigester,
    extents_of,
    name_damaged_tensors,
    observe,
    read_shards,
    tell_rewrites,
)
from muster_agent.jobs.control import JobControl
from muster_agent.manifest.beside import SEAL_AGAIN
from muster_agent.manifest.check import why_invalid
from muster_agent.manifest.compare import compare, verdict
from muster_agent.manifest.model import Manifest
from muster_agent.manifest.sampling import sample_chunks
from muster_agent.protocol.wire import VerifyBody
from muster_agent.reload.plan import Extent


def verify(
    path: str,
    manifest: Manifest,
    *,
    sample_ratio: float = 1.0,
    seed: int = 0,
    control: JobControl | None = None,
    threads: int | None = None,
    store: ObjectStore | None = None,
) -> VerifyBody:
    """Compare a checkpoint with its manifest. Sizes of all shards are always compared; with `sample_ratio` below 1 only
    that share of the chunks is read, chosen by `seed`. Reads go around the page cache where the file system allows it,
    so that they prove what the storage holds. All damage is named, not only the first. Other bytes in a file that was
    written since it was sealed are no proof of damage: `changed_since_sealing`, and `verified` None.

    `store` is the client of a path in a bucket. Raises CheckpointNotFound, RootUnreadable, Cancelled, and ValueError
    for a ratio outside (0, 1].
    """
    began = time.monotonic()
    place = place_at(path, store)
    place.require()
    control = control or JobControl()
    fault = why_invalid(manifest)
    if fault is not None:
        return _unusable(fault, began)
    shards = place.stat_all([shard.path for shard in manifest.shards])
    whole = extents_of(shards, manifest)
    extents = whole if sample_ratio == 1 else _sampled(whole, manifest.chunk_bytes, sample_ratio, seed)
    digester = ChunkDigester(len(shards), manifest.chunk_bytes)
    totals = read_shards(
        extents,
        shards,
        digester,
        control,
        phase="verify",
        chunk_bytes=manifest.chunk_bytes,
        threads=threads,
        place=place,
    )
    observed = {
        stated.path: observe(stated, number, digester.digests[number], totals) for number, stated in enumerate(shards)
    }
    differences = tell_rewrites(place, manifest, shards, observed, compare(manifest, observed))
    findings = name_damaged_tensors(place, manifest, differences)
    return VerifyBody(
        verified=verdict(findings),
        checked_bytes=totals.read_bytes,
        checked_chunks=sum(len(digests) for digests in digester.digests),
        total_chunks=sum(-(-shard.size_bytes // manifest.chunk_bytes) for shard in manifest.shards),
        seconds=time.monotonic() - began,
        fingerprint=fingerprint_of(shards),
        findings=findings,
    )


def fingerprint_of(shards: Sequence[StatedShard]) -> str:
    """The fingerprint of those shards that are there, as they lay when they were looked at."""
    return fingerprint(
        (shard.path, shard.size_bytes, shard.mtime_ns) for shard in shards if shard.size_bytes is not None
    )


def _sampled(whole: Sequence[Extent], chunk_bytes: int, sample_ratio: float, seed: int) -> list[Extent]:
    """Every chosen chunk as an extent of its own."""
    chunks = [
        Extent(extent.shard, offset, min(chunk_bytes, extent.length_bytes - offset))
        for extent in whole
        for offset in range(0, extent.length_bytes, chunk_bytes)
    ]
    return [chunks[index] for index in sample_chunks(len(chunks), sample_ratio, seed)]


def _unusable(fault: str, began: float) -> VerifyBody:
    found: Finding = finding(
        "metadata_unreadable",
        path="manifest",
        detail=f"the manifest is not usable: {fault}",
        severity=Severity.WARNING,
        cure=SEAL_AGAIN,
    )
    seconds = time.monotonic() - began
    return VerifyBody(
        verified=None,
        checked_bytes=0,
        checked_chunks=0,
        total_chunks=0,
        seconds=seconds,
        fingerprint="",
        findings=(found,),
    )
