"""Expected minus observed, in one pure pass: which shards are missing, cut, grown or changed, and where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.fingerprint import bounded_mtime_ns
from muster_agent.formats.times import iso_time
from muster_agent.manifest.model import Manifest, ShardDigest, TensorDigest

DIGEST_CHARACTERS = 16
MAX_RANGES = 64
"""Damaged ranges of one shard that are listed one by one; a rotten disk must not make a report of millions."""
_NAMED_TENSORS = 5


class ObservedShard(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one shard: `size_bytes` None where it is not there, `chunks` the XXH3-64 hex digest by chunk
    number of those that were read, `error` what the storage said where it did not deliver."""

    size_bytes: int | None
    chunks: Mapping[int, str] = {}
    error: str | None = None
    denied: bool = False
    trouble_code: str = "listing_failed"
    """Of the finding about `error`, where it was not denied."""


class _Named(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def shard(self) -> str: ...
    @property
    def offset_bytes(self) -> int: ...
    @property
    def length_bytes(self) -> int: ...


_T = TypeVar("_T", bound=_Named)


def compare(manifest: Manifest, observed: Mapping[str, ObservedShard]) -> tuple[Finding, ...]:
    """Findings for every shard in `observed` (by path) against the manifest; shards not in `observed` were not looked
    at and give none. A changed run of chunks is one `digest_mismatch` with its byte range; of a shard with more than
    `MAX_RANGES` of them the last finding spans the rest."""
    tensors = tensors_by_shard(manifest.tensors)
    found: list[Finding] = []
    for shard in manifest.shards:
        if shard.path in observed:
            found.extend(_compare_shard(shard, observed[shard.path], manifest, tensors.get(shard.path, [])))
    return tuple(found)


def _compare_shard(
    shard: ShardDigest, seen: ObservedShard, manifest: Manifest, tensors: Sequence[TensorDigest]
) -> Iterator[Finding]:
    if seen.error is not None:
        code = "permission_denied" if seen.denied else seen.trouble_code
        detail = f"{shard.path} could not be read to its end: {seen.error}"
        yield finding(code, path=shard.path, detail=detail, severity=Severity.WARNING)
    if seen.size_bytes is not None or seen.error is None:
        yield from size_findings(shard.path, shard.size_bytes, seen.size_bytes)
    ranges = list(_changed_runs(shard, seen, manifest.chunk_bytes))
    for number, (begin, end) in enumerate(ranges[:MAX_RANGES]):
        rest = len(ranges) - MAX_RANGES if number == MAX_RANGES - 1 else 0
        end = ranges[-1][1] if rest > 0 else end
        among = f" in {rest + 1} separate ranges" if rest > 0 else ""
        detail = f"bytes {begin} to {end} of {shard.path} differ{among} from what was sealed at {manifest.sealed_at}"
        plain = finding("digest_mismatch", path=shard.path, detail=detail, begin_byte=begin, end_byte=end)
        yield with_tensors(plain, [tensor.name for tensor in overlapping(tensors, begin, end)])


def size_findings(path: str, expected_bytes: int, actual_bytes: int | None) -> Iterator[Finding]:
    """Missing, empty, truncated or oversized; nothing where the size is as expected."""
    if actual_bytes is None:
        yield finding("shard_missing", path=path, detail=f"{path} ({expected_bytes} bytes) is not there")
    elif actual_bytes > expected_bytes:
        detail = (
            f"{path} has {actual_bytes} bytes, {actual_bytes - expected_bytes} more than the {expected_bytes} sealed"
        )
        yield finding("shard_oversized", path=path, detail=detail, begin_byte=expected_bytes, end_byte=actual_bytes)
    elif actual_bytes < expected_bytes:
        code = "shard_empty" if actual_bytes == 0 else "shard_truncated"
        detail = (
            f"{path} has {actual_bytes} bytes, {expected_bytes - actual_bytes} fewer than the {expected_bytes} sealed"
        )
        yield finding(code, path=path, detail=detail, begin_byte=actual_bytes, end_byte=expected_bytes)


def _changed_runs(shard: ShardDigest, seen: ObservedShard, chunk_bytes: int) -> Iterator[tuple[int, int]]:
    """Byte ranges of neighbouring chunks that differ. A chunk that the file no longer holds whole is not compared: its
    loss is already named as truncation."""
    readable = shard.size_bytes if seen.size_bytes is None else min(seen.size_bytes, shard.size_bytes)
    begin = end = -1
    for index in sorted(seen.chunks):
        chunk_begin = index * chunk_bytes
        chunk_end = min(chunk_begin + chunk_bytes, shard.size_bytes)
        expected = shard.chunks_xxh3_64[index * DIGEST_CHARACTERS : (index + 1) * DIGEST_CHARACTERS]
        if chunk_end > readable or seen.chunks[index] == expected:
            continue
        if chunk_begin != end:
            if end > 0:
                yield begin, end
            begin = chunk_begin
        end = chunk_end
    if end > 0:
        yield begin, end


def tensors_by_shard(tensors: Iterable[_T]) -> dict[str, list[_T]]:
    """Tensors grouped by the shard they lie in, in the order of their offsets."""
    grouped: dict[str, list[_T]] = {}
    for tensor in sorted(tensors, key=lambda tensor: tensor.offset_bytes):
        grouped.setdefault(tensor.shard, []).append(tensor)
    return grouped


def overlapping(tensors: Iterable[_T], begin: int, end: int) -> list[_T]:
    """Those tensors of one shard that have at least one byte in [begin, end)."""
    return [t for t in tensors if t.offset_bytes < end and t.offset_bytes + t.length_bytes > begin]


def with_tensors(found: Finding, names: Sequence[str], *, proven: bool = False) -> Finding:
    """The finding with up to five tensors in its detail. Its `tensor` is the first one whose own digest differs
    (`proven`), or the only one that lies in the range; of several suspects none is accused."""
    if not names:
        return found
    listed = ", ".join(names[:_NAMED_TENSORS])
    more = f" and {len(names) - _NAMED_TENSORS} more" if len(names) > _NAMED_TENSORS else ""
    verb = "damaged" if proven else "the range holds"
    kind = "tensor" if len(names) == 1 else "tensors"
    certain = names[0] if proven or len(names) == 1 else None
    return msgspec.structs.replace(found, tensor=certain, detail=f"{found.detail}; {verb}: {kind} {listed}{more}")


def matches(manifest: Manifest, files: Iterable[tuple[str, int, int]]) -> tuple[bool, tuple[Finding, ...]]:
    """Whether the files, given as (path, size in bytes, mtime in ns), are those that were sealed, by size and time
    alone. False voids the seal's evidence; the findings say which file and what to do."""
    present = {path: (size, mtime_ns) for path, size, mtime_ns in files}
    found: list[Finding] = []
    for shard in manifest.shards:
        size, mtime_ns = present.get(shard.path, (None, shard.mtime_ns))
        found.extend(size_findings(shard.path, shard.size_bytes, size))
        if size == shard.size_bytes and bounded_mtime_ns(mtime_ns) != bounded_mtime_ns(shard.mtime_ns):
            changed = iso_time(mtime_ns) or "a time that no calendar holds"
            detail = f"{shard.path} was changed at {changed}; it was sealed at {manifest.sealed_at} with another time"
            found.append(finding("changed_since_sealing", path=shard.path, detail=detail))
    return not found, tuple(found)


def verdict(findings: Iterable[Finding]) -> bool | None:
    """What `compare` found, in one word. True: all that was looked at is equal; False: damage; None: something could
    not be looked at (its only warnings)."""
    severities = {found.severity for found in findings}
    if Severity.DAMAGE in severities:
        return False
    return None if Severity.WARNING in severities else True
