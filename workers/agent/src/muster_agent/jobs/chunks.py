"""What sealing, verifying and reloading share: open shards, chunk digests as blocks land, and what came of a shard."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import xxhash

from muster_agent.formats.base import Finding, Severity, Status, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.tree import ARCHIVED, Opened
from muster_agent.jobs.checkpoint_place import CheckpointPlace
from muster_agent.jobs.checkpoint_place import StatedShard as StatedShard
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.soundness import agree_with_own_sums
from muster_agent.manifest.compare import ObservedShard, overlapping, tensors_by_shard, with_tensors
from muster_agent.manifest.model import Manifest, TensorDigest
from muster_agent.manifest.rewrites import (
    CHANGED,
    Stamp,
    changed_paths,
    is_damaged_copy,
    trained_shards,
    trained_state,
    was_written_later,
    without_rewrites,
)
from muster_agent.manifest.seal import chunk_digests
from muster_agent.probes.filesystem import read_file_system
from muster_agent.reload.buffers import BufferRing
from muster_agent.reload.pace import pace_of
from muster_agent.reload.plan import BLOCK_BYTES, Extent, plan_reads, whole_shards
from muster_agent.reload.reader import Check, Consumer, ReadRun
from muster_agent.reload.totals import ReadTotals
from muster_agent.storage.posix import PathUnsafe
from muster_agent.storage.throttle import Throttle

_NARROW_BYTES = 1024 * 1024 * 1024
"""At most this much is read again to tell which tensors of a damaged range are damaged themselves."""


def block_bytes_for(chunk_bytes: int) -> int:
    """The read size that holds whole chunks."""
    return chunk_bytes * max(1, BLOCK_BYTES // chunk_bytes)


class ChunkDigester:
    """Keeps the XXH3-64 of every chunk that lands, by shard number and chunk number."""

    def __init__(self, shard_count: int, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self.digests: list[dict[int, str]] = [{} for _ in range(shard_count)]

    def landed(self, extent: Extent, data: memoryview, check: Check) -> None:
        """See `reload.reader.Consumer`."""
        first = extent.offset_bytes // self._chunk_bytes
        for index, digest in enumerate(chunk_digests(data, self._chunk_bytes), first):
            self.digests[extent.shard][index] = digest

    def hashed(self, extent: Extent, digests: Sequence[int]) -> None:
        """See `reload.reader.Consumer`."""
        first = extent.offset_bytes // self._chunk_bytes
        for index, digest in enumerate(digests, first):
            self.digests[extent.shard][index] = f"{digest:016x}"

    def lost(self, extent: Extent) -> None:
        """See `reload.reader.Consumer`."""

    def begin(self, extent: Extent) -> _RunningChunks:
        """See `reload.reader.PieceConsumer`."""
        first = extent.offset_bytes // self._chunk_bytes
        return _RunningChunks(self.digests[extent.shard], first, self._chunk_bytes)


class _RunningChunks:
    """The digests of consecutive chunks whose bytes come in pieces of any length."""

    def __init__(self, digests: dict[int, str], first: int, chunk_bytes: int) -> None:
        self._digests, self._index, self._chunk_bytes = digests, first, chunk_bytes
        self._hasher, self._left_bytes = xxhash.xxh3_64(), chunk_bytes

    def update(self, data: memoryview) -> None:
        """See `reload.reader.Pieces`."""
        while len(data) >= self._left_bytes:
            part, data = data[: self._left_bytes], data[self._left_bytes :]
            self._hasher.update(part)
            self._left_bytes = 0
            self.end()
        self._hasher.update(data)
        self._left_bytes -= len(data)

    def end(self) -> None:
        """See `reload.reader.Pieces`."""
        if self._left_bytes == self._chunk_bytes:
            return
        self._digests[self._index] = self._hasher.hexdigest()
        self._hasher, self._left_bytes = xxhash.xxh3_64(), self._chunk_bytes
        self._index += 1


class Discard:
    """Takes the bytes and does nothing: a read without anything to compare with."""

    def landed(self, extent: Extent, data: memoryview, check: Check) -> None:
        """See `reload.reader.Consumer`."""

    def hashed(self, extent: Extent, digests: Sequence[int]) -> None:
        """See `reload.reader.Consumer`."""

    def lost(self, extent: Extent) -> None:
        """See `reload.reader.Consumer`."""

    def begin(self, extent: Extent) -> Discard:
        """See `reload.reader.PieceConsumer`."""
        return self

    def update(self, data: memoryview) -> None:
        """See `reload.reader.Pieces`."""

    def end(self) -> None:
        """See `reload.reader.Pieces`."""


class ReadingPass(NamedTuple):
    """How shards are read: told to progress as `phase`, whole chunks at a time, by so many threads (None: as the
    storage wants it), no faster than the throttle allows. Reads go around the page cache where that is allowed, so that
    they prove what the storage holds; with `through_cache` they prove what this node would load, which is faster where
    the files are in its memory."""

    phase: str
    chunk_bytes: int
    threads: int | None = None
    through_cache: bool = False
    throttle: Throttle | None = None


def read_shards(
    extents: Sequence[Extent],
    shards: Sequence[StatedShard],
    consumer: Consumer,
    control: JobControl,
    how: ReadingPass,
    *,
    place: CheckpointPlace,
) -> ReadTotals:
    """One pass over the extents that proves what the storage holds, or what this node would load."""
    control.check()
    block_bytes = block_bytes_for(how.chunk_bytes)
    plan = plan_reads(extents, block_bytes)
    pace = pace_of(from_cache=how.through_cache, is_remote=_is_remote(shards), cpus=len(os.sched_getaffinity(0)))
    readers = max(1, min(how.threads or pace.readers, len(plan)))
    ring = BufferRing(readers, block_bytes)
    try:
        with place.reads(through_cache=how.through_cache) as open_shard:
            return ReadRun(
                plan=plan,
                open_shard=lambda number: open_shard(shards[number]),
                consumer=consumer,
                ring=ring,
                control=control,
                throttle=how.throttle or Throttle(None),
                readers=readers,
                phase=how.phase,
                piece_bytes=pace.piece_bytes,
            ).run()
    finally:
        ring.close()


def _is_remote(shards: Sequence[StatedShard]) -> bool:
    return any(read_file_system(stated.location).is_remote for stated in shards[:1])


def observe(stated: StatedShard, number: int, digests: dict[int, str], totals: ReadTotals) -> ObservedShard:
    """What is known of one shard after the read: where it was, or became, shorter, gone or unreadable."""
    error = totals.errors.get(number, stated.error)
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ObservedShard(size_bytes=None, chunks=digests)
    size_bytes = totals.ended_at_bytes.get(number, totals.sources.get(number, (stated.size_bytes, 0))[0])
    if error is None:
        return ObservedShard(size_bytes=size_bytes, chunks=digests)
    return ObservedShard(
        size_bytes=size_bytes,
        chunks=digests,
        error=error.strerror or str(error),
        denied=isinstance(error, PermissionError),
        trouble_code=CHANGED if _was_rewritten(stated, error) else _code_of(error),
    )


def read_failures(shards: Sequence[StatedShard], totals: ReadTotals) -> list[Finding]:
    """Findings of a read that has no manifest to compare with: what was gone, shrank or was not delivered."""
    found: list[Finding] = []
    for number, stated in enumerate(shards):
        error = totals.errors.get(number, stated.error)
        ended = totals.ended_at_bytes.get(number)
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            found.append(finding("shard_missing", path=stated.path, detail=f"{stated.path} is not there (any more)"))
        elif error is not None and _was_rewritten(stated, error):
            detail = f"{stated.path} was written again while it was read, so a save is still running"
            found.append(finding("in_progress", path=stated.path, detail=detail, severity=Severity.DAMAGE))
        elif error is not None:
            code = _code_of(error)
            detail = f"{stated.path} could not be read: {error.strerror or error}"
            found.append(finding(code, path=stated.path, detail=detail))
        elif ended is not None:
            detail = f"{stated.path} ended at byte {ended} while it was read; it had {stated.size_bytes} bytes before"
            found.append(finding("shard_truncated", path=stated.path, detail=detail, begin_byte=ended))
    return found


def _was_rewritten(stated: StatedShard, error: OSError) -> bool:
    """A bucket's client says so by ESTALE; of a file it means that the mount lost its handle."""
    return error.errno == errno.ESTALE and stated.location.startswith("s3://")


