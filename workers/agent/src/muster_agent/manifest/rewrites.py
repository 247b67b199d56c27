"""Telling a file that was written again from one that rotted. Pure.

A seal speaks for bytes that nobody has written since. Where a file's own time of change says that somebody has, other
bytes prove no damage: the step may have been saved again, or be saved just now. Bytes that differ under the sealed time
are damage, and so is a file that is gone, cut or grown while its neighbours lie as they were sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from muster_agent.formats.base import Finding, Role
from muster_agent.formats.codes import finding
from muster_agent.formats.times import iso_time
from muster_agent.manifest.compare import DIGEST_CHARACTERS, ObservedShard, tensors_by_shard
from muster_agent.manifest.model import Manifest, ShardDigest, TensorDigest

CHANGED = "changed_since_sealing"
_BYTES, _SIZES = "digest_mismatch", frozenset({"shard_missing", "shard_empty", "shard_truncated", "shard_oversized"})
_CURE = (
    "Scan, then seal again if that save was meant; if nobody saved, treat it as damage: copy the file from a placement "
    "that verifies, or resume from an older complete step."
)


class Stamp(NamedTuple):
    """A file as it lay at one moment: `size_bytes` None where it was not there."""

    size_bytes: int | None
    mtime_ns: int


def data_shards(manifest: Manifest) -> list[ShardDigest]:
    """Those that a new save writes first: a save that runs has not come to the metadata yet."""
    return [shard for shard in manifest.shards if shard.role != Role.METADATA] or list(manifest.shards)


def was_written_later(manifest: Manifest, after: Mapping[str, Stamp]) -> bool:
    """Whether every data file that is there has a later time of change than the sealed one, as in a new save."""
    present = [(shard, stamp) for shard in data_shards(manifest) if (stamp := after[shard.path]).size_bytes is not None]
    return bool(present) and all(stamp.mtime_ns > shard.mtime_ns for shard, stamp in present)


class TrainedState(NamedTuple):
    """How many bytes of trained state that were read are what was sealed, and how many are not."""

    equal_bytes: int
    differing_bytes: int

    @property
    def is_mostly_equal(self) -> bool:
        """A new save leaves hardly a tensor as it was, but where it had nothing to change."""
        return self.differing_bytes <= self.equal_bytes != 0


def trained_state(
    manifest: Manifest, observed: Mapping[str, ObservedShard], is_equal: Callable[[TensorDigest], bool]
) -> TrainedState:
    """The trained state against the seal: by tensors where the manifest names them, else by chunks. `is_equal` tells
    of a tensor in a chunk that differs, by the tensor's own digest."""
    tensors = tensors_by_shard(manifest.tensors)
    equal_bytes = differing_bytes = 0
    for shard in trained_shards(manifest):
        if shard.path not in observed:
            continue
        chunks = _chunks(shard, observed[shard.path], manifest.chunk_bytes)
        for begin, end, tensor in _parts(shard, chunks, tensors.get(shard.path, ()), manifest.chunk_bytes):
            if all(chunks[index] for index in _indexes(begin, end, manifest.chunk_bytes)) or (
                tensor is not None and is_equal(tensor)
            ):
                equal_bytes += end - begin
            else:
                differing_bytes += end - begin
    return TrainedState(equal_bytes, differing_bytes)


