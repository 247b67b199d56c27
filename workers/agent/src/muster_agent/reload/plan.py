"""Which bytes are read in which order. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

BLOCK_BYTES = 4 * 1024 * 1024
"""One read, which is one chunk of a manifest. With 8 readers, 8 MiB gave the same rate for twice the memory, and hashed
colder bytes (docs/measurements/reload.md)."""
OPEN_SHARDS = 32
"""Shards read at the same time: spreads reads over storage targets without exhausting file descriptors."""


class Extent(NamedTuple):
    """Bytes [offset_bytes, offset_bytes + length_bytes) of shard number `shard`."""

    shard: int
    offset_bytes: int
    length_bytes: int

    def overlaps(self, offset_bytes: int, length_bytes: int) -> bool:
        """Whether some of that part of the same shard lies in it; of an empty part, its place."""
        end = self.offset_bytes + self.length_bytes
        return offset_bytes < end and self.offset_bytes < offset_bytes + max(1, length_bytes)

    def holds(self, offset_bytes: int, length_bytes: int) -> bool:
        """Whether all of that part of the same shard lies in it."""
        end = self.offset_bytes + self.length_bytes
        return self.offset_bytes <= offset_bytes and offset_bytes + length_bytes <= end


def whole_shards(sizes_bytes: Sequence[int]) -> list[Extent]:
    """Every byte of every shard, as one extent each; empty shards have none."""
    return [Extent(shard, 0, size) for shard, size in enumerate(sizes_bytes) if size > 0]


def held_by_shard(extents: Iterable[Extent], shards: int) -> list[Extent]:
    """Of each shard the one range from the first to the last byte that the extents read of it; none of it is of no
    length."""
    held = [Extent(shard, 0, 0) for shard in range(shards)]
    for extent in extents:
        before = held[extent.shard]
        begin = min(before.offset_bytes, extent.offset_bytes) if before.length_bytes else extent.offset_bytes
        end = max(before.offset_bytes + before.length_bytes, extent.offset_bytes + extent.length_bytes)
        held[extent.shard] = Extent(extent.shard, begin, end - begin)
    return held


def share_of(extents: Iterable[Extent], part: int, parts: int, unit_bytes: int) -> list[Extent]:
    """What reader number `part` of `parts` reads, so that all read about as much and together everything, each byte
    once. Shards are cut at multiples of `unit_bytes`, which keeps chunks whole."""
    listed = list(extents)
    total = _total(listed)
    first, last = total * part // parts, total * (part + 1) // parts
    taken, before = [], 0
    for extent in listed:
        begin, end = (_up(min(max(cut - before, 0), extent.length_bytes), extent, unit_bytes) for cut in (first, last))
        if end > begin:
            taken.append(Extent(extent.shard, extent.offset_bytes + begin, end - begin))
        before += extent.length_bytes
    return taken


def _up(place: int, extent: Extent, unit_bytes: int) -> int:
    """The next cut at or after a place in the extent."""
    return min(-(-place // unit_bytes) * unit_bytes, extent.length_bytes)


def plan_reads(extents: Iterable[Extent], block_bytes: int = BLOCK_BYTES) -> list[Extent]:
    """Cut extents into blocks and order them: longest shard first, always from the shard with the most left, so that
    all shards end together; ascending within one shard. At most `OPEN_SHARDS` shards are under way at once."""
    by_shard: dict[int, list[Extent]] = {}
    for extent in sorted(extents):
        by_shard.setdefault(extent.shard, []).extend(_cut(extent, block_bytes))
    longest_first = sorted(by_shard, key=lambda shard: (-_total(by_shard[shard]), shard))
    plan: list[Extent] = []
    for begin in range(0, len(longest_first), OPEN_SHARDS):
        window = longest_first[begin : begin + OPEN_SHARDS]
        plan.extend(_most_left_first([by_shard[shard] for shard in window]))
    return plan


def bytes_by_shard(extents: Iterable[Extent]) -> dict[int, int]:
    """How much of each shard the extents cover."""
    planned: dict[int, int] = {}
    for extent in extents:
        planned[extent.shard] = planned.get(extent.shard, 0) + extent.length_bytes
    return planned


def _cut(extent: Extent, block_bytes: int) -> list[Extent]:
    end = extent.offset_bytes + extent.length_bytes
    return [
        Extent(extent.shard, offset, min(block_bytes, end - offset))
        for offset in range(extent.offset_bytes, end, block_bytes)
    ]


def _total(blocks: Sequence[Extent]) -> int:
    return sum(block.length_bytes for block in blocks)


def _most_left_first(shards: Sequence[Sequence[Extent]]) -> list[Extent]:
    keyed = []
    for blocks in shards:
        left = _total(blocks)
        for block in blocks:
            keyed.append((-left, block))
            left -= block.length_bytes
    return [block for _, block in sorted(keyed)]
