"""How a checkpoint is cut for its ranks, and the seconds that a better cut would save."""

from __future__ import annotations

from typing import Any

import factories
import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Role
from apps.checkpoints.models import Placement, Shard
from apps.drills.models import Drill, DrillRung, RankResult
from apps.recovery.rank_shard_audit import rank_shard_audit
from apps.recovery.rank_shards import Rates, Shape, shape_findings
from apps.storage.models import TierCeiling

GB = 1_000_000_000
RATES = Rates(together=10 * GB, one=2 * GB)


def shape(**given: Any) -> Shape:
    return Shape(
        **{"rank_bytes": {rank: 5 * GB for rank in range(4)}, "common_bytes": 0, "file_count": 4, "readers": 4, **given}
    )


def only(found: list[Any]) -> Any:
    (one,) = found
    return one


def test_an_even_cut_holds_nobody_up() -> None:
    assert shape_findings(shape(), RATES) == []
    assert shape_findings(shape(readers=1), RATES) == []


def test_one_file_for_all_ranks_costs_the_difference_to_even_shards() -> None:
    found = only(shape_findings(shape(rank_bytes={}, common_bytes=40 * GB, file_count=1, readers=8), RATES))
    # one reader at 2 GB/s; eight even ones read 5 GB each at 2 GB/s, and all 40 GB pass at 10 GB/s
    assert (found.code, found.seconds, found.cured_seconds, found.saved_seconds) == ("monolithic", 20.0, 4.0, 16.0)


def test_a_skewed_rank_costs_what_it_reads_beyond_the_mean() -> None:
    found = only(shape_findings(shape(rank_bytes={0: 14 * GB, 1: 2 * GB, 2: 2 * GB, 3: 2 * GB}), RATES))
    assert (found.code, found.seconds, found.cured_seconds) == ("rank_skew", 7.0, 2.5)
    assert "Rank 0 reads 2.8 times" in found.detail
    assert shape_findings(shape(rank_bytes={0: 7 * GB, 1: 5 * GB, 2: 5 * GB, 3: 5 * GB}), RATES) == []


def test_state_that_every_rank_reads_is_read_as_often_as_there_are_ranks() -> None:
    found = only(shape_findings(shape(common_bytes=20 * GB), RATES))
    assert (found.code, found.seconds, found.cured_seconds) == ("shared_shard", 12.5, 5.0)


def test_fewer_stripes_than_readers_of_a_file_are_narrow() -> None:
    given = {"rank_bytes": {}, "common_bytes": 40 * GB, "file_count": 1, "readers": 8}
    codes = [one.code for one in shape_findings(shape(**given, stripe_count=2), RATES)]
    assert codes == ["monolithic", "stripe_narrow"]
    narrow = shape_findings(shape(**given, stripe_count=2), RATES)[1]
    assert (narrow.seconds, narrow.cured_seconds) == (10.0, 4.0)
    assert [one.code for one in shape_findings(shape(**given, stripe_count=8), RATES)] == ["monolithic"]
    assert shape_findings(shape(stripe_count=1), RATES) == []  # each file has one reader


def test_without_both_rates_no_seconds_are_made_up() -> None:
    for rates in (Rates(None, 2 * GB), Rates(10 * GB, None)):
        found = only(shape_findings(shape(common_bytes=20 * GB), rates))
        assert (found.seconds, found.cured_seconds, found.saved_seconds) == (None, None, None)


@pytest.fixture
def placement(db: None) -> Placement:
    run = factories.run(factories.cluster())
    copy = factories.placement(run, factories.tier(run.cluster), shards=0, world_size=2)
    sizes = ((0, 9 * GB, "model"), (1, GB, "model"), (None, 4 * GB, "model"), (None, 7, "metadata"), (None, 9, "other"))
    for number, (rank, size_bytes, role) in enumerate(sizes):
        Shard.objects.create(placement=copy, path=f"s{number}", rank=rank, size_bytes=size_bytes, role=role)
    for clients, rate in ((1, 2 * GB), (8, 10 * GB)):
        TierCeiling.objects.create(
            tier=copy.tier, client_count=clients, bytes_per_second=rate, method="test", measured_at=timezone.now()
        )
    return copy


def test_an_audit_takes_shards_rates_and_stripes_from_what_was_measured(
    placement: Placement, django_assert_max_num_queries: Any
) -> None:
    run = placement.checkpoint.run
    drill = Drill.objects.create(
        cluster=run.cluster, run=run, kind="reload", requested_by="olga", created_at=timezone.now()
    )
    rung = DrillRung.objects.create(drill=drill, placement=placement, order=0, client_count=1)
    RankResult.objects.create(rung=rung, rank=0, outcome="done", evidence={"stripe_count": 1})
    with django_assert_max_num_queries(5):
        told = rank_shard_audit(placement)
    assert (told.shape.rank_bytes, told.shape.common_bytes, told.shape.file_count) == ({0: 9 * GB, 1: GB}, 4 * GB, 3)
    assert (told.shape.stripe_count, told.rates) == (1, RATES)
    assert [one.code for one in told.findings] == ["rank_skew", "shared_shard"]


def test_the_api_gives_findings_with_the_seconds_that_their_cures_save(placement: Placement, client: Client) -> None:
    bearer = {"Authorization": f"Bearer {factories.token(factories.user('vera', Role.VIEWER))}"}
    body = client.get(f"/api/v1/placements/{placement.pk}/rank-shards", headers=bearer).json()
    skew = body["findings"][0]
    assert (skew["code"], skew["seconds"], skew["cured_seconds"], skew["saved_seconds"]) == ("rank_skew", 6.5, 4.5, 2.0)
    assert client.get("/api/v1/placements/plc_none/rank-shards", headers=bearer).status_code == 404
