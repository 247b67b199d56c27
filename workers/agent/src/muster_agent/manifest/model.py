"""The manifest's types and canonical bytes. A manifest is immutable; its id is the SHA-256 of those bytes.

XXH3 finds accidents, not attackers: a manifest proves that stored bytes have not changed since sealing, nothing more.
"""

from __future__ import annotations

import hashlib

import msgspec

CHUNK_BYTES = 4 * 1024 * 1024
MANIFEST_VERSION = 1
FOLDER_MANIFEST_NAME = ".muster-manifest.json"
FILE_MANIFEST_SUFFIX = ".muster.json"
VERDICT_NAME = ".muster-verify.json"
"""In a folder this is the verdict's name; beside a single file it is appended to the file's name."""


class ShardDigest(msgspec.Struct, frozen=True, kw_only=True):
    """Digests of one shard. `chunks_xxh3_64` is the hex digests of consecutive `chunk_bytes` pieces, 16 characters
    each, joined without a separator (the last piece may be shorter); `xxh3_128` is what `xxh128sum` prints."""

    path: str
    size_bytes: int
    mtime_ns: int
    xxh3_128: str
    chunks_xxh3_64: str
    rank: int | None = None
    role: str = "other"


class TensorDigest(msgspec.Struct, frozen=True, kw_only=True):
    """XXH3-64 of one tensor range of trainable state; equal digests at two steps of one run betray a stale save.
    `dtype` and `shape` are unset in manifests that were written before they were kept, whose bytes stay the same."""

    name: str
    shard: str
    offset_bytes: int
    length_bytes: int
    xxh3_64: str
    dtype: str | msgspec.UnsetType = msgspec.UNSET
    shape: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The immutable list of a checkpoint's shards with sizes and digests. `origin` is `writer` when the digests came
    from the saving job, `storage` when they were first read from disk. `root_xxh3_128` is over all chunk digests."""

    version: int
    run: str
    step: int | None
    format: str
    world_size: int | None
    origin: str
    sealed_at: str
    chunk_bytes: int
    root_xxh3_128: str
    shards: tuple[ShardDigest, ...]
    tensors: tuple[TensorDigest, ...] = ()

    @property
    def total_bytes(self) -> int:
        return sum(shard.size_bytes for shard in self.shards)


def canonical_bytes(manifest: Manifest) -> bytes:
    """JSON with sorted keys and no white space: the same manifest gives the same bytes in every version."""
    return msgspec.json.encode(manifest, order="sorted")


def manifest_id(manifest: Manifest) -> str:
    """SHA-256 of the canonical bytes, as 64 hex characters."""
    return hashlib.sha256(canonical_bytes(manifest)).hexdigest()
