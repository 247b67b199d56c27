"""Scans after saves and by the clock, which nobody has to ask for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import factories
import pytest
from django.utils import timezone
from listings import answer, listing, scanned, shard_map, start
from muster_agent.protocol.wire import HookRecord

from apps.accounts.models import ActivityEntry
from apps.checkpoints import rescans, scans
from apps.checkpoints.hooks import ingest_records
from apps.checkpoints.models import InventoryScan, Placement, ScanDemand
from apps.fleet.models import Agent
from apps.fleet.tasks import tasks_of
from apps.storage.models import StorageTier
from workers.tasks import control

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent() -> Agent:
    return factories.agent(factories.node(factories.cluster()), roots=["/ckpt"])


@pytest.fixture
def tier(agent: Agent) -> StorageTier:
    return factories.tier(agent.node.cluster)


def save(seq: int, step: int = 20, path: str | None = "/ckpt/llama-70b/step-20", kind: str = "save_finished") -> Any:
    return HookRecord(
        source="host-1-7",
        seq=seq,
        run="llama-70b",
        attempt="launch-1",
        kind=kind,
        at_unix_seconds=timezone.now().timestamp(),
        mono_seconds=float(seq),
        step=step,
        data={} if path is None else {"path": path},
    )


def soon() -> Any:
    return timezone.now() + rescans.SETTLE + timedelta(seconds=1)


def finish(scan: InventoryScan, *found: Any) -> None:
    task = tasks_of("scan", scan.pk).get()
    start(task)
    answer(task, listing(*found))
    scans.advance(scan.pk)


def test_a_save_has_its_tier_scanned_and_the_checkpoint_is_found(agent: Agent, tier: StorageTier) -> None:
    elsewhere = factories.tier(tier.cluster, "nas", "/nas")
    ingest_records(agent=agent, records=[save(1)])
    assert rescans.fire_due() == 0, "ranks that finish a moment later share the scan"
    assert rescans.fire_due(soon()) == 1
    scan = InventoryScan.objects.get()
    assert (scan.tier, scan.root, scan.agent, scan.requested_by) == (tier, "/ckpt", agent, "save")
    finish(scan, shard_map(20))
    assert Placement.objects.get().checkpoint.step == 20
    assert not ScanDemand.objects.exists() and not elsewhere.scans.exists()


def test_the_agent_that_forwarded_the_news_lists_where_several_could(agent: Agent, tier: StorageTier) -> None:
    other = factories.agent(factories.node(tier.cluster, "gpu-9"), roots=["/ckpt"])
    ingest_records(agent=other, records=[save(1)])
    rescans.fire_due(soon())
    assert InventoryScan.objects.get().agent == other


def test_another_agent_lists_when_the_one_that_told_cannot(agent: Agent, tier: StorageTier) -> None:
    blind = factories.agent(factories.node(tier.cluster, "gpu-9"), roots=["/data"])
    ingest_records(agent=blind, records=[save(1)])
    rescans.fire_due(soon())
    assert InventoryScan.objects.get().agent == agent


def test_saves_in_a_row_give_one_scan_and_do_not_put_it_off(agent: Agent, tier: StorageTier) -> None:
    ingest_records(agent=agent, records=[save(1)])
    first_due = ScanDemand.objects.get().due_at
    ingest_records(agent=agent, records=[save(2), save(3, 30)])
    assert ScanDemand.objects.get().due_at == first_due
    assert (rescans.fire_due(soon()), rescans.fire_due(soon())) == (1, 0)


def test_a_save_during_a_scan_gives_another_one_after_it(agent: Agent, tier: StorageTier) -> None:
    running = scans.request_scan(tier=tier, actor="olga")
    ingest_records(agent=agent, records=[save(1)])
    assert rescans.fire_due(soon()) == 0
    finish(running)
    assert rescans.fire_due(soon()) == 0, "not twice within a moment"
    assert rescans.fire_due(timezone.now() + rescans.SPACING + timedelta(seconds=3)) == 1


def test_news_that_came_before_and_other_news_ask_for_nothing(agent: Agent, tier: StorageTier) -> None:
    ingest_records(agent=agent, records=[save(1), save(2, kind="save_started"), save(3, path="/elsewhere/step-20")])
    ScanDemand.objects.all().delete()
    ingest_records(agent=agent, records=[save(1), save(4, kind="save_started"), save(5, path="/elsewhere/step-20")])
    assert not ScanDemand.objects.exists()


def test_a_save_without_a_path_means_the_tiers_where_its_run_is_known(agent: Agent, tier: StorageTier) -> None:
    factories.tier(tier.cluster, "nas", "/nas")
    factories.placement(factories.run(tier.cluster), tier)
    ingest_records(agent=agent, records=[save(1, path=None)])
    assert ScanDemand.objects.get().tier == tier


def test_while_no_agent_reaches_the_tier_the_demand_waits(agent: Agent, tier: StorageTier) -> None:
    ingest_records(agent=agent, records=[save(1)])
    Agent.objects.update(state="lost")
    assert rescans.fire_due(soon()) == 0
    Agent.objects.update(state="online")
    assert rescans.fire_due(soon() + rescans.TRY_AGAIN) == 1


def aged(tier: StorageTier, seconds: float) -> None:
    then = timezone.now() - timedelta(seconds=seconds)
    StorageTier.objects.filter(pk=tier.pk).update(created_at=then)
    InventoryScan.objects.filter(tier=tier).update(created_at=then, finished_at=then)


def test_a_tier_that_was_not_listed_for_a_while_is_scanned_by_itself(agent: Agent, tier: StorageTier) -> None:
    other = factories.agent(factories.node(tier.cluster, "a-first-by-name"), roots=["/ckpt"])
    scan = scans.request_scan(tier=tier, agent=agent, actor="olga")
    finish(scan)
    aged(tier, 299)
    assert rescans.request_overdue() == 0
    aged(tier, 301)
    assert (rescans.request_overdue(), rescans.request_overdue()) == (1, 0)
    newest = InventoryScan.objects.order_by("-created_at")[0]
    assert (newest.requested_by, newest.agent) == ("schedule", agent), f"not {other}, which did not list it before"


def test_a_scan_that_failed_is_not_tried_again_at_once(agent: Agent, tier: StorageTier) -> None:
    aged(tier, 301)
    rescans.request_overdue()
    answer(tasks_of("scan", InventoryScan.objects.get().pk).get(), None, outcome="failed", error="no such folder")
    scans.advance(InventoryScan.objects.get().pk)
    assert InventoryScan.objects.get().state == "failed"
    assert rescans.request_overdue() == 0


@pytest.mark.parametrize("seconds", [0, 3600])
def test_the_setting_says_how_often_and_0_turns_it_off(
    agent: Agent, tier: StorageTier, settings: Any, seconds: int
) -> None:
    settings.SCAN_SECONDS = seconds
    aged(tier, 3000)
    assert rescans.request_overdue() == 0


def test_a_bucket_and_a_tier_out_of_reach_are_left_alone(agent: Agent, tier: StorageTier) -> None:
    Agent.objects.update(roots=["/data"])
    bucket = factories.tier(tier.cluster, "cold", "s3://bucket/prefix", kind="object_store")
    aged(tier, 301)
    aged(bucket, 301)
    assert rescans.request_overdue() == 0


def test_a_part_of_a_tier_that_was_scanned_is_not_the_tier(agent: Agent, tier: StorageTier) -> None:
    aged(tier, 301)
    scanned(tier, listing(root="/ckpt/other"), root="/ckpt/other")
    assert rescans.request_overdue() == 1


def test_scans_that_nobody_asked_for_do_not_fill_the_activity_log(agent: Agent, tier: StorageTier) -> None:
    aged(tier, 301)
    rescans.request_overdue()
    assert not ActivityEntry.objects.filter(action="scan.request").exists()


def test_the_beat_asks_for_both(agent: Agent, tier: StorageTier) -> None:
    ingest_records(agent=agent, records=[save(1)])
    ScanDemand.objects.update(due_at=timezone.now())
    control.tick()
    assert InventoryScan.objects.get().requested_by == "save"
    finish(InventoryScan.objects.get())
    aged(tier, 301)
    control.sweep()
    assert InventoryScan.objects.filter(requested_by="schedule").count() == 1
