"""The store's word for objects that nobody reads: what it tells, what that proves, and when it may not be asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import factories
import pytest

from apps.audits import services
from apps.audits.models import Audit
from apps.audits.report import sentence_of
from apps.checkpoints.models import Placement, SentSums, TrustEvidence
from apps.core.errors import InvalidInput
from apps.transfers import stores
from apps.transfers.services import request_transfer
from tests.servers.emulated_uploads import EmulatedUploads, Summed
from tests.transfers.conftest import Tiers, drive
from workers.tasks.move import audit_slice

pytestmark = [pytest.mark.django_db, pytest.mark.emulated]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedUploads]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1",
        "MUSTER_ALLOWED_NETWORKS": "127.0.0.0/8",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    stores._store.cache_clear()
    running = EmulatedUploads()
    yield running
    stores._store.cache_clear()
    running.stop()


@pytest.fixture
def sent(tiers: Tiers, store: EmulatedUploads, settings: Any) -> Placement:
    """Step 20 in a bucket, sent there by a transfer and proven by what the store told."""
    tiers.save(20)
    settings.WORKER_ROOTS = [*settings.WORKER_ROOTS, "s3://deep"]
    fields = {"kind": "object_store", "speed_order": 5, "endpoint_url": store.url}
    bucket = factories.tier(tiers.hot.cluster, "deep", "s3://deep/cold", **fields)
    wanted = {"kind": "copy", "target_tier": bucket, "proof": "checksum", "actor": "olga"}
    done = drive(request_transfer(placement=tiers.placement(20), **wanted))
    assert (done.state, done.proof_detail["checksum"]) == ("done", "CRC-64/NVME of every object"), done.problem
    return tiers.placement(20, bucket)


def asked(placement: Placement) -> Audit:
    audit = services.request_audit(placement=placement, mode="store", actor="olga")
    audit_slice(audit.pk)
    audit.refresh_from_db()
    return audit


def test_the_store_tells_what_was_sent_and_that_is_called_its_word(sent: Placement, store: EmulatedUploads) -> None:
    store.asked.clear()
    audit = asked(sent)
    assert (audit.outcome, audit.checked_bytes, audit.ran_by) == ("passed", 0, "workers"), audit.reason
    shards = [one for one in store.asked if ".safetensors" in one and one.startswith("HEAD")]
    assert len(shards) == 2
    assert "the store's word" in sentence_of(audit) and "No data was read" in sentence_of(audit)
    proof = TrustEvidence.objects.get(source_id=audit.pk)
    assert (proof.rung, proof.detail["by"]) == ("complete", "the store's word")
    assert not TrustEvidence.objects.filter(rung="verified", source_kind="audit", placement=sent).exists()


def test_another_sum_or_none_is_no_damage_and_no_proof(sent: Placement, store: EmulatedUploads) -> None:
    key = next(key for key in store.objects if "rank-00000" in key)
    stored = store.objects[key]
    assert isinstance(stored, Summed)
    stored.sums["x-amz-checksum-crc64nvme"] = "AAAAAAAAAAA="
    audit = asked(sent)
    assert audit.outcome == "failed" and "tells the CRC-64/NVME 0000000000000000" in audit.reason
    store.tells = ""
    assert "tells no check sum" in asked(sent).reason
    sent.refresh_from_db()
    assert sent.damaged_at is None and not TrustEvidence.objects.filter(source_kind="audit", placement=sent).exists()


def test_it_is_only_asked_of_objects_whose_sums_are_known(tiers: Tiers, sent: Placement) -> None:
    with pytest.raises(InvalidInput, match="Only the store of a bucket"):
        asked(tiers.placement(20))
    Placement.objects.filter(pk=sent.pk).update(fingerprint="another")
    with pytest.raises(InvalidInput, match="only a transfer of Muster's own"):
        asked(tiers.placement(20, sent.tier))
    assert SentSums.objects.filter(placement=sent).count() == 1
