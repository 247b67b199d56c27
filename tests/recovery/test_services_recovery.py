"""Following real disruptions, with the rows that hooks leave."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import factories
import pytest
from django.utils import timezone
from muster_agent.protocol.wire import HookRecord

from apps.checkpoints.hooks import ingest_records
from apps.drills.models import Drill
from apps.fleet.models import Agent
from apps.recovery.models import Incident, Recovery
from apps.recovery.services import follow_runs

pytestmark = pytest.mark.django_db


class Job:
    """Reports what a training job's processes would; times are seconds after its start ten minutes ago."""

    def __init__(self) -> None:
        self.cluster = factories.cluster()
        self.agent: Agent = factories.agent(factories.node(self.cluster))
        self.start = timezone.now() - timedelta(minutes=10)
        self.seq = 0

    def at(self, seconds: float) -> datetime:
        return self.start + timedelta(seconds=seconds)

    def say(self, seconds: float, attempt: str, kind: str, **fields: Any) -> None:
        self.seq += 1
        record = HookRecord(
            source="host-1",
            seq=self.seq,
            kind=kind,
            run="llama-70b",
            attempt=attempt,
            at_unix_seconds=self.at(seconds).timestamp(),
            mono_seconds=seconds,
            **fields,
        )
        ingest_records(agent=self.agent, records=[record])

    def train(self, attempt: str, first: int, last: int, begin: float) -> None:
        """One step a second, from `begin`."""
        self.say(begin - 0.5, attempt, "process_started", rank=0, pid=1)
        for number, step in enumerate(range(first, last + 1)):
            self.say(begin + number, attempt, "step", step=step, rank=0, loss=1.0)

    def restart(self, attempt: str, begin: float, step: int = 40) -> None:
        """Launched at `begin`, read for 2 s, state in place 3 s later."""
        self.say(begin, attempt, "launch_started")
        self.say(begin + 1, attempt, "process_started", rank=0, pid=2)
        self.say(begin + 1, attempt, "phase", phase="read", edge="begin", rank=0)
        self.say(begin + 3, attempt, "phase", phase="read", edge="end", rank=0)
        self.say(begin + 3, attempt, "resumed_from", step=step, rank=0, data={"path": "/ckpt/step-40"})


@pytest.fixture
def job() -> Job:
    return Job()


def test_a_killed_launch_becomes_an_incident_and_its_recovery_is_measured(job: Job) -> None:
    job.train("a1", 30, 57, begin=0)
    job.say(30, "a1", "failure_detected", data={"signal": "SIGKILL"})
    follow_runs()
    incident = Incident.objects.get()
    assert (incident.fault_at, incident.detected_at) == (job.at(27), job.at(30))
    assert incident.recovery.state == "open"
    job.restart("a2", 31)
    job.say(35, "a2", "step", step=41, rank=0)
    follow_runs()
    recovery = Recovery.objects.get()
    assert recovery.state == "closed"
    assert recovery.time_to_resume_seconds == pytest.approx(8.0, abs=0.001)
    assert "detect" not in recovery.phases
    assert recovery.phases["reschedule"] == pytest.approx(1.0, abs=0.001)
    assert recovery.phases["read"] == pytest.approx(2.0, abs=0.001)
    assert recovery.unattributed_seconds == pytest.approx(3.0, abs=0.001)
    assert (recovery.checkpoint_step, recovery.lost_steps) == (40, 17)
    assert recovery.lost_seconds == pytest.approx(17.0, abs=0.001)
    assert recovery.attempt is not None and recovery.attempt.launch_id == "a2"


def test_following_again_changes_nothing(job: Job) -> None:
    job.train("a1", 30, 57, begin=0)
    job.say(30, "a1", "failure_detected")
    for _time in range(3):
        follow_runs()
    assert Incident.objects.count() == Recovery.objects.count() == 1


