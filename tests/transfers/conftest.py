"""Two tiers of real folders, with real checkpoints that a real scan has listed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import factories
import pytest
from muster_agent.formats import scan_reading
from muster_agent.jobs.seal import seal

from apps.checkpoints import scans
from apps.checkpoints.evidence import add_evidence
from apps.checkpoints.models import Placement, TrainingRun
from apps.storage.models import StorageTier
from apps.transfers.models import RetentionPolicy, Transfer
from apps.transfers.policies import create_policy
from tests.agent.checkpoint_factory import write_checkpoint
from workers.tasks.move import move_slice
from workers.tasks.scan import list_slice


@dataclass
class Tiers:
    hot: StorageTier
    cold: StorageTier

    @property
    def run(self) -> TrainingRun:
        return TrainingRun.objects.get()

    def path(self, step: int) -> Path:
        return Path(self.hot.uri) / "llama" / f"step-{step:08d}"

    def cold_path(self, step: int) -> Path:
        return Path(self.cold.uri) / "llama" / f"step-{step:08d}"

    def save(self, *steps: int, sealed: bool = True, verified: bool = True, **made: Any) -> None:
        """Write checkpoints, seal them, scan the tier, and say that they were verified. Steps are hours apart."""
        for step in steps:
            folder = write_checkpoint(
                Path(self.hot.uri) / "llama", step, **{"rank_bytes": 3000, "world_size": 2, **made}
            )
            at = time.time() - 86_400 * 30 + step * 60
            for file in folder.iterdir():
                os.utime(file, times=(at, at))
            if sealed:
                assert seal(str(folder)).manifest is not None
        self.scan()
        if verified:
            for step in steps:
                self.verify(self.placement(step))

    def scan(self, tier: StorageTier | None = None) -> None:
        scan = scans.request_scan(tier=tier or self.hot, actor="test")
        list_slice(scan.pk)
        scan.refresh_from_db()
        assert scan.state == "finished", scan.error

    def verify(self, placement: Placement) -> None:
        add_evidence(
            placement=placement, rung="verified", source_kind="audit", source_id="aud_test",
            fingerprint=placement.fingerprint,
        )  # fmt: skip

    def placement(self, step: int, tier: StorageTier | None = None) -> Placement:
        return Placement.objects.select_related("checkpoint__run", "tier__cluster", "manifest").get(
            checkpoint__step=step, tier=tier or self.hot
        )

    def policy(self, **details: Any) -> RetentionPolicy:
        fields = {"name": "keep", "cold_tier": self.cold, "keep_newest": 2, "plan_only": False, **details}
        return create_policy(cluster=self.hot.cluster, hot_tier=self.hot, actor="olga", **fields)


@pytest.fixture
def tiers(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Tiers:
    monkeypatch.setattr(scan_reading, "_RACY_NS", 0)
    settings.WORKER_ROOTS = [str(tmp_path)]
    cluster = factories.cluster()
    for name in ("hot", "cold"):
        (tmp_path / name).mkdir()
    fields = {"in_cluster": cluster, "scanned_by": "workers"}
    return Tiers(
        factories.tier(name="nvme", uri=str(tmp_path / "hot"), speed_order=0, **fields),
        factories.tier(name="nas", uri=str(tmp_path / "cold"), speed_order=2, kind="nas", **fields),
    )


def drive(transfer: Transfer, slices: int = 30) -> Transfer:
    """Slice after slice, as the workers take them, until it rests."""
    for _ in range(slices):
        transfer.refresh_from_db()
        if transfer.next_attempt_at is None or transfer.state == Transfer.State.PAUSED:
            return transfer
        move_slice(transfer.pk)
    raise AssertionError(f"it is still {transfer.state}")
