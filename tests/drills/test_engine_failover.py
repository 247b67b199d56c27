"""Failover drills from creation to their phases, with the rows that hooks leave."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from drill_agents import Yard, advanced, report, tasks_of
from msgspec import convert, to_builtins
from muster_agent.protocol.wire import DisruptBody, DisruptParams, TaskResult

from apps.checkpoints.models import RunAttempt, RunEvent, StepReport
from apps.core.errors import Conflict
from apps.drills import failing_over, services
from apps.drills.models import Drill
from apps.fleet import tasks
from apps.fleet.models import Agent, AgentTask

pytestmark = pytest.mark.django_db


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    yard = Yard(tmp_path)
    yard.cluster.allows_disruption = True
    yard.cluster.save()
    return yard


def attempt(yard: Yard, launch_id: str, started_at: datetime, **fields: object) -> RunAttempt:
    return RunAttempt.objects.create(
        run=yard.run,
        launch_id=launch_id,
        agent=yard.agents[0],
        started_at=started_at,
        last_report_at=fields.pop("last_report_at", timezone.now()),
        **fields,
    )


def training(yard: Yard, last_step: int = 57) -> RunAttempt:
    """A launch that trains: step N was done at N - `last_step` seconds from a second ago."""
    now = timezone.now()
    row = attempt(yard, "demo-1", now - timedelta(minutes=5), last_step=last_step)
    for step in range(last_step - 20, last_step + 1):
        StepReport.objects.create(attempt=row, step=step, at=now - timedelta(seconds=last_step - step + 1))
    return row


class Hook:
    """Leaves hook records at seconds after the fault."""

    def __init__(self, yard: Yard, of: RunAttempt, fault_at: datetime) -> None:
        self.yard, self.of, self.fault_at, self.seq = yard, of, fault_at, 0

    def __call__(self, seconds: float, kind: str, of: RunAttempt | None = None, **fields: object) -> None:
        self.seq += 1
        RunEvent.objects.create(
            run=self.yard.run,
            attempt=of or self.of,
            source="hook",
            seq=self.seq,
            kind=kind,
            at=self.fault_at + timedelta(seconds=seconds),
            mono_seconds=seconds,
            **fields,
        )

    def interval(self, phase: str, begin: float, end: float, of: RunAttempt) -> None:
        self(begin, "phase", of, phase=phase, edge="begin", rank=0)
        self(end, "phase", of, phase=phase, edge="end", rank=0)


def inject(drill: Drill, fault_at: datetime) -> None:
    """The agent ends the process and says when."""
    [task] = tasks_of(drill)
    [claimed] = tasks.claim(agent=task.agent, slots=1)
    tasks.acknowledge(agent=claimed.agent, task_id=claimed.pk, attempt=claimed.attempt)
    body = DisruptBody(pid=4242, signal_name="SIGKILL", injected_unix_seconds=fault_at.timestamp())
    report(claimed, TaskResult(outcome="done", body=to_builtins(body)))


def come_back(yard: Yard, hook: Hook, *, path: str = "", first_step: int | None = 41) -> RunAttempt:
    """Detected after 0.5 s, launched after 1 s, read for 2 s, first step 4 s after the fault."""
    again = attempt(yard, "demo-2", hook.fault_at + timedelta(seconds=1), resumed_from_step=40, resumed_from_path=path)
    hook(0.5, "failure_detected")
    hook(1.0, "launch_started", again)
    hook(1.2, "process_started", again, rank=0)
    hook.interval("read", 1.5, 3.5, again)
    hook(3.5, "resumed_from", again, rank=0, step=40)
    if first_step is not None:
        StepReport.objects.create(attempt=again, step=first_step, at=hook.fault_at + timedelta(seconds=4))
    return again


def make(yard: Yard, **spec: object) -> Drill:
    return services.create_drill(run=yard.run, spec={"kind": "failover", **spec}, actor="olga")


def settled(drill: Drill) -> Drill:
    """As after the few seconds in which other ranks' records still come in."""
    drill.refresh_from_db()
    past = (timezone.now() - timedelta(seconds=1)).isoformat()
    Drill.objects.filter(pk=drill.pk).update(facts={**drill.facts, "settled_at": past})
    return advanced(drill)


def test_the_time_to_resume_is_measured_from_the_injection_to_the_first_new_step(yard: Yard) -> None:
    placement = yard.checkpoint(40)
    killed = training(yard)
    drill = advanced(make(yard, objective_seconds=3.0))
    assert (drill.state, drill.attempt_id) == ("running", killed.pk)
    fault_at = timezone.now()
    inject(drill, fault_at)
    assert advanced(drill).fault_at == fault_at
    come_back(yard, Hook(yard, killed, fault_at), path=placement.path)
    assert advanced(drill).state == "validating"
    settled(drill)
    assert (drill.outcome, drill.objective_state) == ("passed", "breached")
    assert drill.seconds == pytest.approx(4.0, abs=0.001)
    assert drill.phases == {
        "detect": pytest.approx(0.5, abs=0.001),
        "reschedule": pytest.approx(0.5, abs=0.001),
        "launch": pytest.approx(0.2, abs=0.001),
        "read": pytest.approx(2.0, abs=0.001),
        "first_step": pytest.approx(0.5, abs=0.001),
    }
    assert drill.unattributed_seconds == pytest.approx(0.3, abs=0.001)
    assert (drill.checkpoint_step, drill.lost_steps) == (40, 17)
    assert drill.lost_seconds == pytest.approx(18, abs=0.5)
    assert drill.placement_id == placement.pk
    assert drill.facts["boundaries"][0]["what"] == "fault injected"
    assert drill.facts["boundaries"][-1]["what"] == "step 41 done"


