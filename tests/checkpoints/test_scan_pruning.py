"""Old scans go with what they found different; what can be compared and what an alert stands on stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import factories
import pytest
from django.utils import timezone
from listings import listing, scanned, shard_map

from apps.checkpoints import scan_pruning, scans
from apps.checkpoints.models import InventoryScan, Placement, ScanChange

pytestmark = pytest.mark.django_db


@pytest.fixture
def tier() -> Any:
    cluster = factories.cluster()
    factories.agent(factories.node(cluster), roots=["/ckpt"])
    return factories.tier(cluster)


def aged(scan: InventoryScan, days: float, **fields: Any) -> InventoryScan:
    at = timezone.now() - timedelta(days=days)
    InventoryScan.objects.filter(pk=scan.pk).update(created_at=at, finished_at=at, **fields)
    return scan


def kept() -> set[str]:
    scan_pruning.prune()
    return set(InventoryScan.objects.values_list("pk", flat=True))


def test_scans_past_their_time_go_with_their_changes_and_the_copies_stay(tier: Any) -> None:
    first, second = (scanned(tier, listing(*map(shard_map, steps))) for steps in ([1], [1, 2]))
    third, fourth = (scanned(tier, listing(*map(shard_map, steps))) for steps in ([1, 2, 3], [1, 2, 3, 4]))
    for scan, days in ((first, 31), (second, 29), (third, 1), (fourth, 0)):
        aged(scan, days)
    assert kept() == {second.pk, third.pk, fourth.pk}
    assert not ScanChange.objects.filter(scan=first.pk).exists()
    assert ScanChange.objects.count() == 3 and Placement.objects.filter(status="complete").count() == 4


def test_the_newest_two_that_finished_on_each_tier_stay_however_old(tier: Any) -> None:
    other = factories.tier(tier.cluster, "nas", "/ckpt/nas")
    old = [aged(scanned(tier, listing(shard_map(1))), days) for days in (400, 300, 200)]
    alone = aged(scanned(other, listing(root="/ckpt/nas")), 500)
    failed = aged(scanned(tier, listing()), 100, state="failed", error_code="agent_lost")
    unseen = aged(scanned(tier, listing()), 90, state="failed", error_code="root_unreadable")
    assert kept() == {old[1].pk, old[2].pk, alone.pk, unseen.pk} and failed.pk not in kept()


def test_a_scan_that_runs_is_never_removed_and_nothing_is_where_no_limit_is_set(tier: Any, settings: Any) -> None:
    for days in (500, 400, 300):
        aged(scanned(tier, listing(shard_map(1))), days)
    running = scans.request_scan(tier=tier, actor="olga")
    InventoryScan.objects.filter(pk=running.pk).update(created_at=timezone.now() - timedelta(days=600))
    settings.SCAN_KEEP_DAYS = 0
    assert len(kept()) == 4
    settings.SCAN_KEEP_DAYS = 30
    assert running.pk in kept() and len(kept()) == 3


def test_many_changes_go_in_pieces(tier: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(scan_pruning, "_CHANGES_AT_ONCE", 2)
    steps = [shard_map(step) for step in range(5)]
    for days in (90, 80, 70):
        aged(scanned(tier, listing(*steps)), days)
    assert [scan_pruning.prune() for _ in range(4)] == [0, 0, 1, 0]
    assert not ScanChange.objects.exists()


def test_the_sweep_prunes(tier: Any, monkeypatch: Any) -> None:
    from workers.tasks import control

    for days in (90, 80, 70):
        aged(scanned(tier, listing(shard_map(1))), days)
    oldest = InventoryScan.objects.earliest("created_at")
    control.sweep()
    assert not InventoryScan.objects.filter(pk=oldest.pk).exists()
