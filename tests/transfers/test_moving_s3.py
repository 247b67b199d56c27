"""Transfers into and out of a bucket of a real store, by the same workers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import factories
import pytest
from django.db import connection
from muster_agent.jobs.failpoints import POINTS
from muster_agent.protocol.stores import StoreAt

from apps.checkpoints.models import Placement
from apps.storage.models import StorageTier
from apps.transfers import moving, planning, stores
from apps.transfers.models import Transfer
from apps.transfers.services import request_transfer
from tests.servers.s3 import S3Server
from tests.transfers.conftest import Tiers, drive
from tests.transfers.test_crashes import bytes_of, in_a_worker, let_the_lease_end


@pytest.fixture
def bucket_tiers(tiers: Tiers, s3_server: S3Server, settings: Any) -> Iterator[Tiers]:
    """The cold tier lies in a bucket."""
    settings.WORKER_ROOTS = [*settings.WORKER_ROOTS, s3_server.place]
    StorageTier.objects.filter(pk=tiers.cold.pk).delete()
    stores._store.cache_clear()
    cold = factories.tier(tiers.hot.cluster, "bucket", f"{s3_server.place}/cold", kind="object_store", speed_order=2)
    yield Tiers(tiers.hot, cold)
    stores._store.cache_clear()


def objects(server: S3Server, step: int) -> dict[str, bytes]:
    prefix = f"cold/llama/step-{step:08d}/"
    return {key.removeprefix(prefix): server.get(key) for key in server.keys(prefix) if ".muster" not in key}


@pytest.mark.django_db
@pytest.mark.parametrize("proof", ["read_back", "checksum"])
def test_a_policy_moves_into_a_bucket_stages_back_and_lets_expire(
    bucket_tiers: Tiers, s3_server: S3Server, proof: str
) -> None:
    tiers = bucket_tiers
    tiers.save(10, 20, 30)
    before = bytes_of(tiers.path(10))
    policy = tiers.policy(keep_newest=1, proof=proof, expire_after_days=20)
    for transfer in [*planning.run_policy(policy=policy, actor="x").transfers.all()]:
        done = drive(transfer)
        assert (done.state, done.proof_detail["by"]) == ("done", proof), done.problem
    assert objects(s3_server, 10) == before and not tiers.path(10).exists()
    cold = tiers.placement(10, tiers.cold)
    assert (cold.status, cold.trust) == ("complete", "verified")
    staged = drive(request_transfer(placement=cold, kind="stage", target_tier=tiers.hot, actor="olga"))
    assert staged.state == "done" and bytes_of(tiers.path(10)) == before, staged.problem
    gone = drive(request_transfer(placement=tiers.placement(10), kind="retire", actor="olga"))
    assert gone.state == "done" and not tiers.path(10).exists(), gone.problem
    for transfer in [*planning.run_policy(policy=policy, actor="x").transfers.all()]:
        assert transfer.kind == "expire" and drive(transfer).state == "done", transfer.problem
    assert all("step-00000010" not in key for key in s3_server.keys(""))
    assert tiers.placement(10, tiers.cold).status == "missing"


@pytest.mark.django_db
def test_a_bucket_that_the_workers_may_not_use_is_out_of_reach(bucket_tiers: Tiers, settings: Any) -> None:
    from apps.core.errors import Conflict

    bucket_tiers.save(10, 20)
    settings.WORKER_ROOTS = [root for root in settings.WORKER_ROOTS if not root.startswith("s3://")]
    with pytest.raises(Conflict, match="MUSTER_WORKER_ROOTS"):
        request_transfer(placement=bucket_tiers.placement(10), kind="move", target_tier=bucket_tiers.cold, actor="olga")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("point", [*POINTS])
def test_a_worker_killed_at_a_boundary_leaves_one_copy_and_no_parts(
    bucket_tiers: Tiers, s3_server: S3Server, point: str
) -> None:
    tiers = bucket_tiers
    tiers.save(10, 20)
    before = bytes_of(tiers.path(10))
    transfer = request_transfer(placement=tiers.placement(10), kind="move", target_tier=tiers.cold, actor="olga")

    def work() -> None:
        stores._store.cache_clear()
        moving.work(transfer.pk)

    assert in_a_worker(work, failpoint=point) == signal.SIGKILL
    connection.close()
    assert bytes_of(tiers.path(10)) == before or objects(s3_server, 10) == before
    let_the_lease_end()
    assert drive(transfer).state == "done", Transfer.objects.get().problem
    assert objects(s3_server, 10) == before and not tiers.path(10).exists()
    there = Placement.objects.filter(checkpoint__step=10).exclude(status="missing")
    assert [(row.tier_id, row.trust) for row in there] == [(tiers.cold.pk, "verified")]
    store = stores.store_for("s3://x", StoreAt())
    assert store is not None and store.unfinished(s3_server.bucket, "") == []
