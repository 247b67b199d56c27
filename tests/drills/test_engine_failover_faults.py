"""Failover drills by fault: who is asked to break what, and a node that is set down and brought back."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from drill_agents import Yard, advanced, report, tasks_of
from msgspec import convert, to_builtins
from muster_agent.protocol.wire import DisruptBody, DisruptParams, TaskResult

from apps.checkpoints.models import RunAttempt, RunEvent
from apps.drills import engine, faults, services
from apps.drills.models import Drill
from apps.fleet import tasks
from apps.fleet.inventory import Contents
from apps.fleet.models import ClusterInventory
from apps.fleet.schedulers.base import SchedulerError, SchedulerJob, SchedulerNode

pytestmark = pytest.mark.django_db


class FakeScheduler:
    """Stands in for Slurm, whose own behaviour tests/contract/test_drills_on_slurm.py shows."""

    requeue_hold_cure = "lower cred_expire"

    def __init__(self) -> None:
        self.nodes = {f"gpu-{n}": SchedulerNode(name=f"gpu-{n}", state="idle", usable=True) for n in range(1, 5)}
        self.down = False
        self.failed: list[str] = []

    def node(self, name: str) -> SchedulerNode:
        if self.down:
            raise SchedulerError("slurmctld does not answer")
        return self.nodes[name]

    def job(self, _job_id: str) -> None:
        return None

    def fail(self, name: str, reason: str) -> None:
        self.node(name)
        self.failed.append(name)
        self.nodes[name] = SchedulerNode(name=name, state="down", usable=False, reason=reason)

    def resume(self, name: str) -> None:
        self.nodes[name] = SchedulerNode(name=name, state="idle", usable=True)


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> FakeScheduler:
    fake = FakeScheduler()
    monkeypatch.setattr(faults, "required_scheduler", lambda _cluster: fake)
    monkeypatch.setattr(faults, "scheduler_of", lambda _cluster: fake)
    return fake


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    yard = Yard(tmp_path)
    yard.cluster.allows_disruption = True
    yard.cluster.save()
    return yard


def training(yard: Yard) -> RunAttempt:
    """Ranks 0 to 3 train, one on each node."""
    now = timezone.now()
    row = RunAttempt.objects.create(
        run=yard.run, launch_id="7.0", agent=yard.agents[0], started_at=now, last_report_at=now, last_step=5
    )
    for rank, agent in enumerate(yard.agents):
        RunEvent.objects.create(
            run=yard.run, attempt=row, agent=agent, source=f"rank-{rank}", seq=1, kind="process_started", at=now,
            mono_seconds=0.0, rank=rank, pid=100 + rank,
        )  # fmt: skip
    return row


def make(yard: Yard, **spec: Any) -> Drill:
    return services.create_drill(run=yard.run, spec={"kind": "failover", **spec}, actor="olga")


def answered(drill: Drill, body: DisruptBody) -> None:
    [task] = tasks_of(drill)
    [claimed] = tasks.claim(agent=task.agent, slots=1)
    tasks.acknowledge(agent=claimed.agent, task_id=claimed.pk, attempt=claimed.attempt)
    report(claimed, TaskResult(outcome="done", body=to_builtins(body)))


def test_the_named_rank_is_broken_on_its_own_node(yard: Yard) -> None:
    training(yard)
    drill = advanced(make(yard, worker_rank=2))
    [task] = tasks_of(drill)
    params = convert(task.params, DisruptParams)
    assert (task.agent_id, params.pid, params.fault, params.signal_name) == (
        yard.agents[2].pk,
        102,
        "process",
        "SIGKILL",
    )
    assert drill.facts["worker"] == "rank 2 on gpu-3"


def test_a_random_rank_is_any_of_those_that_still_run(yard: Yard) -> None:
    row = training(yard)
    for rank in (0, 1, 3):
        RunEvent.objects.create(
            run=yard.run,
            attempt=row,
            source=f"rank-{rank}",
            seq=2,
            kind="process_ended",
            at=timezone.now(),
            mono_seconds=1.0,
        )
    assert advanced(make(yard)).facts["worker"] == "rank 2 on gpu-3"


def test_a_rank_that_is_not_there_breaks_nothing_and_those_that_are_get_named(yard: Yard) -> None:
    training(yard)
    drill = advanced(make(yard, worker_rank=9))
    assert drill.outcome == "skipped"
    assert "no worker rank 9; registered are: rank 0 on gpu-1, rank 1 on gpu-2" in drill.reason
    assert tasks_of(drill) == []


def test_an_exception_is_timed_from_when_the_trainer_raised_it(yard: Yard) -> None:
    row = training(yard)
    drill = advanced(make(yard, fault="exception", worker_rank=1))
    [task] = tasks_of(drill)
    assert convert(task.params, DisruptParams).signal_name == "", "an agent that knows signals only must refuse"
    asked_at = timezone.now()
    answered(drill, DisruptBody(pid=101, injected_unix_seconds=asked_at.timestamp()))
    assert advanced(drill).fault_at is None
    raised_at = asked_at + timedelta(seconds=0.4)
    RunEvent.objects.create(
        run=yard.run,
        attempt=row,
        source="rank-1",
        seq=2,
        kind="fault_injected",
        at=raised_at,
        mono_seconds=1.0,
        pid=101,
    )
    assert advanced(drill).fault_at == raised_at


def test_a_link_is_asked_for_by_its_name_only(yard: Yard) -> None:
    training(yard)
    drill = advanced(make(yard, fault="link", link="ib0", worker_node="gpu-4"))
    [task] = tasks_of(drill)
    params = convert(task.params, DisruptParams)
    assert (task.agent_id, params.fault, params.link) == (yard.agents[3].pk, "link", "ib0")
    answered(drill, DisruptBody(injected_unix_seconds=timezone.now().timestamp(), undone_after_seconds=30.0))
    assert advanced(drill).facts["undone_after_seconds"] == 30.0


def test_a_node_is_set_down_once_and_brought_back_when_the_drill_ends(yard: Yard, scheduler: FakeScheduler) -> None:
    training(yard)
    drill = advanced(make(yard, fault="node", worker_node="gpu-2", deadline_seconds=5))
    assert scheduler.failed == ["gpu-2"]
    assert tasks_of(drill) == []
    assert drill.fault_at is not None
    assert drill.facts["node"] == "gpu-2"
    advanced(drill)
    assert scheduler.failed == ["gpu-2"]
    Drill.objects.filter(pk=drill.pk).update(deadline_at=timezone.now())
    scheduler.down = True
    assert advanced(drill).outcome == "failed"
    assert scheduler.nodes["gpu-2"].usable is False
    assert engine.due(timezone.now() + timedelta(minutes=1)) == [drill.pk], "its node is still to be brought back"
    scheduler.down = False
    advanced(drill)
    assert scheduler.nodes["gpu-2"].usable is True
    assert (drill.restore_node, drill.next_attempt_at) == ("", None)


def test_a_crash_between_setting_down_and_noting_it_sets_nothing_down_again(
    yard: Yard, scheduler: FakeScheduler
) -> None:
    training(yard)
    drill = advanced(make(yard, fault="node", worker_node="gpu-2"))
    Drill.objects.filter(pk=drill.pk).update(fault_at=None)
    advanced(drill)
    assert scheduler.failed == ["gpu-2"]
    assert "interruption" in drill.facts["fault_time"]


def test_a_node_that_somebody_took_over_meanwhile_is_left_to_them(yard: Yard, scheduler: FakeScheduler) -> None:
    training(yard)
    drill = advanced(make(yard, fault="node", worker_node="gpu-2"))
    scheduler.nodes["gpu-2"] = SchedulerNode(name="gpu-2", state="down", usable=False, reason="burnt")
    services.cancel_drill(drill=drill, actor="olga")
    advanced(drill)
    advanced(drill)
    assert (drill.outcome, drill.restore_node) == ("cancelled", "")
    assert scheduler.nodes["gpu-2"].reason == "burnt"


def test_a_node_that_is_out_of_use_already_is_not_touched(yard: Yard, scheduler: FakeScheduler) -> None:
    training(yard)
    scheduler.nodes["gpu-2"] = SchedulerNode(name="gpu-2", state="mixed+drain", usable=False, reason="bad nvlink")
    drill = advanced(make(yard, fault="node", worker_node="gpu-2"))
    assert (drill.outcome, scheduler.failed) == ("skipped", [])
    assert "mixed+drain (bad nvlink) already" in drill.reason


def test_a_node_of_a_cluster_without_scheduler_says_what_to_set(yard: Yard) -> None:
    training(yard)
    drill = advanced(make(yard, fault="node"))
    assert drill.outcome == "skipped"
    assert "has no scheduler" in drill.reason


# -- a job that is known by its log alone ------------------------------------------------------------------------------
def logged(yard: Yard, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch) -> RunAttempt:
    """Read by the agent of gpu-1, while its job runs on gpu-3, as the last inventory and the scheduler say."""
    now = timezone.now()
    attempt = RunAttempt.objects.create(
        run=yard.run, launch_id="7.0-1", agent=yard.agents[0], started_at=now, last_report_at=now, last_step=5,
        job_id="7", job_restart_count=0,
    )  # fmt: skip
    RunEvent.objects.create(
        run=yard.run, attempt=attempt, source="log-1", seq=1, kind="log_found", at=now, mono_seconds=0.0
    )
    job = SchedulerJob(job_id="7", name="llama", state="running", nodes=("gpu-3",))
    monkeypatch.setattr(scheduler, "job", lambda _job_id: job)
    counts = dict.fromkeys(("node_count", "usable_count", "gpu_count", "job_count", "change_count"), 0)
    ClusterInventory.objects.create(
        cluster=yard.cluster, taken_at=now, seconds=0.1, scheduler="slurm",
        contents=to_builtins(Contents(jobs=(job,))), **counts,
    )  # fmt: skip
    return attempt


def test_its_node_is_that_of_its_job_wherever_the_log_is_read(
    yard: Yard, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged(yard, scheduler, monkeypatch)
    advanced(make(yard, fault="node"))
    assert scheduler.failed == ["gpu-3"]


def test_a_job_that_has_moved_since_the_inventory_is_not_hit_where_it_was(
    yard: Yard, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged(yard, scheduler, monkeypatch)
    moved = SchedulerJob(job_id="7", name="llama", state="running", nodes=("gpu-4",))
    monkeypatch.setattr(scheduler, "job", lambda _job_id: moved)
    drill = advanced(make(yard, fault="node"))
    assert (drill.outcome, scheduler.failed) == ("skipped", [])
    assert drill.reason.startswith("Job 7 runs on gpu-4 and not on gpu-3: take an inventory")


def test_none_of_its_processes_is_signalled(
    yard: Yard, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged(yard, scheduler, monkeypatch)
    drill = advanced(make(yard))
    assert (drill.outcome, tasks_of(drill)) == ("skipped", [])
    assert "known by its log alone" in drill.reason and "fault node" in drill.reason
