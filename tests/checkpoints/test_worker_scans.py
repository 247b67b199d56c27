"""Scans by the workers themselves: real folders, in slices, under a lease."""

from __future__ import annotations

import os
import shutil
import time
import zlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import factories
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from muster_agent.formats import scan_progress as scan_progress_of_job
from muster_agent.formats import scan_reading
from muster_agent.jobs.control import Cancelled
from rest import caller

from apps.accounts.models import Role
from apps.checkpoints import rescans, scans, worker_scans
from apps.checkpoints.models import InventoryScan, Placement, ScanMemory
from apps.core import slices
from apps.core.errors import InvalidInput
from apps.fleet.models import AgentTask
from apps.storage import services
from apps.storage.models import StorageTier
from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.formats.s3_server import S3Server
from workers.tasks import scan as scan_tasks

pytestmark = pytest.mark.django_db


def aged(checkpoint: Path) -> None:
    """Saved an hour ago: what is young is read again each time."""
    for file in checkpoint.iterdir():
        os.utime(file, times=(time.time() - 3600, time.time() - 3600))


@pytest.fixture
def root(tmp_path: Path, settings: Any, monkeypatch: Any) -> Path:
    """A folder of one run with two real checkpoints, below what the workers may list."""
    monkeypatch.setattr(scan_reading, "_RACY_NS", 0)
    folder = tmp_path / "fast"
    for step in (10, 20):
        aged(write_checkpoint(folder / "llama", step, rank_bytes=300, world_size=2))
    settings.WORKER_ROOTS = [str(tmp_path)]
    return folder


@pytest.fixture
def tier(root: Path) -> StorageTier:
    return factories.tier(factories.cluster(), uri=str(root), scanned_by="workers")


def scanned(tier: StorageTier, **wanted: Any) -> InventoryScan:
    scan = scans.request_scan(tier=tier, actor="olga", **wanted)
    scan_tasks.list_slice(scan.pk)
    scan.refresh_from_db()
    return scan


def test_the_workers_list_what_is_mounted_on_their_hosts_without_any_agent(tier: StorageTier) -> None:
    scan = scanned(tier)
    assert (scan.state, scan.agent, scan.new_count, scan.error) == ("finished", None, 2, "")
    assert not AgentTask.objects.exists() and scan.lister == "the workers"
    assert sorted(Placement.objects.values_list("checkpoint__step", flat=True)) == [10, 20]
    assert scan.started_at is not None and scan.root_mark is not None


def test_a_message_that_comes_twice_or_late_changes_nothing(tier: StorageTier) -> None:
    scan = scanned(tier)
    finished_at = scan.finished_at
    scan_tasks.list_slice(scan.pk)
    scan.refresh_from_db()
    assert scan.finished_at == finished_at
    scan_tasks.list_slice("scn_none")


def test_what_was_removed_vanishes_and_an_unmounted_root_changes_nothing(tier: StorageTier, root: Path) -> None:
    scanned(tier)
    shutil.rmtree(root / "llama" / "step-00000010")
    assert scanned(tier).missing_count == 1
    away = root.rename(root.parent / "away")
    failed = scanned(tier)
    assert (failed.state, failed.error_code) == ("failed", "root_unreadable") and "no such file" in failed.error
    root.mkdir()
    assert scanned(tier).held_count == 1
    assert [row.checkpoint.step for row in Placement.objects.filter(status="missing")] == [10]
    root.rmdir()
    away.rename(root)
    assert (scan := scanned(tier)).doubt == "" and scan.missing_count == 0


def test_a_lease_keeps_a_second_worker_out_and_a_dead_one_is_followed(tier: StorageTier) -> None:
    scan = scans.request_scan(tier=tier, actor="olga")
    assert scans.lease(scan)
    scan_tasks.list_slice(scan.pk)
    scan.refresh_from_db()
    assert scan.state == "queued"
    InventoryScan.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1), next_attempt_at=timezone.now())
    assert scans.due() == [scan.pk]
    scan_tasks.list_slice(scan.pk)
    scan.refresh_from_db()
    assert scan.state == "finished"


def test_a_slice_whose_lease_another_worker_took_over_stops(tier: StorageTier) -> None:
    scan = scans.request_scan(tier=tier, actor="olga")
    InventoryScan.objects.update(state="running")
    assert scans.lease(scan)
    control = worker_scans.SliceControl(scan)
    control._note_progress()
    control.check()
    InventoryScan.objects.update(lease_expires_at=None)
    assert scans.lease(InventoryScan.objects.get())
    control._note_progress()
    with pytest.raises(Cancelled):
        control.check()


