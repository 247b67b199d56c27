"""Scans at the times of a tier's schedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import factories
import pytest
from django.utils import timezone
from listings import answer, listing
from rest import caller

from apps.accounts.models import Role
from apps.checkpoints import rescans, scans
from apps.checkpoints.models import InventoryScan
from apps.core.errors import InvalidInput
from apps.fleet.models import Agent
from apps.fleet.tasks import tasks_of
from apps.storage import services
from apps.storage.models import StorageTier
from workers.tasks import control

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)


@pytest.fixture
def tier() -> StorageTier:
    cluster = factories.cluster()
    factories.agent(factories.node(cluster), roots=["/ckpt"])
    return factories.tier(cluster)


def scheduled(tier: StorageTier, at: datetime, text: str = "0 * * * *", zone: str = "UTC") -> StorageTier:
    StorageTier.objects.filter(pk=tier.pk).update(scan_cron=text, scan_time_zone=zone, next_scan_at=at)
    tier.refresh_from_db()
    return tier


def finish(scan: InventoryScan) -> None:
    answer(tasks_of("scan", scan.pk).get(), listing())
    scans.advance(scan.pk)


def test_a_schedule_is_kept_in_its_time_zone_across_a_clock_change(tier: StorageTier) -> None:
    services.update_tier(tier=tier, actor="ada", scan_cron="0 3 * * *", scan_time_zone="Europe/Berlin")
    scheduled(tier, datetime(2026, 3, 28, 2, 0, tzinfo=UTC), "0 3 * * *", "Europe/Berlin")
    assert rescans.fire_due(NOON) == 1
    tier.refresh_from_db()
    assert tier.next_scan_at == datetime(2026, 3, 29, 1, 0, tzinfo=UTC), "summer time has begun"


def test_a_bad_schedule_or_zone_is_refused_with_a_pointer(tier: StorageTier) -> None:
    for field, value in (("scan_cron", "every day"), ("scan_cron", "0 0 30 2 *"), ("scan_time_zone", "Mars/Olympus")):
        with pytest.raises(InvalidInput) as refused:
            services.update_tier(tier=tier, actor="ada", **{field: value})
        assert refused.value.pointer == f"/{field}"
        tier.refresh_from_db()
    services.update_tier(tier=tier, actor="ada", scan_cron="*/5 * * * *")
    assert tier.next_scan_at is not None
    services.update_tier(tier=tier, actor="ada", scan_cron="")
    assert tier.next_scan_at is None


def test_a_due_tier_is_scanned_once_however_many_beats_look(tier: StorageTier) -> None:
    scheduled(tier, NOON)
    late = NOON + timedelta(seconds=2)
    assert (rescans.fire_scheduled(late), rescans.fire_scheduled(late)) == (1, 0)
    scan = InventoryScan.objects.get()
    assert (scan.requested_by, scan.planned_at, scan.root) == ("schedule", NOON, "/ckpt")
    tier.refresh_from_db()
    assert tier.next_scan_at == NOON + timedelta(hours=1)


def test_two_beats_that_race_request_one_scan(tier: StorageTier) -> None:
    scheduled(tier, NOON)
    first, second = (StorageTier.objects.select_related("cluster").get() for _ in range(2))
    assert (rescans._fire_scheduled(first, NOON), rescans._fire_scheduled(second, NOON)) == (1, 0)


def test_times_that_were_missed_give_one_scan(tier: StorageTier) -> None:
    scheduled(tier, NOON - timedelta(days=3))
    assert rescans.fire_scheduled(NOON) == 1
    finish(InventoryScan.objects.get())
    assert rescans.fire_scheduled(NOON + timedelta(seconds=1)) == 0


def test_a_time_that_comes_while_the_tier_is_scanned_is_answered_by_that_scan(tier: StorageTier) -> None:
    scans.request_scan(tier=tier, actor="olga")
    scheduled(tier, NOON)
    assert rescans.fire_scheduled(NOON) == 0
    tier.refresh_from_db()
    assert InventoryScan.objects.count() == 1 and tier.next_scan_at == NOON + timedelta(hours=1)


def test_while_nobody_reaches_the_tier_it_is_tried_again_soon(tier: StorageTier) -> None:
    Agent.objects.update(state="lost")
    scheduled(tier, NOON)
    assert rescans.fire_scheduled(NOON) == 0
    Agent.objects.update(state="online")
    assert rescans.fire_scheduled(NOON + timedelta(seconds=1)) == 0
    assert rescans.fire_scheduled(NOON + rescans.TRY_AGAIN) == 1


def test_a_tier_with_a_schedule_is_not_scanned_for_its_age(tier: StorageTier) -> None:
    scheduled(tier, timezone.now() + timedelta(days=1))
    StorageTier.objects.update(created_at=timezone.now() - timedelta(days=1))
    assert rescans.request_overdue() == 0
    StorageTier.objects.update(scan_cron="")
    assert rescans.request_overdue() == 1


def test_a_schedule_that_cannot_be_read_any_more_stops_itself(tier: StorageTier) -> None:
    scheduled(tier, NOON, zone="Gone/Zone")
    assert rescans.fire_scheduled(NOON) == 0
    tier.refresh_from_db()
    assert tier.next_scan_at is None


def test_the_beat_scans_on_schedule(tier: StorageTier) -> None:
    scheduled(tier, timezone.now())
    control.tick()
    assert InventoryScan.objects.get().requested_by == "schedule"


def test_a_schedule_is_set_through_the_api(tier: StorageTier) -> None:
    change: dict[str, Any] = {"scan_cron": "30 2 * * *", "scan_time_zone": "Asia/Tokyo"}
    assert caller(Role.OPERATOR).patch(f"tiers/{tier.pk}", change).status_code == 403
    admin = caller(Role.ADMIN)
    body = admin.patch(f"tiers/{tier.pk}", change).json()
    assert body["next_scan_at"].endswith("T17:30:00.000000Z") and body["scanned_by"] == "agents"
    refused = admin.patch(f"tiers/{tier.pk}", {"scan_time_zone": "Nowhere"})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/scan_time_zone")
