"""Scans from the request to the end, with every way they can go wrong."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import factories
import pytest
from django.utils import timezone
from listings import answer, listing, scanned, shard_map, start
from muster_agent.formats.detect import inventory
from muster_agent.protocol.wire import InventoryBody, VerifyBody

from apps.accounts.models import ActivityEntry
from apps.checkpoints import scans
from apps.checkpoints.models import Checkpoint, InventoryScan, Placement
from apps.checkpoints.scan_progress import progress_of
from apps.core.errors import Conflict, InvalidInput
from apps.core.models import Transition
from apps.fleet.models import Agent, AgentTask
from apps.fleet.tasks import tasks_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def tier() -> Any:
    cluster = factories.cluster()
    factories.agent(factories.node(cluster), roots=["/ckpt"])
    return factories.tier(cluster)


def request(tier: Any, **fields: Any) -> InventoryScan:
    return scans.request_scan(tier=tier, actor="olga", **fields)


def task_of(scan: InventoryScan) -> AgentTask:
    return tasks_of("scan", scan.pk).get()


def test_a_request_gives_an_agent_the_tiers_root_and_leaves_its_traces(tier: Any) -> None:
    scan = request(tier)
    task = task_of(scan)
    assert (task.kind, task.params["root"], task.state) == ("inventory", "/ckpt", "queued")
    assert scan.state == "queued" and scan.next_attempt_at is not None
    assert Transition.objects.filter(owner_id=scan.pk, new="queued", actor="olga").exists()
    assert ActivityEntry.objects.get(action="scan.request").actor == "olga"


def test_a_folder_of_the_tier_may_be_asked_for_and_nothing_else(tier: Any) -> None:
    assert request(tier, root="/ckpt//llama/").root == "/ckpt/llama"
    for root in ("/elsewhere", "/ckptx", "/ckpt/../etc", "ckpt"):
        with pytest.raises(InvalidInput):
            request(tier, root=root)


def test_one_root_is_scanned_once_at_a_time(tier: Any) -> None:
    first = request(tier)
    with pytest.raises(Conflict, match="being scanned already"):
        request(tier)
    assert AgentTask.objects.count() == 1
    answer(task_of(first), listing())
    scans.advance(first.pk)
    request(tier)


def test_without_an_agent_that_reaches_the_root_the_request_says_what_to_do() -> None:
    tier = factories.tier(factories.cluster())
    with pytest.raises(Conflict, match="No agent that is online in east reaches /ckpt; start one"):
        request(tier)
    assert not InventoryScan.objects.exists()


def test_an_agent_that_was_asked_for_must_reach_the_root(tier: Any) -> None:
    other = factories.agent(factories.node(tier.cluster, "gpu-2"), roots=["/data"])
    with pytest.raises(Conflict, match="in none of its roots"):
        request(tier, agent=other)
    Agent.objects.filter(pk=other.pk).update(roots=["/ckpt"], state="lost")
    with pytest.raises(Conflict, match="not online"):
        request(tier, agent=other)


def test_a_bucket_is_listed_by_an_agent_with_a_root_in_it() -> None:
    cluster = factories.cluster()
    factories.agent(factories.node(cluster), roots=["/", "s3://bucket/pre"])
    tier = factories.tier(cluster, uri="s3://bucket/prefix", kind="object_store")
    with pytest.raises(Conflict, match="reaches s3://bucket/prefix; start one"):
        request(tier)
    reader = factories.agent(factories.node(cluster, "gpu-2"), roots=["s3://bucket/prefix"])
    scan = request(tier, root="s3://bucket/prefix/llama/")
    assert (scan.agent_id, task_of(scan).params["root"]) == (reader.pk, "s3://bucket/prefix/llama")
    for root in ("s3://bucket/prefix2", "s3://other/prefix", "/bucket/prefix", "s3://bucket/prefix/../x"):
        with pytest.raises(InvalidInput):
            request(tier, root=root)


def test_a_scan_runs_when_its_task_does_and_is_looked_at_again_later(tier: Any) -> None:
    scan = request(tier)
    scans.advance(scan.pk)
    scan.refresh_from_db()
    assert scan.state == "queued"
    start(task_of(scan))
    scans.advance(scan.pk)
    scan.refresh_from_db()
    assert scan.state == "running" and scans.due() == []
    InventoryScan.objects.filter(pk=scan.pk).update(next_attempt_at=timezone.now() - timedelta(seconds=1))
    assert scans.due() == [scan.pk]


def test_what_an_agent_counts_while_it_lists_is_shown(tier: Any) -> None:
    scan = request(tier)
    start(task_of(scan))
    counts = {"entries": 91_000, "entries_per_second": 45_500, "folders_left": 9}
    told = {"done_bytes": 120, "total_bytes": 134, "at": 1.5, "message": "91000 entries seen"}
    AgentTask.objects.update(progress={**told, "counts": {**counts, "other": 1}})
    scans.advance(scan.pk)
    scan.refresh_from_db()
    expected = {"checkpoints": 120, "checkpoints_left": 14, "at": 1.5, "note": "91000 entries seen", **counts}
    assert progress_of(scan) == expected


def test_a_finished_scan_drops_the_tasks_result_and_is_never_due(tier: Any) -> None:
    scan = scanned(tier, listing(shard_map(10)))
    assert scan.finished_at is not None and task_of(scan).result is None and scans.due() == []
    scans.advance(scan.pk)
    scan.refresh_from_db()
    assert (scan.new_count, scan.state) == (1, "finished")


def test_what_was_seen_while_a_listing_was_under_way_is_not_missing_from_it(tier: Any) -> None:
    slow = request(tier)
    start(task_of(slow))
    scanned(tier, listing(shard_map(30), root="/ckpt/llama-70b"), root="/ckpt/llama-70b")
    task = task_of(slow)
    AgentTask.objects.filter(pk=task.pk).update(started_at=timezone.now())  # its first events came late
    answer(task, listing(shard_map(20)))
    scans.advance(slow.pk)
    slow.refresh_from_db()
    assert (slow.new_count, slow.missing_count) == (1, 0)
    assert set(Placement.objects.values_list("status", flat=True)) == {"complete"}


def test_an_unreadable_root_fails_the_scan_and_marks_nothing_missing(tier: Any) -> None:
    scanned(tier, listing(shard_map(10)))
    scan = request(tier)
    answer(task_of(scan), None, outcome="failed", error="/ckpt: there is no such file or folder; check the mount")
    scans.advance(scan.pk)
    scan.refresh_from_db()
    assert (scan.state, scan.missing_count) == ("failed", 0) and "check the mount" in scan.error
    assert Placement.objects.get().status == "complete"


def test_a_lost_agent_fails_the_scan_and_marks_nothing_missing(tier: Any) -> None:
    scanned(tier, listing(shard_map(10)))
    scan = request(tier)
    answer(task_of(scan), None, outcome="lost", error="no word for 300 s")
    scans.advance(scan.pk)
    scan.refresh_from_db()
    assert scan.state == "failed" and "nothing was taken for gone" in scan.error
    assert Placement.objects.get().status == "complete"


def test_an_answer_of_another_shape_fails_the_scan_with_a_sentence(tier: Any) -> None:
    scan = request(tier)
    answer(
        task_of(scan),
        VerifyBody(verified=True, checked_bytes=1, checked_chunks=1, total_chunks=1, seconds=1.0, fingerprint=""),
    )
    scans.advance(scan.pk)
    scan.refresh_from_db()
    assert scan.state == "failed" and "was not understood" in scan.error


def test_a_second_worker_keeps_out_while_the_first_takes_the_answer_in(tier: Any, monkeypatch: Any) -> None:
    scan = request(tier)
    answer(task_of(scan), listing(shard_map(10)))
    calls: list[str] = []
    real = scans.take_in

    def slow(*args: Any) -> Any:
        calls.append("first")
        scans.advance(scan.pk)  # another worker, woken twice
        return real(*args)

    monkeypatch.setattr(scans, "take_in", slow)
    scans.advance(scan.pk)
    scan.refresh_from_db()
    assert calls == ["first"] and scan.state == "finished"


def test_a_result_that_another_worker_kept_from_being_taken_is_still_there_later(tier: Any, monkeypatch: Any) -> None:
    scan = request(tier)
    answer(task_of(scan), listing(shard_map(10)))
    # The other worker notes progress between this one's reading of the row and its compare-and-set.
    with monkeypatch.context() as race:
        race.setattr(scans, "transition", lambda *_args, **_fields: False)
        scans.advance(scan.pk)
    assert task_of(scan).result is not None
    InventoryScan.objects.filter(pk=scan.pk).update(lease_expires_at=timezone.now())
    scans.advance(scan.pk)
    scan.refresh_from_db()
    assert (scan.state, scan.new_count, scan.checkpoint_count) == ("finished", 1, 1)
    assert task_of(scan).result is None


def test_a_worker_that_died_while_taking_it_in_is_followed_by_another(tier: Any, monkeypatch: Any) -> None:
    scan = request(tier)
    answer(task_of(scan), listing(shard_map(10)))

    def die(*_args: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(scans, "take_in", die)
        with pytest.raises(KeyboardInterrupt):
            scans.advance(scan.pk)
    assert scans.due() == [], "the lease is held for a while"
    InventoryScan.objects.filter(pk=scan.pk).update(next_attempt_at=timezone.now(), lease_expires_at=timezone.now())
    assert scans.due() == [scan.pk]
    scans.advance(scan.pk)
    assert Checkpoint.objects.count() == 1


def test_cancelling_ends_a_queued_scan_at_once(tier: Any) -> None:
    scan = scans.cancel_scan(scan=request(tier), actor="olga")
    assert (scan.state, scan.error) == ("cancelled", "cancelled by olga")
    with pytest.raises(Conflict, match="has ended already"):
        scans.cancel_scan(scan=scan, actor="olga")


def test_a_real_folder_goes_from_the_disk_to_the_rows(tmp_path: Path) -> None:
    samples = Path(__file__).parent.parent / "data"
    folder = next((path for path in sorted(samples.glob("safetensors*")) if path.is_dir()), None)
    assert folder is not None, "the suite carries a safetensors family"
    cluster = factories.cluster()
    factories.agent(factories.node(cluster))
    found = inventory(folder)
    assert found.checkpoints
    tier = factories.tier(cluster, uri=str(folder))
    scan = scanned(
        tier, InventoryBody(root=str(folder), checkpoints=found.checkpoints, findings=found.findings), root=str(folder)
    )
    with_step = [item for item in found.checkpoints if item.step is not None]
    assert scan.checkpoint_count == Placement.objects.count() == len(with_step)
    for item in with_step:
        row = Placement.objects.get(path=item.path)
        assert (row.status, row.total_bytes, row.shards.count()) == (
            item.status.value,
            item.total_bytes,
            len(item.shards),
        )