def test_the_sweeper_wakes_a_slice_whose_message_was_lost(tier: StorageTier, monkeypatch: Any) -> None:
    scan = scans.request_scan(tier=tier, actor="olga")
    sent: list[tuple[str, Any]] = []
    monkeypatch.setattr(scans, "enqueue", lambda name, **kwargs: sent.append((name, kwargs)))
    scans.advance(scan.pk)
    assert sent == [("muster.scan.slice", {"scan_id": scan.pk})]


def test_a_slice_that_ends_keeps_what_it_read_and_the_next_goes_on(
    tier: StorageTier, monkeypatch: Any, settings: Any
) -> None:
    woken: list[str] = []
    monkeypatch.setattr(worker_scans, "enqueue", lambda name, **_kwargs: woken.append(name))
    real = worker_scans.run_inventory

    def stopped_after_reading(*args: Any, **kwargs: Any) -> Any:
        real(*args, **kwargs)
        settings.SCAN_SLICE_SECONDS = -1.0
        worker_scans.SliceControl(scan).check()

    scan = scans.request_scan(tier=tier, actor="olga")
    with monkeypatch.context() as patch:
        patch.setattr(worker_scans, "run_inventory", stopped_after_reading)
        scan_tasks.list_slice(scan.pk)
    scan.refresh_from_db()
    assert (scan.state, scan.lease_expires_at, woken) == ("running", None, ["muster.scan.slice"])
    assert scans.due() == [scan.pk] and not Placement.objects.exists()
    settings.SCAN_SLICE_SECONDS = 30.0
    scan_tasks.list_slice(scan.pk)
    scan.refresh_from_db()
    assert (scan.state, scan.new_count, scan.unchanged_count) == ("finished", 2, 2)


def test_slices_that_bring_nothing_new_end_the_scan_with_advice(tier: StorageTier, monkeypatch: Any) -> None:
    def stuck(*_args: Any, **_kwargs: Any) -> Any:
        raise slices.StepEnded

    monkeypatch.setattr(worker_scans, "run_inventory", stuck)
    scan = scans.request_scan(tier=tier, actor="olga")
    for _ in range(worker_scans.MAX_IDLE_SLICES + 2):
        scan_tasks.list_slice(scan.pk)
    scan.refresh_from_db()
    assert (scan.state, scan.error_code) == ("failed", "slice_too_short") and "Have agents scan" in scan.error


def test_a_second_scan_reads_only_what_is_new(tier: StorageTier, root: Path) -> None:
    assert scanned(tier).unchanged_count == 0
    aged(write_checkpoint(root / "llama", 30, rank_bytes=300, world_size=2))
    again = scanned(tier)
    assert (again.new_count, again.unchanged_count) == (1, 2)


def test_a_memory_that_rotted_costs_reading_again_and_nothing_else(tier: StorageTier) -> None:
    scanned(tier)
    for body in (b"no zlib", ScanMemory.objects.get().body[:-20], zlib.compress(b"SQLite format 3\0 but no more")):
        ScanMemory.objects.update(body=body)
        scan = scanned(tier)
        assert (scan.state, scan.checkpoint_count, scan.changed_count) == ("finished", 2, 0)


def test_a_cancelled_scan_stops_at_its_next_look(tier: StorageTier, monkeypatch: Any) -> None:
    scan = scans.request_scan(tier=tier, actor="olga")

    def cancelled_meanwhile(_params: Any, control: Any, **_more: Any) -> Any:
        scans.cancel_scan(scan=InventoryScan.objects.get(pk=scan.pk), actor="olga")
        control._noted_at -= worker_scans.NOTE_SECONDS
        control.check()
        control.check()
        raise AssertionError("it went on")

    monkeypatch.setattr(worker_scans, "run_inventory", cancelled_meanwhile)
    scan_tasks.list_slice(scan.pk)
    scan.refresh_from_db()
    assert (scan.state, scan.error) == ("cancelled", "cancelled by olga") and not Placement.objects.exists()


def test_progress_tells_entries_their_rate_and_the_folders_left(tier: StorageTier, monkeypatch: Any) -> None:
    monkeypatch.setattr(scan_progress_of_job, "TELL_SECONDS", 0.0)
    monkeypatch.setattr(worker_scans, "NOTE_SECONDS", 0.0)
    scan = scans.request_scan(tier=tier, actor="olga")
    told, vera = list[Any](), caller(Role.VIEWER)
    plain = worker_scans.SliceControl._note_progress

    def noted(control: worker_scans.SliceControl) -> None:
        plain(control)
        told.append(vera.get(f"scans/{scan.pk}/").json()["progress"])

    monkeypatch.setattr(worker_scans.SliceControl, "_note_progress", noted)
    scan_tasks.list_slice(scan.pk)
    counted = [one for one in told if "entries" in one]
    assert counted and counted[-1].keys() >= {"entries", "entries_per_second", "folders_left"}
    assert max(one["folders_left"] for one in counted) >= 1 and counted[-1]["entries"] >= 4


