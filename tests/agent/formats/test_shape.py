from __future__ import annotations

from muster_agent.formats.base import Role, ShardEntry
from muster_agent.formats.shape import shape_findings

GIB = 1 << 30


def shard(rank: int | None, size_bytes: int, role: Role = Role.MODEL) -> ShardEntry:
    return ShardEntry(path=f"{rank}", size_bytes=size_bytes, rank=rank, role=role)


def codes(*shards: ShardEntry) -> list[str]:
    return [found.code for found in shape_findings(shards, None, "c")]


def test_one_large_file_is_monolithic_and_the_gain_is_predicted() -> None:
    found = shape_findings([shard(None, 4 * GIB)], 4, "c")
    assert [one.code for one in found] == ["monolithic"]
    assert "1/4 of the time" in found[0].detail


def test_small_checkpoints_have_no_shape() -> None:
    assert codes(shard(None, GIB - 1)) == []
    assert codes(shard(0, 10), shard(1, 500)) == []


def test_metadata_beside_one_file_does_not_hide_that_it_is_monolithic() -> None:
    assert codes(shard(None, GIB), shard(None, 5, Role.METADATA)) == ["monolithic"]


def test_a_rank_with_much_more_than_the_others_is_skew() -> None:
    found = shape_findings([shard(0, 3 * GIB), shard(1, GIB), shard(2, GIB), shard(3, GIB)], 4, "c")
    assert [one.code for one in found] == ["rank_skew"]
    assert "rank 0" in found[0].detail
    assert "50%" in found[0].detail


def test_even_ranks_are_not_skewed() -> None:
    assert codes(*(shard(rank, GIB) for rank in range(4))) == []
