"""Parking a node as a spare and bringing one back through the gate, with a stand-in for the scheduler."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import factories
import pytest
from django.test import Client
from django.utils import timezone
from drill_agents import Yard, report
from msgspec import to_builtins
from msgspec.structs import replace
from muster_agent.protocol.probe import MountFact, ProbeBody
from muster_agent.protocol.wire import TaskResult

from apps.accounts.models import Role
from apps.core.errors import Conflict
from apps.drills import node_actions, services
from apps.drills.models import Drill, NodeAction
from apps.fleet import tasks
from apps.fleet.models import AgentTask, Cluster
from apps.fleet.schedulers.base import PARKED_REASON, SchedulerNode
from tests.drills.test_engine_standby import FIT, FakeScheduler

pytestmark = pytest.mark.django_db


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> FakeScheduler:
    fake = FakeScheduler()
    monkeypatch.setattr(node_actions, "required_scheduler", lambda _cluster: fake)
    return fake


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    yard = Yard(tmp_path)
    yard.cluster.allows_disruption, yard.cluster.scheduler = True, Cluster.Scheduler.SLURM
    yard.cluster.save()
    return yard


def asked(yard: Yard, node: str, what: str) -> NodeAction:
    action = node_actions.request_action(cluster=yard.cluster, node_name=node, what=what, actor="olga")
    return advanced(action)


def advanced(action: NodeAction) -> NodeAction:
    node_actions.advance(action.pk)
    action.refresh_from_db()
    return action


def answer(action: NodeAction, body: ProbeBody = FIT) -> NodeAction:
    """The node's agent says what it is."""
    [task] = tasks.tasks_of("node_action", action.pk)
    [claimed] = tasks.claim(agent=task.agent, slots=4)
    tasks.acknowledge(agent=claimed.agent, task_id=claimed.pk, attempt=claimed.attempt)
    report(claimed, TaskResult(outcome="done", body=to_builtins(body)))
    return advanced(action)


def test_a_parked_node_is_a_spare_and_what_runs_there_is_left_alone(yard: Yard, scheduler: FakeScheduler) -> None:
    action = asked(yard, "gpu-2", "park")
    assert (action.state, action.outcome, action.reason) == ("finished", "done", "It is a spare now: idle+drain.")
    assert scheduler.asked == ["drain gpu-2"]
    assert scheduler.nodes["gpu-2"].reason == PARKED_REASON
    assert AgentTask.objects.count() == 0


def test_a_node_that_somebody_took_out_is_not_made_a_spare(yard: Yard, scheduler: FakeScheduler) -> None:
    scheduler.nodes["gpu-3"] = SchedulerNode(name="gpu-3", state="down", usable=False, reason="bad nvlink")
    action = asked(yard, "gpu-3", "park")
    assert (action.outcome, action.reason) == ("refused", "It is down (bad nvlink) already.")
    assert scheduler.asked == []


def test_a_repaired_node_comes_back_once_its_agent_has_said_that_it_is_fit(
    yard: Yard, scheduler: FakeScheduler
) -> None:
    scheduler.nodes["gpu-3"] = SchedulerNode(name="gpu-3", state="down", usable=False, gpu_count=0)
    action = asked(yard, "gpu-3", "bring_back")
    assert (action.state, scheduler.asked) == ("checking", [])
    action = answer(action)
    assert (action.outcome, scheduler.asked) == ("done", ["resume gpu-3"]), action.reason
    assert [check["name"] for check in action.checks] == [
        "mounts", "free_space", "gpus", "agent_version", "reload_speed",
    ]  # fmt: skip


def test_a_node_that_is_not_fit_stays_out_and_says_why(yard: Yard, scheduler: FakeScheduler) -> None:
    scheduler.nodes["gpu-3"] = SchedulerNode(name="gpu-3", state="down", usable=False, gpu_count=8)
    action = answer(asked(yard, "gpu-3", "bring_back"), replace(FIT, gpu_count=7))
    assert (action.outcome, action.reason) == ("refused", "It is not fit: 7 GPUs, 8 needed.")
    assert scheduler.asked == []
    wrong = (MountFact(root="/ckpt", problem="/ckpt is not mounted"),)
    again = answer(asked(yard, "gpu-3", "bring_back"), replace(FIT, gpu_count=8, mounts=wrong))
    assert again.reason == "It is not fit: /ckpt is not mounted."


