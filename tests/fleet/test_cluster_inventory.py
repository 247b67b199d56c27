"""A cluster's inventory: what both sides say, what differs, and what is not known."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import factories
import pytest
from django.utils import timezone
from servers.slurm import Slurm as SlurmServer

from apps.fleet import cluster_inventory
from apps.fleet.inventory import AgentFacts, Contents, InventoryNode, changes, contents, without_agent
from apps.fleet.models import Cluster, ClusterInventory
from apps.fleet.schedulers.base import Partition, SchedulerJob, SchedulerNode, Snapshot


def node(name: str, **fields: Any) -> SchedulerNode:
    return SchedulerNode(name=name, **{"state": "idle", "usable": True, "gpu_count": 8, **fields})


# -- both sides joined -------------------------------------------------------------------------------------------------
def test_both_sides_are_joined_by_name_and_each_blind_spot_is_named() -> None:
    snapshot = Snapshot(nodes=(node("gpu-1"), node("gpu-2"), node("gpu-3")))
    agents = {
        "gpu-1.example.org": AgentFacts(state="online", gpu_count=7),
        "gpu-2": AgentFacts(state="lost", gpu_count=8),
        "laptop": AgentFacts(state="online", gpu_count=None),
    }
    found = contents(snapshot, agents)
    assert [one.name for one in found.nodes] == ["gpu-1", "gpu-2", "gpu-3", "laptop"]
    assert [bool(one.agent) for one in found.nodes] == [True, True, False, True]
    problems = {one.name: " ".join(one.problems) for one in found.nodes}
    assert "promises 8 GPUs, the agent sees 7" in problems["gpu-1"]
    assert "agent is lost" in problems["gpu-2"]
    assert problems["gpu-3"] == ""
    assert "knows no node of this name" in problems["laptop"]
    assert without_agent(found.nodes) == ["gpu-3"]


def test_without_a_scheduler_no_node_lacks_one() -> None:
    found = contents(None, {"a": AgentFacts(state="online", gpu_count=2)})
    assert [(one.name, one.problems) for one in found.nodes] == [("a", ())]
    assert without_agent(found.nodes) == []


def test_changes_say_what_appeared_vanished_and_changed_from_what_to_what() -> None:
    agent = AgentFacts(state="online", version="0.1.0")
    job = SchedulerJob(job_id="7", name="llama", state="running", nodes=("a",))
    before = Contents(
        nodes=(InventoryNode(name="a", scheduler=node("a")), InventoryNode(name="b", scheduler=node("b"), agent=agent)),
        partitions=(Partition(name="train", state="up", node_count=2),),
        jobs=(job,),
    )
    after = Contents(
        nodes=(InventoryNode(name="b", scheduler=node("b", state="idle+drain")), InventoryNode(name="c", agent=agent)),
        partitions=(Partition(name="train", state="up", node_count=2),),
        jobs=(SchedulerJob(job_id="7", name="llama", state="pending", restart_count=1),),
    )
    found = [(one.kind, one.name, one.what, one.field, one.before, one.after) for one in changes(before, after)]
    assert found == [
        ("node", "a", "vanished", "", None, None),
        ("node", "b", "changed", "scheduler.state", "idle", "idle+drain"),
        ("node", "b", "changed", "agent.state", "online", None),
        ("node", "b", "changed", "agent.version", "0.1.0", None),
        ("node", "b", "changed", "agent.file_systems", {}, None),
        ("node", "c", "appeared", "", None, None),
        ("job", "7", "changed", "state", "running", "pending"),
        ("job", "7", "changed", "nodes", ("a",), ()),
        ("job", "7", "changed", "restart_count", 0, 1),
    ]
    assert changes(after, after) == []


# -- kept in rows ------------------------------------------------------------------------------------------------------
@pytest.fixture
def slurm_cluster(slurm: SlurmServer, db: None, settings: Any) -> Cluster:
    cluster = factories.cluster("east", scheduler="slurm")
    settings.SCHEDULERS = {"east": str(slurm.configuration)}
    factories.agent(factories.node(cluster, "gpu-1", facts={"gpu_count": 0, "file_systems": {"/ckpt": "xfs"}}))
    return cluster


def take(cluster: Cluster) -> ClusterInventory:
    row = cluster_inventory.take_inventory(cluster.pk)
    assert row is not None
    return row


def test_a_real_slurm_is_inventoried_with_what_changed_since(slurm: SlurmServer, slurm_cluster: Cluster) -> None:
    first = take(slurm_cluster)
    assert (first.node_count, first.usable_count, first.error) == (4, 4, "")
    assert first.without_agent == ["gpu-2", "gpu-3", "gpu-4"]
    assert first.scheduler_version.startswith("22.")
    assert first.change_count == 0
    slurm.run("scontrol", "update", "nodename=gpu-2", "state=drain", "reason=bad nvlink")
    try:
        second = take(slurm_cluster)
    finally:
        slurm.run("scontrol", "update", "nodename=gpu-2", "state=resume")
    assert [(one["name"], one["field"], one["after"]) for one in second.changes] == [
        ("gpu-2", "scheduler.state", "idle+drain")
    ]
    assert second.usable_count == 3
    found = {one.name: one for one in cluster_inventory.contents_of(second).nodes}
    assert found["gpu-2"].scheduler is not None
    assert found["gpu-2"].scheduler.reason == "bad nvlink"
    assert found["gpu-1"].agent is not None
    assert found["gpu-1"].agent.file_systems == {"/ckpt": "xfs"}
    first.refresh_from_db()
    assert first.contents == {}, "only the newest keeps everything"


def test_a_scheduler_that_does_not_answer_takes_nothing_for_gone(
    slurm: SlurmServer, slurm_cluster: Cluster, settings: Any
) -> None:
    first = take(slurm_cluster)
    settings.SCHEDULERS = {"east": "/nowhere/slurm.conf"}
    blind = take(slurm_cluster)
    assert "/nowhere/slurm.conf is not a file" in blind.error
    assert blind.change_count == 0
    assert cluster_inventory.newest_whole(slurm_cluster) == first
    settings.SCHEDULERS = {"east": str(slurm.configuration)}
    assert take(slurm_cluster).change_count == 0


@pytest.mark.django_db
def test_a_cluster_whose_scheduler_is_not_configured_says_what_to_set() -> None:
    assert "MUSTER_SCHEDULERS" in take(factories.cluster("west", scheduler="slurm")).error


@pytest.mark.django_db
def test_clusters_are_due_once_per_interval_however_many_sweep(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(cluster_inventory, "enqueue", lambda _name, cluster_id: sent.append(cluster_id))
    cluster = factories.cluster("east")
    cluster_inventory.wake_due()
    cluster_inventory.wake_due()
    assert sent == [cluster.pk]
    Cluster.objects.update(inventory_next_at=timezone.now() - timedelta(seconds=1))
    settings.CLUSTER_INVENTORY_SECONDS = 0
    cluster_inventory.wake_due()
    assert sent == [cluster.pk]


@pytest.mark.django_db
def test_inventories_beyond_their_days_are_removed_and_the_newest_never(settings: Any) -> None:
    settings.SCAN_KEEP_DAYS = 30
    cluster = factories.cluster("east")
    old = take(cluster)
    ClusterInventory.objects.filter(pk=old.pk).update(taken_at=timezone.now() - timedelta(days=31))
    newest = take(cluster)
    assert list(ClusterInventory.objects.all()) == [newest]
