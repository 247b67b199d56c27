"""Telling a file that was written again from one that rotted. Pure.

A seal speaks for bytes that nobody has written since. Where a file's own time of change says that somebody has, other
bytes prove no damage: the step may have been saved again, or be saved just now. Bytes that differ under the sealed time
are damage, and so is a file that is gone, cut or grown while its neighbours lie as they were sealed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from muster_agent.formats.base import Finding, Role
from muster_agent.formats.codes import finding
from muster_agent.formats.times import iso_time
from muster_agent.manifest.compare import ObservedShard
from muster_agent.manifest.model import Manifest, ShardDigest

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


def is_damaged_copy(
    manifest: Manifest,
    observed: Mapping[str, ObservedShard],
    after: Mapping[str, Stamp],
    findings: Iterable[Finding],
) -> bool:
    """Whether files that all have later times are a copy made without times, and not a new save: most of the trained
    state that was read is bit for bit what was sealed, and a new save would not leave it so. What differs is damage."""
    changed = {found.path for found in findings if found.code == _BYTES or found.code in _SIZES}
    there = [shard.path for shard in trained_shards(manifest) if after[shard.path].size_bytes is not None]
    read = [path for path in there if path in changed or (path in observed and observed[path].chunks)]
    return was_written_later(manifest, after) and 2 * len(changed.intersection(read)) <= len(read) != 0


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