def test_records_that_come_late_correct_a_closed_recovery(job: Job) -> None:
    job.train("a1", 30, 57, begin=0)
    job.say(30, "a1", "failure_detected")
    job.restart("a2", 31)
    job.say(35, "a2", "step", step=41, rank=0)
    follow_runs()
    job.say(34.1, "a2", "phase", phase="materialize", edge="begin", rank=0)
    job.say(34.5, "a2", "phase", phase="materialize", edge="end", rank=0)
    follow_runs()
    assert Recovery.objects.get().phases["materialize"] == pytest.approx(0.4, abs=0.001)


def test_a_launch_that_vanished_is_noticed_when_another_begins(job: Job) -> None:
    job.train("a1", 30, 57, begin=0)
    follow_runs()
    assert not Incident.objects.exists()
    job.restart("a2", 100)
    follow_runs()
    incident = Incident.objects.get()
    assert incident.detected_at is None
    assert "a2 began while a1 had not said that it ended" in incident.detail


def test_a_silent_launch_is_not_called_dead(job: Job) -> None:
    job.train("a1", 30, 57, begin=0)
    follow_runs(timezone.now() + timedelta(hours=5))
    assert not Incident.objects.exists()


def test_an_end_in_order_is_no_incident(job: Job) -> None:
    job.train("a1", 30, 57, begin=0)
    job.say(28, "a1", "process_ended", rank=0)
    job.restart("a2", 100)
    follow_runs()
    assert not Incident.objects.exists()


def test_a_fault_that_a_drill_injected_is_no_incident(job: Job) -> None:
    job.train("a1", 30, 57, begin=0)
    from apps.checkpoints.models import RunAttempt

    attempt = RunAttempt.objects.get(launch_id="a1")
    drill = Drill.objects.create(
        cluster=job.cluster, run=attempt.run, kind="failover", attempt=attempt, state="running", created_at=job.at(28)
    )
    job.say(30, "a1", "failure_detected")
    follow_runs()
    assert not Incident.objects.exists()
    Drill.objects.filter(pk=drill.pk).update(state="finished", outcome="failed", fault_at=job.at(29))
    follow_runs()
    assert not Incident.objects.exists()


def test_a_drill_that_never_injected_hides_no_real_failure(job: Job) -> None:
    job.train("a1", 30, 57, begin=0)
    from apps.checkpoints.models import RunAttempt

    attempt = RunAttempt.objects.get(launch_id="a1")
    Drill.objects.create(
        cluster=job.cluster,
        run=attempt.run,
        kind="failover",
        attempt=attempt,
        state="finished",
        outcome="failed",
        created_at=job.at(5),
    )
    job.say(30, "a1", "failure_detected")
    follow_runs()
    assert Incident.objects.count() == 1


def test_launches_that_die_on_the_way_back_belong_to_the_same_recovery(job: Job) -> None:
    job.train("a1", 30, 57, begin=0)
    job.say(30, "a1", "failure_detected")
    job.say(31, "a2", "launch_started")
    job.say(32, "a2", "failure_detected")
    job.restart("a3", 40)
    job.say(45, "a3", "step", step=41, rank=0)
    follow_runs()
    recovery = Recovery.objects.get()
    assert recovery.state == "closed"
    assert recovery.time_to_resume_seconds == pytest.approx(18.0, abs=0.001)


def test_two_failures_in_a_row_are_two_incidents(job: Job) -> None:
    job.train("a1", 30, 57, begin=0)
    job.say(30, "a1", "failure_detected")
    job.restart("a2", 31)
    job.train("a2", 41, 50, begin=35)
    job.say(50, "a2", "failure_detected")
    follow_runs()
    assert Incident.objects.count() == 2
    assert sorted(Recovery.objects.values_list("state", flat=True)) == ["closed", "open"]


def test_an_incident_of_long_ago_is_not_dug_up(job: Job) -> None:
    job.train("a1", 30, 57, begin=0)
    job.say(30, "a1", "failure_detected")
    follow_runs(datetime.now(UTC) + timedelta(days=8))
    assert not Incident.objects.exists()