def _code_of(error: OSError) -> str:
    if isinstance(error, PathUnsafe):
        return "path_unsafe"
    if error.errno == ARCHIVED:
        return "archived"
    return "permission_denied" if isinstance(error, PermissionError) else "listing_failed"


def extents_of(shards: Sequence[StatedShard], manifest: Manifest | None) -> list[Extent]:
    """All bytes of each shard, but none beyond what was sealed: the chunks of a file that grew must still line up."""
    sealed = {shard.path: shard.size_bytes for shard in manifest.shards} if manifest else {}
    on_disk = [stated.size_bytes or 0 for stated in shards]
    return whole_shards(
        [min(size, sealed.get(stated.path, size)) for size, stated in zip(on_disk, shards, strict=True)]
    )


def tell_rewrites(
    place: CheckpointPlace,
    manifest: Manifest,
    shards: Sequence[StatedShard],
    observed: Mapping[str, ObservedShard],
    findings: Sequence[Finding],
) -> tuple[Finding, ...]:
    """What `compare` found, less the damage that is none because the file was written again: looks at every sealed
    file once more where there is damage. `shards` are those that were read, as they lay before."""
    if not any(found.severity is Severity.DAMAGE for found in findings):
        return tuple(findings)
    stated = place.stat_all([shard.path for shard in manifest.shards])
    after = {shard.path: Stamp(shard.size_bytes, shard.mtime_ns) for shard in stated}
    before = {shard.path: Stamp(shard.size_bytes, shard.mtime_ns) for shard in shards}
    saved_again = was_written_later(manifest, after)
    is_copy = saved_again and _is_damaged_copy(place, manifest, observed, findings)
    saved_again = saved_again and not is_copy
    if saved_again and len(trained_shards(manifest)) == 1:
        # A lone file has no neighbours that tell a new save from a cut: only its own header can.
        saved_again = place.read().status is Status.COMPLETE
    return without_rewrites(
        manifest, observed, findings, before=before, after=after, saved_again=saved_again, is_copy=is_copy
    )


