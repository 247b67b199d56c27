"""Sealing: every byte of a complete checkpoint is read once and its digests are recorded in a manifest."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from muster_agent.formats.base import Finding, Severity, ShardEntry, ShardMap, Status, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.own_checks import SumChecker, recorded_sums
from muster_agent.jobs.checkpoint_place import CheckpointPlace, StatedShard, place_at
from muster_agent.jobs.chunks import (
    ChunkDigester,
    ReadingPass,
    extents_of,
    read_failures,
    read_shards,
)
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.watched import watched
from muster_agent.manifest import beside
from muster_agent.manifest.compare import DIGEST_CHARACTERS, ObservedShard, compare, matches
from muster_agent.manifest.model import CHUNK_BYTES, Manifest, ShardDigest
from muster_agent.manifest.seal import ShardSealer, assemble, trainable_tensors
from muster_agent.manifest.zero_runs import zero_run_findings
from muster_agent.protocol.wire import SealBody
from muster_agent.reload.plan import Extent
from muster_agent.reload.reader import Check

_TURN_SECONDS = 0.1


class SealConsumer:
    """Chunk digests in whatever order blocks land; whole-file and tensor digests strictly in order. A reader whose
    block comes too early waits for its turn: the block before it was issued earlier, so somebody is at work on it."""

    def __init__(
        self, tensors_by_shard: Sequence[Sequence[TensorRange]], checkers: Sequence[SumChecker] | None = None
    ) -> None:
        self._checkers = checkers
        self._chunks = ChunkDigester(len(tensors_by_shard), CHUNK_BYTES)
        self.sealers = [ShardSealer(tensors) for tensors in tensors_by_shard]
        self._next_bytes = [0] * len(tensors_by_shard)
        self._turns = [threading.Condition() for _ in tensors_by_shard]

    def landed(self, extent: Extent, data: memoryview, check: Check) -> None:
        """See `reload.reader.Consumer`."""
        self._chunks.landed(extent, data, check)
        turn = self._turns[extent.shard]
        with turn:
            while self._next_bytes[extent.shard] < extent.offset_bytes:
                turn.wait(_TURN_SECONDS)
                check()
            self.sealers[extent.shard].update(data)
            if self._checkers is not None:
                self._checkers[extent.shard].update(data)
            self._pass_on(extent)

    def hashed(self, extent: Extent, digests: Sequence[int]) -> None:
        """Never called: what is sealed is read into host memory, and hashed there in order too."""

    def lost(self, extent: Extent) -> None:
        """The shard will be refused; until then its other readers must not wait for this block."""
        with self._turns[extent.shard]:
            self._pass_on(extent)

    def _pass_on(self, extent: Extent) -> None:
        end = extent.offset_bytes + extent.length_bytes
        self._next_bytes[extent.shard] = max(end, self._next_bytes[extent.shard])
        self._turns[extent.shard].notify_all()

    def digest(self, number: int, entry: ShardEntry, stated: StatedShard) -> ShardDigest:
        """The finished digests of one shard."""
        chunks = self._chunks.digests[number]
        return ShardDigest(
            path=entry.path,
            size_bytes=self.sealers[number].size_bytes,
            mtime_ns=stated.mtime_ns,
            xxh3_128=self.sealers[number].xxh3_128(),
            chunks_xxh3_64="".join(chunks[index] for index in range(len(chunks))),
            rank=entry.rank,
            role=entry.role.value,
        )


def seal(
    path: str,
    *,
    control: JobControl | None = None,
    write_beside: bool = True,
    threads: int | None = None,
    store: ObjectStore | None = None,
) -> SealBody:
    """Read and seal one checkpoint. A checkpoint that is not complete, changes while it is read, or differs from a seal
    of these very files, or from check sums that its format carries, is refused with findings (`manifest` None): sealing
    damaged bytes would bless them. Sealing unchanged bytes again gives the manifest that was there. Raises
    CheckpointNotFound, RootUnreadable, Cancelled, and OSError where the manifest cannot be written."""
    began = time.monotonic()
    place = place_at(path, store)
    place.require()
    control = control or JobControl()
    shard_map = watched(place.path, place.read, control.check)
    refusal = _refusal(shard_map)
    if refusal:
        return _refused(refusal, began)
    manifest, findings = _digest_all(place, shard_map, control, threads)
    if manifest is None:
        return _refused(findings, began)
    before = _seal_before(place)
    if before is not None:
        contradiction = _contradiction(before, manifest)
        if contradiction:
            return _refused(contradiction, began)
        if _same_files(before, manifest):
            manifest = before
    written = beside.write_beside(place.path, manifest, place.files) if write_beside else None
    seconds = time.monotonic() - began
    notes = (*shard_map.findings, *findings)
    return SealBody(manifest=manifest, manifest_path=written, seconds=seconds, findings=notes)


def _refused(findings: Sequence[Finding], began: float) -> SealBody:
    return SealBody(manifest=None, manifest_path=None, seconds=time.monotonic() - began, findings=tuple(findings))


def _refusal(shard_map: ShardMap) -> list[Finding]:
    """Why this must not be sealed; empty where it may. A seal says that these are the bytes to load, so what must not
    be loaded gets none, however whole it is."""
    is_sound = not any(found.severity is Severity.DAMAGE for found in shard_map.findings)
    if shard_map.status == Status.COMPLETE and is_sound and any(one.size_bytes is not None for one in shard_map.shards):
        return []
    found = list(shard_map.findings)
    if not found:
        detail = f"{shard_map.path} is {shard_map.status.value}, and only a complete checkpoint can be sealed"
        code = "format_unknown" if shard_map.status is Status.UNKNOWN else "metadata_missing"
        found.append(finding(code, path=".", detail=detail))
    return found


def _digest_all(
    place: CheckpointPlace, shard_map: ShardMap, control: JobControl, threads: int | None
) -> tuple[Manifest | None, list[Finding]]:
    """The manifest and what its bytes are noted for, or None and why there is none."""
    entries = [shard for shard in shard_map.shards if shard.size_bytes is not None]
    shards = place.stat_all([entry.path for entry in entries])
    tensors = trainable_tensors(shard_map)
    checkers = watched(place.path, lambda: _checkers(place, shard_map, shards), control.check)
    consumer = SealConsumer([tensors.get(entry.path, []) for entry in entries], checkers)
    extents = extents_of(shards, None)
    totals = read_shards(extents, shards, consumer, control, ReadingPass("seal", CHUNK_BYTES, threads), place=place)
    failures = read_failures(shards, totals) or _changes(place, shards)
    failures = failures or [found for checker in checkers for found in checker.findings]
    if failures:
        return None, failures
    digests = [consumer.digest(number, entry, shards[number]) for number, entry in enumerate(entries)]
    notes = [found for one in digests for found in zero_run_findings(one, tensors.get(one.path, []), CHUNK_BYTES)]
    sealed_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    tensor_digests = [digest for sealer in consumer.sealers for digest in sealer.tensors]
    return assemble(shard_map, digests, tensor_digests, sealed_at=sealed_at), notes


def _checkers(place: CheckpointPlace, shard_map: ShardMap, shards: Sequence[StatedShard]) -> list[SumChecker]:
    """What the format, or the storage, recorded of each shard: sealing bytes that differ would bless damage."""
    by_path = {stated.path: stated for stated in shards}
    sums = recorded_sums(shard_map, lambda path: place.open_file(by_path[path]))
    stored = place.stored_sums(shards)
    return [SumChecker(one.path, [*sums.get(one.path, ()), *stored.get(one.path, ())]) for one in shards]


def _changes(place: CheckpointPlace, before: Sequence[StatedShard]) -> list[Finding]:
    """Shards that are not, after the read, what they were before it."""
    after = place.stat_all([stated.path for stated in before])
    found: list[Finding] = []
    for old, new in zip(before, after, strict=True):
        if (old.size_bytes, old.mtime_ns, old.etag) != (new.size_bytes, new.mtime_ns, new.etag):
            detail = f"{old.path} changed while it was read, so a save is still running; nothing was sealed"
            found.append(finding("in_progress", path=old.path, detail=detail, severity=Severity.DAMAGE))
    return found


def _seal_before(place: CheckpointPlace) -> Manifest | None:
    """The manifest that is there already; one that cannot be relied on is replaced."""
    with contextlib.suppress(beside.ManifestUnreadable):
        return beside.read_beside(place.path, place.files)
    return None


def _same_files(before: Manifest, now: Manifest) -> bool:
    files = [(shard.path, shard.size_bytes, shard.mtime_ns) for shard in now.shards]
    return len(files) == len(before.shards) and matches(before, files)[0]


def _contradiction(before: Manifest, now: Manifest) -> list[Finding]:
    """Findings where files that by size and time were never touched have other bytes than when they were sealed: that
    is damage, and a new seal would hide it. Files that were written again may be sealed again."""
    if not _same_files(before, now) or before.chunk_bytes != now.chunk_bytes:
        return []
    observed = {shard.path: _observed(shard) for shard in now.shards}
    return list(compare(before, observed))


def _observed(shard: ShardDigest) -> ObservedShard:
    text = shard.chunks_xxh3_64
    pieces = [text[begin : begin + DIGEST_CHARACTERS] for begin in range(0, len(text), DIGEST_CHARACTERS)]
    return ObservedShard(size_bytes=shard.size_bytes, chunks=dict(enumerate(pieces)))