def test_a_node_without_an_agent_cannot_be_told_fit(yard: Yard, scheduler: FakeScheduler) -> None:
    scheduler.nodes["gpu-9"] = SchedulerNode(name="gpu-9", state="down", usable=False)
    action = asked(yard, "gpu-9", "bring_back")
    assert (action.outcome, action.reason.startswith("No agent is online there")) == ("refused", True)


def test_a_scheduler_that_does_not_answer_is_asked_again_until_the_time_is_over(
    yard: Yard, scheduler: FakeScheduler
) -> None:
    scheduler.is_down = True
    action = asked(yard, "gpu-2", "park")
    assert (action.state, action.next_attempt_at is not None) == ("asked", True)
    later = timezone.now() + timedelta(seconds=5)
    assert node_actions.due(later) == [action.pk]
    NodeAction.objects.filter(pk=action.pk).update(deadline_at=timezone.now() - timedelta(seconds=1))
    action = advanced(action)
    assert action.outcome == "failed"
    assert action.reason == "Not done within 3 minutes. The scheduler: slurmctld does not answer"


def test_parking_is_bound_by_the_clusters_rules_and_by_the_switch_and_coming_back_is_not(
    yard: Yard, scheduler: FakeScheduler
) -> None:
    yard.cluster.allows_disruption = False
    yard.cluster.save()
    with pytest.raises(Conflict, match="an admin can allow them"):
        asked(yard, "gpu-2", "park")
    yard.cluster.allows_disruption = True
    yard.cluster.save()
    services.stop_all_drills(actor="ada")
    with pytest.raises(Conflict, match="stopped by ada"):
        asked(yard, "gpu-2", "park")
    assert asked(yard, "gpu-4", "bring_back").state == "checking"
    yard.cluster.scheduler = Cluster.Scheduler.NONE
    with pytest.raises(Conflict, match="no scheduler"):
        asked(yard, "gpu-1", "bring_back")


def test_one_thing_at_a_time_is_done_to_a_node(yard: Yard, scheduler: FakeScheduler) -> None:
    asked(yard, "gpu-4", "bring_back")
    with pytest.raises(Conflict, match="at work on gpu-4"):
        asked(yard, "gpu-4", "bring_back")
    now = timezone.now()
    values = {"kind": "standby", "state": "running", "created_at": now, "requested_by": "x", "restore_node": "gpu-1"}
    drill = Drill.objects.create(cluster=yard.cluster, run=yard.run, **values)
    with pytest.raises(Conflict, match=f"Drill {drill.pk} has taken gpu-1 out"):
        asked(yard, "gpu-1", "bring_back")


def test_the_api_takes_an_action_and_tells_what_became_of_it(
    yard: Yard, scheduler: FakeScheduler, client: Client
) -> None:
    olga = {"Authorization": f"Bearer {factories.token(factories.user('olga', Role.OPERATOR))}"}
    body = {"cluster": yard.cluster.pk, "node_name": "gpu-2", "what": "park"}
    made = client.post("/api/v1/node-actions", body, content_type="application/json", headers=olga)
    assert (made.status_code, made.json()["state"]) == (201, "asked")
    node_actions.advance(made.json()["id"])
    told = client.get(f"/api/v1/node-actions/{made.json()['id']}", headers=olga).json()
    assert (told["outcome"], told["requested_by"]) == ("done", "olga")
    listed = client.get(f"/api/v1/node-actions?cluster={yard.cluster.pk}", headers=olga).json()
    assert [one["id"] for one in listed["items"]] == [told["id"]]
    wrong = client.post(
        "/api/v1/node-actions", {**body, "node_name": "gpu-[1-4]"}, content_type="application/json", headers=olga
    )
    assert (wrong.status_code, b"/node_name" in wrong.content) == (422, True) or wrong.status_code == 400
