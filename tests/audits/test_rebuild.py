"""A lost database: scans of the tiers, with the manifests that lie beside the data, bring back what was known."""

from __future__ import annotations

from typing import Any

import pytest

from apps.checkpoints.models import Checkpoint, Manifest, Placement, TrainingRun, TrustEvidence
from apps.transfers.services import request_transfer
from tests.audits.conftest import Tiers
from tests.audits.test_rounds import ask
from tests.transfers.conftest import drive
from workers.tasks.move import audit_slice

pytestmark = pytest.mark.django_db
SAME = (
    "path",
    "status",
    "manifest_id",
    "fingerprint",
    "total_bytes",
    "shard_count",
    "format",
    "world_size",
    "resumable",
)


def known() -> dict[tuple[str, str, int], dict[str, Any]]:
    rows = Placement.objects.select_related("checkpoint__run", "tier")
    return {
        (row.checkpoint.run.name, row.tier.name, row.checkpoint.step): {name: getattr(row, name) for name in SAME}
        for row in rows
    }


def require_rebuilt(tiers: Tiers) -> None:
    """What a seal speaks for is `sealed` again, at the time of the seal; that bytes were verified has to be proven
    again."""
    tiers.save(10, 20, verified=False)
    tiers.save(30, sealed=False, verified=False)
    drive(request_transfer(placement=tiers.placement(20), kind="copy", target_tier=tiers.cold, actor="olga"))
    before, sealed_at = known(), Manifest.objects.get(placements=tiers.placement(10)).sealed_at
    TrainingRun.objects.all().delete()
    assert not Placement.objects.exists() and not Manifest.objects.exists() and not Checkpoint.objects.exists()
    for tier in (tiers.hot, tiers.cold):
        tiers.scan(tier)
    assert known() == before and len(before) == 4
    trust = {(row.tier.name, row.checkpoint.step): row.trust for row in Placement.objects.all()}
    assert trust == {
        ("nvme", 10): "sealed",
        ("nvme", 20): "sealed",
        ("nvme", 30): "complete",
        (tiers.cold.name, 20): "sealed",
    }
    assert TrustEvidence.objects.get(placement=tiers.placement(10)).at == sealed_at
    audit_slice(ask(tiers, 20).pk)
    assert tiers.placement(20).trust == "verified"


def test_an_empty_database_is_rebuilt_from_folders(tiers: Tiers) -> None:
    require_rebuilt(tiers)


def test_an_empty_database_is_rebuilt_from_a_folder_and_a_bucket(bucket_tiers: Tiers) -> None:
    require_rebuilt(bucket_tiers)
