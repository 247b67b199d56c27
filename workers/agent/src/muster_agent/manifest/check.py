"""Whether a manifest that came from outside may be relied on at all. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from muster_agent.manifest.model import MANIFEST_VERSION, Manifest, ShardDigest
from muster_agent.manifest.seal import root_digest
from muster_agent.storage.posix import is_safe_name

MAX_CHUNK_BYTES = 64 * 1024 * 1024
_HEX = re.compile(r"[0-9a-f]*")


def why_invalid(manifest: Manifest) -> str | None:
    """One sentence on the first thing wrong with it, None where it is sound: names stay inside the checkpoint, every
    chunk of every shard has a digest, and the root digest is that of the chunks."""
    return next(_faults(manifest), None)


def _faults(manifest: Manifest) -> Iterator[str]:
    if manifest.version != MANIFEST_VERSION:
        yield f"its version is {manifest.version}; this program reads version {MANIFEST_VERSION}"
    if manifest.chunk_bytes % 4096 or not 4096 <= manifest.chunk_bytes <= MAX_CHUNK_BYTES:
        yield f"its chunk size of {manifest.chunk_bytes} bytes is not a multiple of 4096 up to {MAX_CHUNK_BYTES}"
        return
    paths = [shard.path for shard in manifest.shards]
    if len(set(paths)) < len(paths):
        yield "it lists a shard twice"
    for shard in manifest.shards:
        yield from _shard_faults(shard, manifest.chunk_bytes)
    if root_digest(manifest.shards) != manifest.root_xxh3_128:
        yield "its root digest is not that of its chunk digests"


def _shard_faults(shard: ShardDigest, chunk_bytes: int) -> Iterator[str]:
    if not is_safe_name(shard.path):
        yield f"the shard name {shard.path!r} leads out of the checkpoint"
    if shard.size_bytes < 0:
        yield f"{shard.path!r} has a negative size"
    elif len(shard.chunks_xxh3_64) != 16 * -(-shard.size_bytes // chunk_bytes):
        yield f"{shard.path!r} has not one digest per chunk"
    if not _HEX.fullmatch(shard.chunks_xxh3_64):
        yield f"{shard.path!r} has digests that are not hexadecimal"
