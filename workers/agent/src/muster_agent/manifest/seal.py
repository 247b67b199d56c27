"""Making a manifest from bytes that arrive in order. No I/O here."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import xxhash

from muster_agent.formats.base import Role, ShardMap, TensorRange
from muster_agent.manifest.model import CHUNK_BYTES, MANIFEST_VERSION, Manifest, ShardDigest, TensorDigest

TRAINABLE_ROLES = frozenset({Role.MODEL, Role.OPTIMIZER})
"""State that every training step changes; equal digests of it at two steps mean that a save wrote old values."""


def chunk_digests(data: memoryview, chunk_bytes: int = CHUNK_BYTES) -> list[str]:
    """XXH3-64 (16 hex characters) of consecutive pieces of `data`, the last one shorter where it does not divide."""
    return [xxhash.xxh3_64_hexdigest(data[begin : begin + chunk_bytes]) for begin in range(0, len(data), chunk_bytes)]


class ShardSealer:
    """Whole-file and tensor digests of one shard; `update` takes its bytes in order."""

    def __init__(self, tensors: Iterable[TensorRange] = ()) -> None:
        self._whole = xxhash.xxh3_128()
        self._position = 0
        self._waiting = deque(sorted(tensors, key=lambda tensor: tensor.offset_bytes))
        self._open: list[tuple[TensorRange, xxhash.xxh3_64]] = []
        self.tensors: list[TensorDigest] = []

    def update(self, data: memoryview) -> None:
        """The next bytes of the shard."""
        self._whole.update(data)
        begin, end = self._position, self._position + len(data)
        self._position = end
        while self._waiting and self._waiting[0].offset_bytes < end:
            self._open.append((self._waiting.popleft(), xxhash.xxh3_64()))
        for tensor, hasher in self._open:
            tensor_end = tensor.offset_bytes + tensor.length_bytes
            hasher.update(data[max(tensor.offset_bytes, begin) - begin : min(tensor_end, end) - begin])
            if tensor_end <= end:
                self.tensors.append(_tensor_digest(tensor, hasher.hexdigest()))
        self._open = [entry for entry in self._open if entry[0].offset_bytes + entry[0].length_bytes > end]

    @property
    def size_bytes(self) -> int:
        return self._position

    def xxh3_128(self) -> str:
        """The digest that `xxh128sum` prints for the bytes so far."""
        return self._whole.hexdigest()


def _tensor_digest(tensor: TensorRange, digest: str) -> TensorDigest:
    return TensorDigest(
        name=tensor.name,
        shard=tensor.shard,
        offset_bytes=tensor.offset_bytes,
        length_bytes=tensor.length_bytes,
        xxh3_64=digest,
        dtype=tensor.dtype,
        shape=tensor.shape,
    )


def trainable_tensors(shard_map: ShardMap) -> dict[str, list[TensorRange]]:
    """Ranges of trainable state by shard path; empty where the format does not tell its tensors."""
    ranges: dict[str, list[TensorRange]] = {}
    for tensor in shard_map.tensors:
        if tensor.role in TRAINABLE_ROLES:
            ranges.setdefault(tensor.shard, []).append(tensor)
    return ranges


def root_digest(shards: Iterable[ShardDigest]) -> str:
    """XXH3-128 over the chunk digests (their hex characters) of all shards in the order of their paths."""
    hasher = xxhash.xxh3_128()
    for shard in sorted(shards, key=lambda shard: shard.path):
        hasher.update(shard.chunks_xxh3_64.encode("ascii"))
    return hasher.hexdigest()


def assemble(
    shard_map: ShardMap,
    shards: Sequence[ShardDigest],
    tensors: Sequence[TensorDigest],
    *,
    sealed_at: str,
    origin: str = "storage",
    chunk_bytes: int = CHUNK_BYTES,
) -> Manifest:
    """The manifest of a checkpoint; `sealed_at` is an ISO time in UTC. The order of the parts does not matter."""
    return Manifest(
        version=MANIFEST_VERSION,
        run=shard_map.run,
        step=shard_map.step,
        format=shard_map.format,
        world_size=shard_map.world_size,
        origin=origin,
        sealed_at=sealed_at,
        chunk_bytes=chunk_bytes,
        root_xxh3_128=root_digest(shards),
        shards=tuple(sorted(shards, key=lambda shard: shard.path)),
        tensors=tuple(sorted(tensors, key=lambda tensor: (tensor.shard, tensor.offset_bytes, tensor.name))),
    )