def _is_damaged_copy(
    place: CheckpointPlace, manifest: Manifest, observed: Mapping[str, ObservedShard], findings: Sequence[Finding]
) -> bool:
    narrower = _Narrower(place, manifest)
    trained = trained_state(manifest, observed, narrower.is_equal)
    are_sound = agree_with_own_sums(place, changed_paths(findings)) if trained.is_mostly_equal else None
    return is_damaged_copy(manifest, trained, findings, are_sound=are_sound)


def name_damaged_tensors(
    place: CheckpointPlace, manifest: Manifest, findings: Sequence[Finding]
) -> tuple[Finding, ...]:
    """The same findings, with each changed range naming the tensors whose own digest differs. Where no trained tensor
    of the range differs, the damage lies in the others that the format's metadata still names, or in the header."""
    narrower = _Narrower(place, manifest)
    return tuple(narrower.narrow(found) if found.code == "digest_mismatch" else found for found in findings)


class _Narrower:
    """Reads the tensors of damaged ranges again, up to a total of `_NARROW_BYTES`."""

    def __init__(self, place: CheckpointPlace, manifest: Manifest) -> None:
        self._place, self._manifest = place, manifest
        self._sealed = tensors_by_shard(manifest.tensors)
        self._left_bytes = _NARROW_BYTES

    @functools.cached_property
    def _stated(self) -> dict[str, StatedShard]:
        return {one.path: one for one in self._place.stat_all([shard.path for shard in self._manifest.shards])}

    @functools.cached_property
    def _known(self) -> dict[str, list[TensorRange]]:
        return tensors_by_shard(self._place.read().tensors)

    def _open(self, path: str) -> Opened:
        stated = self._stated[path]
        if stated.error is not None:
            raise stated.error
        return self._place.open_file(stated)

    def is_equal(self, tensor: TensorDigest) -> bool:
        """Whether its own digest is what was sealed; False also where that cannot be told."""
        if tensor.length_bytes > self._left_bytes:
            return False
        self._left_bytes -= tensor.length_bytes
        try:
            with self._open(tensor.shard) as file:
                return _tensor_digest(file, tensor) == tensor.xxh3_64
        except OSError:
            return False

    def narrow(self, found: Finding) -> Finding:
        begin, end = found.begin_byte or 0, found.end_byte or 0
        sealed = overlapping(self._sealed.get(found.path, []), begin, end)
        cost = sum(tensor.length_bytes for tensor in sealed)
        if cost > self._left_bytes:
            return found
        self._left_bytes -= cost
        try:
            with self._open(found.path) as file:
                damaged = [tensor.name for tensor in sealed if _tensor_digest(file, tensor) != tensor.xxh3_64]
        except OSError:
            return found
        plain = msgspec.structs.replace(found, tensor=None, detail=found.detail.split("; ")[0])
        if damaged:
            return with_tensors(plain, damaged, proven=True)
        sound = {tensor.name for tensor in sealed}
        others = overlapping(self._known.get(found.path, []), begin, end)
        return with_tensors(plain, [tensor.name for tensor in others if tensor.name not in sound])


def _tensor_digest(file: Opened, tensor: TensorDigest) -> str:
    hasher = xxhash.xxh3_64()
    at, end = tensor.offset_bytes, tensor.offset_bytes + tensor.length_bytes
    while at < end and (data := file.pread(min(end - at, BLOCK_BYTES), at)):
        hasher.update(data)
        at += len(data)
    return hasher.hexdigest()
