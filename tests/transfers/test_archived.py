"""Staging from an archive class: the store is asked once; the transfer waits, does not give up, and goes on alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import factories
import pytest
from django.utils import timezone

from apps.checkpoints.models import Placement
from apps.core.errors import Conflict
from apps.transfers import moving, stores
from apps.transfers.models import Transfer
from apps.transfers.services import request_transfer
from tests.servers.emulated_s3 import EmulatedS3, Stored
from tests.transfers.conftest import Tiers, drive
from tests.transfers.test_moving import bytes_of

pytestmark = [pytest.mark.django_db, pytest.mark.emulated]


@pytest.fixture
def glacier(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedS3]:
    store = EmulatedS3()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("MUSTER_ALLOWED_NETWORKS", "127.0.0.0/8")
    stores._store.cache_clear()
    yield store
    stores._store.cache_clear()
    store.stop()


@pytest.fixture
def archived(tiers: Tiers, glacier: EmulatedS3, settings: Any) -> Placement:
    """Step 10 lies in the archive only, sealed; its tier names the store's endpoint."""
    tiers.save(10, 20)
    for path in tiers.path(10).iterdir():
        glacier.objects[f"cold/llama/{tiers.path(10).name}/{path.name}"] = Stored(path.read_bytes(), "GLACIER")
    settings.WORKER_ROOTS = [*settings.WORKER_ROOTS, "s3://deep"]
    fields = {"kind": "archive", "speed_order": 5, "endpoint_url": glacier.url}
    tier = factories.tier(tiers.hot.cluster, "deep", "s3://deep/cold", **fields)
    path = f"s3://deep/cold/llama/{tiers.path(10).name}"
    hot = tiers.placement(10)
    return Placement.objects.create(
        checkpoint=hot.checkpoint, tier=tier, path=path, manifest=hot.manifest, status="archived",
        listed_status="archived", first_seen_at=timezone.now(), last_seen_at=timezone.now(),
    )  # fmt: skip


def stage(tiers: Tiers, archived: Placement) -> Transfer:
    return request_transfer(placement=archived, kind="stage", target_tier=tiers.cold, actor="olga")


def test_a_checkpoint_is_brought_back_from_the_archive_and_staged(
    tiers: Tiers, archived: Placement, glacier: EmulatedS3
) -> None:
    transfer = stage(tiers, archived)
    for _ in range(40):  # far more looks than attempts that trouble is given
        moving.work(transfer.pk)
        transfer.refresh_from_db()
        assert (transfer.state, transfer.problem_code, transfer.attempts) == ("paused", "restoring", 0)
        Transfer.objects.update(next_attempt_at=timezone.now())
    asked = [one for one in glacier.asked if one.startswith("POST")]
    assert len(asked) == len(glacier.objects) and all("restore" in one for one in asked)
    for stored in glacier.objects.values():
        stored.restore = "done"
    moving.work(transfer.pk)
    done = drive(transfer)
    assert (done.state, done.problem) == ("done", "")
    assert bytes_of(tiers.cold_path(10)) == bytes_of(tiers.path(10))
    assert tiers.placement(10, tiers.cold).trust == "verified"


def test_an_archive_that_never_answers_ends_it_after_days(tiers: Tiers, archived: Placement) -> None:
    transfer = stage(tiers, archived)
    Transfer.objects.update(created_at=timezone.now() - timedelta(days=5))
    moving.work(transfer.pk)
    transfer.refresh_from_db()
    assert (transfer.state, transfer.problem_code) == ("failed", "restoring")


def test_what_lies_in_an_archive_is_not_moved_away(tiers: Tiers, archived: Placement) -> None:
    with pytest.raises(Conflict, match="only what is complete"):
        request_transfer(placement=archived, kind="move", target_tier=tiers.cold, actor="olga")


def test_an_endpoint_in_a_private_network_is_not_reached_unless_this_host_allows_it(
    tiers: Tiers, archived: Placement, glacier: EmulatedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_ALLOWED_NETWORKS", "10.0.0.0/8")
    transfer = stage(tiers, archived)
    moving.work(transfer.pk)
    transfer.refresh_from_db()
    assert transfer.state in ("paused", "failed") and "127.0.0.1 is not public" in transfer.problem, transfer.problem
    assert glacier.asked == []


def test_keys_that_lead_out_of_their_checkpoint_are_not_copied(
    tiers: Tiers, archived: Placement, glacier: EmulatedS3, tmp_path: Path
) -> None:
    """Whoever may write into the bucket must not write beside the copy through whoever makes it."""
    for stored in glacier.objects.values():
        stored.storage_class = "STANDARD"
    key = next(iter(glacier.objects)).rpartition("/")[0]
    glacier.objects[f"{key}/../../../../evil"] = Stored(b"x")
    transfer = drive(stage(tiers, archived))
    assert (transfer.state, transfer.problem_code) == ("failed", "unsupported"), transfer.problem
    assert "leads out of it" in transfer.problem
    assert not list(tmp_path.rglob("evil"))
