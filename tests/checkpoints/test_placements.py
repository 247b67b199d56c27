"""Whose shards are whose, and holds."""

from __future__ import annotations

from typing import Any

import factories
import pytest

from apps.checkpoints.models import PlacementHold, Shard
from apps.checkpoints.placements import hold, release, shards_by_rank, split_evenly

pytestmark = pytest.mark.django_db


@pytest.fixture
def placement() -> Any:
    cluster = factories.cluster()
    return factories.placement(factories.run(cluster), factories.tier(cluster), shards=3)


def shard(placement: Any, path: str, **fields: Any) -> Shard:
    return Shard.objects.create(placement=placement, path=path, **{"size_bytes": 10, "role": "model", **fields})


def test_every_rank_reads_its_own_shards_and_the_metadata(placement: Any) -> None:
    shard(placement, "index.json", role="metadata")
    shard(placement, "gone.safetensors", size_bytes=None, rank=1)
    by_rank = shards_by_rank(placement)
    assert {rank: [item.path for item in shards] for rank, shards in by_rank.items()} == {
        rank: [f"rank-{rank:05d}-of-00003.safetensors", "index.json"] for rank in range(3)
    }


def test_without_ranks_all_shards_come_under_none(placement: Any) -> None:
    placement.shards.update(rank=None)
    assert list(shards_by_rank(placement)) == [None] and len(shards_by_rank(placement)[None]) == 3


def test_an_even_split_balances_bytes_and_gives_metadata_to_all() -> None:
    shards = [Shard(path=f"s{n}", size_bytes=size, role="model") for n, size in enumerate([70, 10, 20, 40, 60])]
    shards.append(Shard(path="index.json", size_bytes=1, role="metadata"))
    parts = split_evenly(shards, 2)
    assert sorted(sum(item.size_bytes or 0 for item in part) for part in parts) == [101, 101]
    assert all(part[-1].path == "index.json" for part in parts)
    assert sorted(item.path for part in parts for item in part if item.role == "model") == [
        "s0",
        "s1",
        "s2",
        "s3",
        "s4",
    ]


def test_a_hold_is_held_once_released_once_and_may_be_taken_again(placement: Any) -> None:
    held = {"placement": placement, "source_kind": "drill", "source_id": "drl_1"}
    hold(**held)
    hold(**held)
    assert PlacementHold.objects.filter(released_at=None).count() == 1
    assert release(**held) and not release(**held)
    assert not PlacementHold.objects.filter(released_at=None).exists()
    hold(**held)
    assert PlacementHold.objects.get().released_at is None