def _chunks(shard: ShardDigest, seen: ObservedShard, chunk_bytes: int) -> dict[int, bool]:
    """Which chunks are equal, of those that were read or that the file no longer has."""
    count = -(-shard.size_bytes // chunk_bytes)
    first_lost = count if seen.size_bytes is None else min(seen.size_bytes, shard.size_bytes) // chunk_bytes
    lost = range(first_lost, count) if (seen.size_bytes or 0) < shard.size_bytes else range(0)
    read = {index: seen.chunks[index] == _sealed(shard, index) for index in seen.chunks if index < count}
    return {**read, **dict.fromkeys(lost, False)}


def _sealed(shard: ShardDigest, index: int) -> str:
    return shard.chunks_xxh3_64[index * DIGEST_CHARACTERS : (index + 1) * DIGEST_CHARACTERS]


def _parts(
    shard: ShardDigest, chunks: Mapping[int, bool], tensors: Sequence[TensorDigest], chunk_bytes: int
) -> Iterator[tuple[int, int, TensorDigest | None]]:
    """(begin, end, tensor) of what was looked at whole."""
    if not tensors:
        for index in chunks:
            yield index * chunk_bytes, min((index + 1) * chunk_bytes, shard.size_bytes), None
    for tensor in tensors:
        begin, end = tensor.offset_bytes, tensor.offset_bytes + tensor.length_bytes
        if all(index in chunks for index in _indexes(begin, end, chunk_bytes)):
            yield begin, end, tensor


def _indexes(begin: int, end: int, chunk_bytes: int) -> range:
    return range(begin // chunk_bytes, -(-end // chunk_bytes))


def changed_paths(findings: Iterable[Finding]) -> set[str]:
    """The files of which something other than what was sealed lies there."""
    return {found.path for found in findings if found.code == _BYTES or found.code in _SIZES}


def is_damaged_copy(
    manifest: Manifest, trained: TrainedState, findings: Iterable[Finding], *, are_sound: bool | None
) -> bool:
    """Whether files that all have later times are a copy made without times, in which what differs is damage, and not a
    new save. In a new save trained state has changed, or what has changed is sound by its format: `are_sound` is
    whether the changed files agree with the check sums that they carry, None where they carry none."""
    if not trained.is_mostly_equal or are_sound is not None:
        return trained.is_mostly_equal and not are_sound
    if trained.differing_bytes:
        return True
    changed = changed_paths(findings)
    roles = {shard.role for shard in manifest.shards if shard.path in changed}
    alike = [shard.path for shard in manifest.shards if shard.role in roles]
    return 2 * len(changed) <= len(alike)


def trained_shards(manifest: Manifest) -> list[ShardDigest]:
    """Files of weights and optimizer state, else all of data."""
    trained = [shard for shard in manifest.shards if shard.role in (Role.MODEL, Role.OPTIMIZER)]
    return trained or data_shards(manifest)


def without_rewrites(
    manifest: Manifest,
    observed: Mapping[str, ObservedShard],
    findings: Iterable[Finding],
    *,
    before: Mapping[str, Stamp],
    after: Mapping[str, Stamp],
    saved_again: bool,
    is_copy: bool = False,
) -> tuple[Finding, ...]:
    """The findings of `compare`, with one `changed_since_sealing` in place of the damage in each file that was written
    since. `before` and `after` are the files around the read; `after` holds every sealed path. In a copy whose times
    are those of the copying (`is_copy`), a later time explains nothing."""
    sealed = {shard.path: shard for shard in manifest.shards}
    contents = {shard.path: shard.chunks_xxh3_64 for shard in manifest.shards}
    told: dict[str, Finding] = {}
    kept: list[Finding] = []
    for found in findings:
        if found.path in told and found.code in (_BYTES, *_SIZES):
            continue
        shard = sealed.get(found.path)
        why = None
        if shard is not None and (found.code == _BYTES or found.code in _SIZES):
            end = after[shard.path]
            start = before.get(shard.path, end)
            why = None if is_copy and start == end else _why_changed(shard, start, end, saved_again)
            if why and not saved_again and _holds_another(shard, observed[shard.path], contents):
                why = None
        if why is None:
            kept.append(found)
            continue
        detail = f"{found.path} changed since sealing: {why}; it was sealed at {manifest.sealed_at}"
        told[found.path] = finding(CHANGED, path=found.path, detail=detail, cure=_CURE)
        kept.append(told[found.path])
    return tuple(kept)


def _why_changed(shard: ShardDigest, before: Stamp, after: Stamp, saved_again: bool) -> str | None:
    """The clause that follows "changed since sealing:"; None where the sealed bytes should still be there."""
    at = iso_time(after.mtime_ns) or "a time that no calendar holds"
    if before != after and (before.size_bytes or 0) <= (after.size_bytes or -1):
        return "it was being written while it was read"
    if saved_again:
        if after.size_bytes is None:
            return "it is not there, and the other files were written again"
        if after.size_bytes != shard.size_bytes and after.mtime_ns != shard.mtime_ns:
            return f"all files were written again, this one at {at} with {after.size_bytes} bytes"
    if after.size_bytes == shard.size_bytes and after.mtime_ns != shard.mtime_ns:
        return f"its bytes differ, and it was written again at {at}"
    return None


def _holds_another(shard: ShardDigest, seen: ObservedShard, contents: Mapping[str, str]) -> bool:
    """Whether all its bytes are those sealed of another file: files that changed places were not saved again."""
    digests = "".join(seen.chunks[index] for index in sorted(seen.chunks))
    others: Collection[str] = [text for path, text in contents.items() if path != shard.path]
    return bool(digests) and digests in others
