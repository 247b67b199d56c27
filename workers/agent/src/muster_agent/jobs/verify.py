"""Verifying: the bytes are read again and compared with a manifest, all of them or a sample of the chunks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import xxhash

from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.fingerprint import fingerprint
from muster_agent.formats.object_store import ObjectStore
from muster_agent.jobs.checkpoint_place import CheckpointPlace, StatedShard, place_at
from muster_agent.jobs.chunks import (
    ChunkDigester,
    ReadingPass,
    extents_of,
    name_damaged_tensors,
    observe,
    read_shards,
    tell_rewrites,
)
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.manifest.beside import SEAL_AGAIN
from muster_agent.manifest.check import why_invalid
from muster_agent.manifest.compare import DIGEST_CHARACTERS as _HEX
from muster_agent.manifest.compare import ObservedShard, compare, verdict
from muster_agent.manifest.model import Manifest
from muster_agent.manifest.sampling import EVERYTHING, Sample, sample_chunks, sample_size
from muster_agent.protocol.wire import VerifyBody
from muster_agent.reload.plan import Extent
from muster_agent.reload.totals import ReadTotals
from muster_agent.storage.throttle import Throttle


class SeenShard(msgspec.Struct, kw_only=True):
    """One shard of a verification that is under way: as it lay when that began, and what was read of it since."""

    path: str
    location: str
    size_bytes: int | None
    mtime_ns: int
    etag: str = ""
    digests: dict[int, str] = msgspec.field(default_factory=dict)
    """Of the chunks that were read; empty where it is the sealed one, so that little is to be kept."""
    observed: ObservedShard | None = None
    """Without the digests: set where it could not be looked at to begin with, and by a pass that ended."""

    @property
    def stated(self) -> StatedShard:
        return StatedShard(self.path, self.location, self.size_bytes, self.mtime_ns, etag=self.etag)


class VerifyCursor(msgspec.Struct, kw_only=True):
    """How far a verification is; enough to go on in another process or on another host."""

    shards: list[SeenShard] = msgspec.field(default_factory=list)
    is_begun: bool = False
    read_bytes: int = 0
    seconds: float = 0.0


class Verification:
    """One verification, in one go or in several: `read` may be called again after it was interrupted, and reads only
    what is left. Raises ValueError for a ratio outside (0, 1]."""

    def __init__(
        self,
        place: CheckpointPlace,
        manifest: Manifest,
        cursor: VerifyCursor,
        *,
        sample: Sample = EVERYTHING,
        max_bytes_per_second: int | None = None,
        threads: int | None = None,
        through_cache: bool = False,
    ) -> None:
        sample_size(1, sample.ratio)
        self._place, self._manifest, self.cursor, self._sample = place, manifest, cursor, sample
        self._sealed = {shard.path: shard.chunks_xxh3_64 for shard in manifest.shards}
        self._throttle, self._threads = Throttle(max_bytes_per_second), threads
        self._through_cache = through_cache

    def read(self, control: JobControl) -> None:
        """Read what is left. Raises Cancelled, with what was read until then in the cursor."""
        began, cursor = time.monotonic(), self.cursor
        if not cursor.is_begun:
            stated = self._place.stat_all([shard.path for shard in self._manifest.shards])
            cursor.shards = [_seen(one) for one in stated]
            cursor.is_begun = True
        try:
            self._read(control)
        finally:
            cursor.seconds += time.monotonic() - began

    def _read(self, control: JobControl) -> None:
        shards = [one.stated for one in self.cursor.shards]
        chunk_bytes = self._manifest.chunk_bytes
        digester = ChunkDigester(len(shards), chunk_bytes)
        try:
            totals = read_shards(
                list(self._left(shards)),
                shards,
                digester,
                control,
                ReadingPass("verify", chunk_bytes, self._threads, self._through_cache, self._throttle),
                place=self._place,
            )
        except Cancelled:
            self._keep(digester, None)
            raise
        self._keep(digester, totals)

    def _keep(self, digester: ChunkDigester, totals: ReadTotals | None) -> None:
        chunk_bytes = self._manifest.chunk_bytes
        for number, (shard, digests) in enumerate(zip(self.cursor.shards, digester.digests, strict=True)):
            sealed = self._sealed[shard.path]
            shard.digests.update((at, "" if sealed.startswith(one, at * _HEX) else one) for at, one in digests.items())
            if totals is not None:
                shard.observed = shard.observed or observe(shard.stated, number, {}, totals)
            else:
                size_bytes = shard.size_bytes or 0
                self.cursor.read_bytes += sum(min(chunk_bytes, size_bytes - at * chunk_bytes) for at in digests)
        self.cursor.read_bytes += totals.read_bytes if totals is not None else 0

    def _left(self, shards: Sequence[StatedShard]) -> Iterator[Extent]:
        """What is chosen and was not read yet, chunk by chunk where it is not simply everything."""
        whole, chunk_bytes = extents_of(shards, self._manifest), self._manifest.chunk_bytes
        seen = self.cursor.shards
        if self._sample == EVERYTHING and not any(one.digests for one in seen):
            yield from whole
            return
        chunks = [
            Extent(extent.shard, offset, min(chunk_bytes, extent.length_bytes - offset))
            for extent in whole
            for offset in range(0, extent.length_bytes, chunk_bytes)
        ]
        for index in sample_chunks(len(chunks), *self._sample):
            extent = chunks[index]
            if extent.offset_bytes // chunk_bytes not in seen[extent.shard].digests:
                yield extent

    def _observed(self, shard: SeenShard) -> ObservedShard:
        sealed = self._sealed[shard.path]
        chunks = {at: one or sealed[at * _HEX : (at + 1) * _HEX] for at, one in shard.digests.items()}
        before = shard.observed or ObservedShard(size_bytes=shard.size_bytes)
        return msgspec.structs.replace(before, chunks=chunks)

    def result(self) -> VerifyBody:
        """What was found, once everything was read."""
        manifest, seen = self._manifest, self.cursor.shards
        shards = [one.stated for one in seen]
        observed = {one.path: self._observed(one) for one in seen}
        differences = tell_rewrites(self._place, manifest, shards, observed, compare(manifest, observed))
        findings = name_damaged_tensors(self._place, manifest, differences)
        return VerifyBody(
            verified=verdict(findings),
            checked_bytes=self.cursor.read_bytes,
            checked_chunks=sum(len(one.digests) for one in seen),
            total_chunks=chunk_count(manifest),
            seconds=self.cursor.seconds,
            fingerprint=fingerprint_of(shards),
            findings=findings,
            read_xxh3_128=_digest_of(observed),
        )


def verify(
    path: str,
    manifest: Manifest,
    *,
    sample: Sample = EVERYTHING,
    max_bytes_per_second: int | None = None,
    control: JobControl | None = None,
    threads: int | None = None,
    through_cache: bool = False,
    store: ObjectStore | None = None,
) -> VerifyBody:
    """Compare a checkpoint with its manifest. Sizes of all shards are always compared; with a `sample` only
    that share of the chunks is read. Reads go around the page cache where the file system
    allows it, so that they prove what the storage holds; with `through_cache` they prove what this node would load, and
    damage on the storage below what its memory holds stays unseen. All damage is named, not only the first. Other bytes
    in a file that was written since it was sealed are no proof of damage: `changed_since_sealing`, and `verified` None.

    `store` is the client of a path in a bucket. Raises CheckpointNotFound, RootUnreadable, Cancelled, and ValueError
    for a ratio outside (0, 1].
    """
    place = place_at(path, store)
    place.require()
    fault = why_invalid(manifest)
    if fault is not None:
        return unusable(fault)
    work = Verification(
        place,
        manifest,
        VerifyCursor(),
        sample=sample,
        max_bytes_per_second=max_bytes_per_second,
        threads=threads,
        through_cache=through_cache,
    )
    work.read(control or JobControl())
    return work.result()


def fingerprint_of(shards: Sequence[StatedShard]) -> str:
    """The fingerprint of those shards that are there, as they lay when they were looked at."""
    return fingerprint(
        (shard.path, shard.size_bytes, shard.mtime_ns) for shard in shards if shard.size_bytes is not None
    )


def chunk_count(manifest: Manifest) -> int:
    return sum(-(-shard.size_bytes // manifest.chunk_bytes) for shard in manifest.shards)


def unusable(fault: str) -> VerifyBody:
    """The answer where the manifest cannot be relied on: nothing was read."""
    found: Finding = finding(
        "metadata_unreadable",
        path="manifest",
        detail=f"the manifest is not usable: {fault}",
        severity=Severity.WARNING,
        cure=SEAL_AGAIN,
    )
    return VerifyBody(
        verified=None,
        checked_bytes=0,
        checked_chunks=0,
        total_chunks=0,
        seconds=0.0,
        fingerprint="",
        findings=(found,),
    )


def _seen(stated: StatedShard) -> SeenShard:
    return SeenShard(
        path=stated.path,
        location=stated.location,
        size_bytes=stated.size_bytes,
        mtime_ns=stated.mtime_ns,
        etag=stated.etag,
        observed=None if stated.error is None else observe(stated, 0, {}, ReadTotals()),
    )


def _digest_of(observed: Mapping[str, ObservedShard]) -> str:
    hasher = xxhash.xxh3_128()
    for path in sorted(observed):
        chunks = observed[path].chunks
        hasher.update("".join(chunks[index] for index in sorted(chunks)).encode("ascii"))
    return hasher.hexdigest()
