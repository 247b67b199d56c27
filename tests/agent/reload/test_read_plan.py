"""The order of reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from muster_agent.reload.plan import OPEN_SHARDS, Extent, plan_reads, share_of, whole_shards


@given(st.lists(st.integers(0, 500), max_size=40), st.integers(1, 400))
def test_every_byte_is_read_once_and_in_order_within_its_shard(sizes: list[int], block_bytes: int) -> None:
    plan = plan_reads(whole_shards(sizes), block_bytes)
    reached = [0] * len(sizes)
    for extent in plan:
        assert extent.offset_bytes == reached[extent.shard]
        assert 0 < extent.length_bytes <= block_bytes
        reached[extent.shard] += extent.length_bytes
    assert reached == sizes


def test_the_longest_shard_comes_first_and_all_end_together() -> None:
    plan = plan_reads(whole_shards([10, 40, 20]), 10)
    assert [extent.shard for extent in plan] == [1, 1, 1, 2, 0, 1, 2]


def test_no_more_than_the_limit_of_shards_is_open_at_once() -> None:
    plan = plan_reads(whole_shards([30] * (3 * OPEN_SHARDS)), 10)
    first, last = {}, {}
    for position, extent in enumerate(plan):
        first.setdefault(extent.shard, position)
        last[extent.shard] = position
    most = max(sum(first[s] <= position <= last[s] for s in first) for position in range(len(plan)))
    assert most <= OPEN_SHARDS


def test_scattered_chunks_stay_separate_reads() -> None:
    plan = plan_reads([Extent(0, 8, 4), Extent(0, 0, 4)], 100)
    assert plan == [Extent(0, 0, 4), Extent(0, 8, 4)]


def test_nothing_to_read_is_an_empty_plan() -> None:
    assert plan_reads(whole_shards([0, 0])) == []


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 64])
def test_the_shares_of_all_readers_are_even_and_cover_each_byte_once(parts: int) -> None:
    sizes = [10_000, 0, 1, 4096, 250_003]
    whole = whole_shards(sizes)
    shares = [share_of(whole, part, parts, 4096) for part in range(parts)]
    covered = sorted(extent for share in shares for extent in share)
    for shard, size in enumerate(sizes):
        own = [extent for extent in covered if extent.shard == shard]
        assert sum(extent.length_bytes for extent in own) == size
        assert [extent.offset_bytes for extent in own[1:]] == [e.offset_bytes + e.length_bytes for e in own[:-1]]
    assert all(extent.offset_bytes % 4096 == 0 for extent in covered)
    lengths = [sum(extent.length_bytes for extent in share) for share in shares]
    assert max(lengths) - sum(sizes) / parts <= 4096
