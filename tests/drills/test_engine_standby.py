"""Standby drills from creation to the spare that is parked again, with a stand-in for the scheduler."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from drill_agents import Yard, advanced, report, tasks_of
from msgspec import to_builtins
from msgspec.structs import replace
from muster_agent.protocol.probe import MountFact, ProbeBody
from muster_agent.protocol.wire import TaskResult

from apps.drills import faults, services, standby
from apps.drills.models import Drill
from apps.fleet import tasks
from apps.fleet.models import Agent
from apps.fleet.schedulers.base import PARKED_REASON, SchedulerError, SchedulerNode, Snapshot

pytestmark = pytest.mark.django_db
FIT = ProbeBody(agent_version="", gpu_count=0, mounts=(MountFact(root="/ckpt", file_system="xfs"),))


class FakeScheduler:
    """Takes effect at the second look, as a real one may. gpu-4 is parked."""

    def __init__(self) -> None:
        names = [f"gpu-{number}" for number in range(1, 5)]
        self.nodes = {name: SchedulerNode(name=name, state="idle", usable=True, gpu_count=0) for name in names}
        self.drain("gpu-4", PARKED_REASON)
        self.asked: list[str] = []
        self.is_down = False

    def snapshot(self) -> Snapshot:
        return Snapshot(nodes=tuple(self.nodes.values()))

    def node(self, name: str) -> SchedulerNode:
        if self.is_down:
            raise SchedulerError("slurmctld does not answer")
        return self.nodes[name]

    def drain(self, name: str, reason: str) -> None:
        self._ask(f"drain {name}")
        parked = reason == PARKED_REASON
        self.nodes[name] = replace(self.nodes[name], state="idle+drain", usable=False, reason=reason, parked=parked)

    def resume(self, name: str) -> None:
        self._ask(f"resume {name}")
        self.nodes[name] = replace(self.nodes[name], state="idle", usable=True, reason="", parked=False)

    def _ask(self, what: str) -> None:
        getattr(self, "asked", []).append(what)


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> FakeScheduler:
    fake = FakeScheduler()
    for module in (standby, faults):
        monkeypatch.setattr(module, "required_scheduler", lambda _cluster: fake)
    return fake


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    yard = Yard(tmp_path)
    yard.cluster.allows_disruption = True
    yard.cluster.save()
    return yard


def make(yard: Yard, **spec: Any) -> Drill:
    return services.create_drill(run=yard.run, spec={"kind": "standby", "worker_node": "gpu-2", **spec}, actor="olga")


def answer(drill: Drill, **bodies: ProbeBody) -> None:
    """Each agent with a waiting probe answers; those on nodes named in `bodies` with these."""
    for task in tasks_of(drill):
        for claimed in tasks.claim(agent=task.agent, slots=4):
            tasks.acknowledge(agent=claimed.agent, task_id=claimed.pk, attempt=claimed.attempt)
            body = bodies.get(task.agent.node.name.replace("-", "_"), FIT)
            report(claimed, TaskResult(outcome="done", body=to_builtins(body)))


def test_a_spare_stands_in_and_everything_is_as_before_in_the_end(yard: Yard, scheduler: FakeScheduler) -> None:
    drill = advanced(make(yard, objective_seconds=60))
    assert (drill.state, drill.facts["spare"], scheduler.asked) == ("running", "gpu-4", [])
    answer(drill)
    advanced(drill)
    assert scheduler.asked == ["drain gpu-2", "resume gpu-4"]
    assert scheduler.nodes["gpu-2"].reason == f"muster drill {drill.pk}"
    assert (drill.restore_node, drill.park_node) == ("gpu-2", "gpu-4")
    answer(drill)
    advanced(drill)
    assert (drill.outcome, drill.objective_state) == ("passed", "met"), drill.reason
    assert scheduler.asked == ["drain gpu-2", "resume gpu-4", "resume gpu-2", "drain gpu-4"]
    assert scheduler.nodes["gpu-4"].parked
    assert (drill.restore_node, drill.park_node, drill.next_attempt_at) == ("", "", None)
    steps = list(drill.steps.order_by("order"))
    assert all(step.seconds is not None for step in steps)
    assert drill.seconds == pytest.approx(sum(step.seconds or 0 for step in steps[:3]), abs=0.001)
    assert [one["name"] for one in steps[0].detail["checks"]][0] == "mounts"


def test_a_spare_that_is_not_fit_changes_nothing(yard: Yard, scheduler: FakeScheduler) -> None:
    drill = advanced(make(yard))
    answer(drill, gpu_4=replace(FIT, mounts=(MountFact(root="/ckpt", problem="/ckpt is not mounted"),)))
    advanced(drill)
    assert drill.outcome == "failed"
    assert drill.reason == "gpu-4 is not fit: /ckpt is not mounted."
    assert scheduler.asked == []


def test_a_node_that_does_not_pass_the_gate_stays_out_and_the_spare_in(yard: Yard, scheduler: FakeScheduler) -> None:
    drill = advanced(make(yard))
    answer(drill)
    advanced(drill)
    answer(drill, gpu_2=replace(FIT, mounts=(MountFact(root="/ckpt", problem="/ckpt is not mounted"),)))
    advanced(drill)
    assert drill.outcome == "failed"
    assert drill.reason == "gpu-2 is not fit: /ckpt is not mounted. It stays drained, and the spare in."
    assert drill.seconds is not None, "how long the substitution took is known all the same"
    assert scheduler.nodes["gpu-2"].usable is False
    assert scheduler.nodes["gpu-2"].reason.startswith("muster: not fit to return: /ckpt")
    assert scheduler.nodes["gpu-4"].usable is True
    assert (drill.restore_node, drill.park_node) == ("", "")


def test_a_drill_that_is_cancelled_brings_both_back(yard: Yard, scheduler: FakeScheduler) -> None:
    drill = advanced(make(yard))
    answer(drill)
    advanced(drill)
    services.cancel_drill(drill=drill, actor="olga")
    Drill.objects.filter(pk=drill.pk).update(cancel_requested_at=timezone.now() - timedelta(minutes=1))
    advanced(drill)
    assert drill.outcome == "cancelled"
    assert scheduler.nodes["gpu-2"].usable is True
    assert scheduler.nodes["gpu-4"].parked is True


def test_a_scheduler_that_is_away_is_waited_for_until_the_deadline(yard: Yard, scheduler: FakeScheduler) -> None:
    drill = advanced(make(yard))
    answer(drill)
    scheduler.is_down = True
    assert advanced(drill).state == "running"
    Drill.objects.filter(pk=drill.pk).update(deadline_at=timezone.now())
    advanced(drill)
    assert drill.outcome == "failed"
    assert "Not done by the deadline: drain node. The scheduler: slurmctld does not answer" in drill.reason


def test_without_a_spare_the_drill_says_how_to_park_one(yard: Yard, scheduler: FakeScheduler) -> None:
    scheduler.resume("gpu-4")
    drill = advanced(make(yard))
    assert drill.outcome == "skipped"
    assert 'state=drain reason="muster standby"' in drill.reason


def test_a_spare_whose_agent_is_away_is_none(yard: Yard, scheduler: FakeScheduler) -> None:
    Agent.objects.filter(pk=yard.agents[3].pk).update(state=Agent.State.LOST)
    drill = advanced(make(yard))
    assert drill.outcome == "skipped"
    assert "no spare whose agent is online (parked: gpu-4)" in drill.reason


def test_a_node_that_is_not_in_use_is_not_taken_out(yard: Yard, scheduler: FakeScheduler) -> None:
    drill = advanced(make(yard, worker_node="gpu-4"))
    assert drill.outcome == "skipped"
    assert "no node gpu-4 to take out: in use with an agent are gpu-1, gpu-2, gpu-3" in drill.reason