def test_a_fork_that_reads_for_the_listing_leaves_the_database_alone(tier: StorageTier) -> None:
    scan = scans.request_scan(tier=tier, actor="olga")
    control = worker_scans.SliceControl(scan)
    control._noted_at -= worker_scans.NOTE_SECONDS
    control._process_id += 1
    with CaptureQueriesContext(connection) as queries:
        control.check()
    assert len(queries) == 0


def test_a_path_outside_the_workers_folders_is_refused_links_included(
    tier: StorageTier, root: Path, tmp_path: Path, settings: Any
) -> None:
    with pytest.raises(InvalidInput, match="MUSTER_WORKER_ROOTS"):
        services.create_tier(
            cluster=tier.cluster, name="etc", kind="nas", uri="/etc", actor="ada", scanned_by="workers"
        )
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    os.symlink(outside, root / "link")
    scan = scanned(tier, root=f"{root}/link")
    assert (scan.state, scan.error_code) == ("failed", "worker_roots") and str(outside) in scan.error
    settings.WORKER_ROOTS = []
    assert scanned(tier).error_code == "worker_roots"


def test_schedules_and_saves_go_to_the_workers_too(tier: StorageTier) -> None:
    StorageTier.objects.update(scan_cron="0 * * * *", next_scan_at=timezone.now())
    assert rescans.fire_due() == 1
    assert InventoryScan.objects.get().agent is None


def test_an_agent_that_is_asked_for_lists_instead(tier: StorageTier) -> None:
    agent = factories.agent(factories.node(tier.cluster))
    scan = scans.request_scan(tier=tier, agent=agent, actor="olga")
    assert scan.agent == agent and AgentTask.objects.count() == 1


def test_the_api_says_that_the_workers_list(tier: StorageTier) -> None:
    body = caller(Role.OPERATOR).post("scans", {"tier": tier.pk}).json()
    assert (body["agent"], body["state"], body["progress"]) == (None, "queued", {})
    assert caller(Role.VIEWER, "vera").get("scans").json()["items"][0]["id"] == body["id"]


# -- buckets -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def bucket_tier(root: Path, settings: Any, monkeypatch: Any) -> Iterator[StorageTier]:
    """The same two checkpoints, in a bucket that the workers may list. The store is emulated."""
    with S3Server() as server:
        server.store.put_folder(root, "runs")
        for name, value in {
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": "reader",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
        }.items():
            monkeypatch.setenv(name, value)
        settings.WORKER_ROOTS = ["s3://bucket/runs"]
        yield factories.tier(factories.cluster(), "cold", "s3://bucket/runs", kind="object_store", scanned_by="workers")


def test_a_schedule_has_the_workers_list_a_bucket(bucket_tier: StorageTier) -> None:
    services.update_tier(tier=bucket_tier, actor="ada", scan_cron="0 3 * * *")
    StorageTier.objects.update(next_scan_at=timezone.now())
    assert rescans.fire_due() == 1
    scan = InventoryScan.objects.get()
    scan_tasks.list_slice(scan.pk)
    scan.refresh_from_db()
    assert (scan.state, scan.checkpoint_count, scan.agent) == ("finished", 2, None), scan.error
    paths = Placement.objects.order_by("path").values_list("path", "status")
    assert [(path.rpartition("/")[0], status) for path, status in paths] == [("s3://bucket/runs/llama", "complete")] * 2


def test_a_bucket_is_not_listed_because_its_last_listing_is_old(bucket_tier: StorageTier, settings: Any) -> None:
    settings.SCAN_SECONDS = 60
    assert rescans.request_overdue(timezone.now() + timedelta(days=1)) == 0


def test_a_bucket_that_the_workers_may_not_list_or_cannot_is_a_failed_scan(
    bucket_tier: StorageTier, settings: Any, monkeypatch: Any
) -> None:
    with pytest.raises(InvalidInput, match="MUSTER_WORKER_ROOTS"):
        services.update_tier(tier=bucket_tier, actor="ada", uri="s3://bucket/other")
    bucket_tier.refresh_from_db()
    settings.SCAN_SLICE_SECONDS = -1
    for _ in range(worker_scans.MAX_IDLE_SLICES + 2):
        slow = InventoryScan.objects.filter(state="running").first() or scans.request_scan(tier=bucket_tier, actor="x")
        scan_tasks.list_slice(slow.pk)
        slow.refresh_from_db()
    assert (slow.state, slow.error_code) == ("failed", "slice_too_short") and "agent" in slow.error
    monkeypatch.setenv("AWS_ENDPOINT_URL", "no url")
    refused = scanned(bucket_tier)
    assert (refused.state, refused.error_code) == ("failed", "root_unreadable")
    settings.WORKER_ROOTS = ["s3://bucket/runs-of-others"]
    assert scanned(bucket_tier).error_code == "worker_roots"
    assert Placement.objects.count() == 0