def test_the_agent_beside_the_live_launch_gets_one_task_that_is_never_run_twice(yard: Yard) -> None:
    training(yard)
    drill = advanced(make(yard, signal_name="SIGTERM"))
    [task] = tasks_of(drill)
    params = convert(task.params, DisruptParams)
    assert (task.agent_id, task.idempotent, task.kind) == (yard.agents[0].pk, False, "disrupt")
    assert (params.run, params.attempt, params.signal_name) == ("llama-70b", "demo-1", "SIGTERM")


def test_records_that_arrive_after_the_end_are_taken_in(yard: Yard) -> None:
    killed = training(yard)
    drill = advanced(make(yard))
    fault_at = timezone.now()
    inject(drill, fault_at)
    advanced(drill)
    hook = Hook(yard, killed, fault_at)
    again = come_back(yard, hook)
    advanced(drill)
    settled(drill)
    assert "materialize" not in drill.phases
    hook.interval("materialize", 3.5, 3.6, again)
    assert failing_over.recompute(drill) is True
    drill.refresh_from_db()
    assert drill.phases["materialize"] == pytest.approx(0.1, abs=0.001)
    assert failing_over.recompute(drill) is False


def test_no_step_beyond_the_checkpoint_by_the_deadline_fails_and_says_what_was_heard_last(yard: Yard) -> None:
    killed = training(yard)
    drill = advanced(make(yard, deadline_seconds=60))
    fault_at = timezone.now()
    inject(drill, fault_at)
    advanced(drill)
    come_back(yard, Hook(yard, killed, fault_at), first_step=None)
    assert advanced(drill).state == "running"
    Drill.objects.filter(pk=drill.pk).update(
        started_at=timezone.now() - timedelta(seconds=61), deadline_at=timezone.now() - timedelta(seconds=1)
    )
    advanced(drill)
    assert (drill.outcome, drill.seconds, drill.objective_state) == ("failed", None, "none")
    assert drill.reason.startswith("No step beyond the checkpoint within 60 s.")
    assert "state of step 40 in place, rank 0 (launch demo-2)" in drill.reason
    assert drill.phases["read"] == pytest.approx(2.0, abs=0.001)


def test_a_process_that_survives_the_signal_is_said_to_have(yard: Yard) -> None:
    killed = training(yard)
    drill = advanced(make(yard, signal_name="SIGTERM"))
    fault_at = timezone.now() - timedelta(seconds=30)
    inject(drill, fault_at)
    advanced(drill)
    StepReport.objects.create(attempt=killed, step=90, at=timezone.now())
    Drill.objects.filter(pk=drill.pk).update(deadline_at=timezone.now() - timedelta(seconds=1))
    assert "went on training after SIGTERM" in advanced(drill).reason


def test_a_restart_that_never_said_what_it_resumed_from_is_named(yard: Yard) -> None:
    training(yard)
    drill = advanced(make(yard))
    fault_at = timezone.now()
    inject(drill, fault_at)
    advanced(drill)
    again = attempt(yard, "demo-2", fault_at + timedelta(seconds=1))
    StepReport.objects.create(attempt=again, step=1, at=fault_at + timedelta(seconds=2))
    Drill.objects.filter(pk=drill.pk).update(deadline_at=timezone.now() - timedelta(seconds=1))
    advanced(drill)
    assert drill.outcome == "failed"
    assert "never said what it resumed from" in drill.reason


def test_a_refused_injection_fails_with_the_agents_reason(yard: Yard) -> None:
    training(yard)
    drill = advanced(make(yard))
    [task] = tasks_of(drill)
    [claimed] = tasks.claim(agent=task.agent, slots=1)
    tasks.acknowledge(agent=claimed.agent, task_id=claimed.pk, attempt=claimed.attempt)
    report(claimed, TaskResult(outcome="failed", error="no process of launch demo-1 is registered here"))
    advanced(drill)
    assert (drill.outcome, drill.fault_at) == ("failed", None)
    assert drill.reason == "gpu-1 did not end the process: no process of launch demo-1 is registered here."


def test_a_lost_injection_is_lost_and_not_repeated(yard: Yard) -> None:
    training(yard)
    drill = advanced(make(yard))
    AgentTask.objects.filter(owner_id=drill.pk).update(state="lost", outcome="lost")
    advanced(drill)
    assert drill.outcome == "lost"
    assert len(tasks_of(drill)) == 1


def test_it_is_refused_where_the_cluster_does_not_allow_disruption(yard: Yard) -> None:
    yard.cluster.allows_disruption = False
    yard.cluster.save()
    with pytest.raises(Conflict, match="Disruptive drills are off on east"):
        make(yard)
    assert not Drill.objects.exists()


def test_permission_withdrawn_after_creation_still_stops_it(yard: Yard) -> None:
    training(yard)
    drill = make(yard)
    yard.cluster.allows_disruption = False
    yard.cluster.save()
    assert advanced(drill).outcome == "skipped"
    assert tasks_of(drill) == []


def test_a_launch_that_is_silent_for_minutes_is_not_killed(yard: Yard) -> None:
    row = training(yard)
    RunAttempt.objects.filter(pk=row.pk).update(last_report_at=timezone.now() - timedelta(minutes=3))
    drill = advanced(make(yard))
    assert drill.outcome == "skipped"
    assert "No launch of llama-70b has reported" in drill.reason


def test_a_launch_whose_agent_is_away_is_not_killed(yard: Yard) -> None:
    training(yard)
    Agent.objects.filter(pk=yard.agents[0].pk).update(state=Agent.State.STALE)
    drill = advanced(make(yard))
    assert drill.outcome == "skipped"
    assert "demo-1 is not online" in drill.reason
