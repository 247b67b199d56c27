"""Requeues that the scheduler tells of, and the launches that they ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import factories
import msgspec
import pytest
from django.utils import timezone
from muster_agent.protocol.wire import HookRecord

from apps.checkpoints.hooks import ingest_records
from apps.checkpoints.models import RunAttempt, RunEvent, StepReport
from apps.checkpoints.scheduler_events import follow_jobs, note_requeue
from apps.fleet.inventory import Contents
from apps.fleet.models import ClusterInventory
from apps.fleet.schedulers.base import SchedulerJob
from apps.recovery.models import Incident
from apps.recovery.services import follow_runs

pytestmark = pytest.mark.django_db
T = datetime(2026, 11, 30, 22, 9, 13, tzinfo=UTC)


def job(**fields: Any) -> SchedulerJob:
    times = {"submitted_at": T, "eligible_at": T + timedelta(seconds=121), "started_at": T + timedelta(seconds=121)}
    return SchedulerJob(**{"job_id": "7", "name": "llm", "state": "pending", "restart_count": 1, **times, **fields})


def attempt(**fields: Any) -> RunAttempt:
    run = factories.run(factories.cluster())
    values = {"launch_id": "7.0", "job_id": "7", "job_restart_count": 0, "started_at": T, "last_report_at": T, **fields}
    return RunAttempt.objects.create(run=run, **values)


def events(of: RunAttempt) -> dict[str, datetime]:
    return dict(RunEvent.objects.filter(attempt=of).values_list("kind", "at"))


def test_a_launch_knows_its_job_and_how_often_that_was_requeued() -> None:
    agent = factories.agent(factories.node(factories.cluster()))
    told = {"job_id": "4711", "job_restart_count": 3}
    record = HookRecord(
        source="a",
        seq=1,
        kind="launch_started",
        run="llm",
        attempt="4711.3",
        at_unix_seconds=1.0,
        mono_seconds=1.0,
        data=told,
    )
    ingest_records(agent=agent, records=[record])
    row = RunAttempt.objects.get()
    assert (row.job_id, row.job_restart_count) == ("4711", 3)


@pytest.mark.parametrize(
    "data", [{"job_id": 7, "job_restart_count": 0}, {"job_id": "7", "job_restart_count": -1}, {"job_id": "7"}]
)
def test_a_job_that_makes_no_sense_is_not_kept(data: dict[str, Any]) -> None:
    agent = factories.agent(factories.node(factories.cluster()))
    record = HookRecord(
        source="a",
        seq=1,
        kind="launch_started",
        run="llm",
        attempt="x",
        at_unix_seconds=1.0,
        mono_seconds=1.0,
        data=data,
    )
    ingest_records(agent=agent, records=[record])
    assert RunAttempt.objects.get().job_restart_count is None


def test_a_requeue_is_recorded_as_far_as_it_has_come_and_again_as_it_goes_on() -> None:
    row = attempt()
    assert note_requeue(row, job())
    assert events(row) == {"requeued": T, "eligible": T + timedelta(seconds=121)}
    later = T + timedelta(seconds=125)
    assert note_requeue(row, job(nodes=("gpu-2",), started_at=later, state="running"))
    assert events(row) == {"requeued": T, "eligible": T + timedelta(seconds=121), "job_started": later}
    row.refresh_from_db()
    assert row.ended_at == T


@pytest.mark.parametrize("count", [0, 2])
def test_a_requeue_of_another_launch_says_nothing_about_this_one(count: int) -> None:
    row = attempt()
    assert not note_requeue(row, job(restart_count=count))
    assert events(row) == {}


def test_an_inventory_that_shows_a_requeue_makes_it_an_incident_without_any_drill() -> None:
    now = timezone.now().replace(microsecond=0)
    row = attempt(started_at=now - timedelta(minutes=9), last_report_at=now - timedelta(minutes=5), last_step=57)
    StepReport.objects.create(attempt=row, step=57, at=now - timedelta(minutes=5))
    contents = Contents(jobs=(job(submitted_at=now - timedelta(minutes=4)), job(job_id="8", restart_count=0)))
    counted = dict.fromkeys(("node_count", "usable_count", "gpu_count", "job_count", "change_count"), 0)
    ClusterInventory.objects.create(
        cluster=row.run.cluster,
        taken_at=now,
        seconds=0.1,
        scheduler="slurm",
        contents=msgspec.to_builtins(contents),
        **counted,
    )
    assert follow_jobs(row.run.cluster_id) == 1
    follow_runs()
    incident = Incident.objects.get()
    assert incident.ended_attempt == row
    assert (incident.fault_at, incident.detected_at) == (now - timedelta(minutes=5), now - timedelta(minutes=4))
    assert follow_jobs("cls_none") == 0
