"""The CRC-32C at the end of every OCDBT manifest and tree node, as check sums that a checkpoint carries for itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from muster_agent.formats.base import ShardMap
from muster_agent.formats.names import unsafe_reason
from muster_agent.formats.ocdbt import IS_MANIFEST, MAX_NODES
from muster_agent.formats.ocdbt_codec import (
    CRC_BYTES,
    MAX_ENVELOPE_BYTES,
    NodeRef,
    OcdbtRefused,
    parse_manifest,
    parse_node,
)
from muster_agent.formats.recorded import Open, RecordedSum
from muster_agent.formats.tree import Opened

PROCESS_TREE = "ocdbt.process_"
_OPEN_FILES = 64


def recorded_sums(shard_map: ShardMap, open_shard: Open) -> Mapping[str, Sequence[RecordedSum]]:
    """Of all databases of the checkpoint, but not of the trees that single processes kept: no restart reads those, so
    that damage in them must not refuse a seal. See `recorded.Source`."""
    sizes = {shard.path: shard.size_bytes for shard in shard_map.shards if shard.size_bytes}
    found: dict[str, dict[int, RecordedSum]] = {}
    for path in sizes:
        folder, slash, name = path.rpartition("/")
        if IS_MANIFEST.fullmatch(name) and not folder.rpartition("/")[2].startswith(PROCESS_TREE):
            for shard, one in _Walk(folder + slash, sizes, open_shard).sums(path):
                found.setdefault(shard, {})[one.begin] = one
    return {shard: list(sums.values()) for shard, sums in found.items()}


class _Walk:
    """One database, whose folder is `at`, from its manifest down. What cannot be read has no sum here: the reader of
    the format says what is wrong with it."""

    def __init__(self, at: str, sizes: Mapping[str, int | None], open_shard: Open) -> None:
        self._at, self._sizes, self._open_shard = at, sizes, open_shard
        self._open: dict[str, Opened] = {}

    def sums(self, manifest: str) -> Iterator[tuple[str, RecordedSum]]:
        with ExitStack() as stack:
            data = self._read(stack, manifest, 0, self._sizes[manifest] or 0)
            yield from _sum_of(manifest, data, 0, "the manifest")
            try:
                waiting = list(parse_manifest(data).roots or ())
            except OcdbtRefused:
                return
            yield from self._nodes(stack, waiting)

    def _nodes(self, stack: ExitStack, waiting: list[NodeRef]) -> Iterator[tuple[str, RecordedSum]]:
        seen: set[tuple[str, int, bytes]] = set()
        while waiting and len(seen) < MAX_NODES:
            ref = waiting.pop()
            place = ref.place
            key = (place.path, place.offset, ref.prefix)
            if key in seen or unsafe_reason(place.path):
                continue
            seen.add(key)
            shard = self._at + place.path
            data = self._read(stack, shard, place.offset, place.length)
            yield from _sum_of(shard, data, place.offset, f"the tree node at byte {place.offset}")
            try:
                waiting.extend(parse_node(data, ref).children)
            except OcdbtRefused:
                continue

    def _read(self, stack: ExitStack, shard: str, offset: int, length: int) -> bytes:
        """Empty where the bytes are not there or too many."""
        if length > MAX_ENVELOPE_BYTES or offset + length > (self._sizes.get(shard) or 0):
            return b""
        try:
            if shard not in self._open:
                if len(self._open) >= _OPEN_FILES:
                    self._open.pop(next(iter(self._open))).close()
                self._open[shard] = stack.enter_context(self._open_shard(shard))
            return self._open[shard].pread(length, offset)
        except OSError:
            return b""


def _sum_of(shard: str, data: bytes, offset: int, what: str) -> Iterator[tuple[str, RecordedSum]]:
    end = len(data) - CRC_BYTES
    if end > 0:
        expected = int.from_bytes(data[end:], "little")
        yield shard, RecordedSum(offset, offset + end, "crc32c", f"{expected:08x}", what)
