"""Incidents that somebody reports, with and without the records of a training hook."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import factories
import pytest
from django.utils import timezone
from recovery.test_services_recovery import Job
from rest_framework.test import APIClient

from apps.accounts.models import ActivityEntry, Role
from apps.checkpoints.models import RunAttempt, TrainingRun
from apps.drills.models import Drill
from apps.recovery import services
from apps.recovery.models import Incident, Recovery
from apps.recovery.readiness import row_of

pytestmark = pytest.mark.django_db
NOW = timezone.now()


@pytest.fixture
def run() -> TrainingRun:
    return factories.run(factories.cluster())


@pytest.fixture
def api() -> APIClient:
    made = APIClient()
    made.credentials(HTTP_AUTHORIZATION=f"Bearer {factories.token(factories.user('olga', Role.OPERATOR))}")
    return made


def report(api: APIClient, minutes_ago: float = 60, **fields: Any) -> Any:
    body = {"run": "llama-70b", "fault_at": (NOW - timedelta(minutes=minutes_ago)).isoformat(), **fields}
    return api.post("/api/v1/incidents", body, format="json")


def test_a_run_without_a_hook_gets_an_incident_with_what_its_reporter_gave(run: TrainingRun, api: APIClient) -> None:
    reply = report(api, resumed_at=(NOW - timedelta(minutes=50)).isoformat(), detail="switch lost power")
    assert reply.status_code == 201, reply.content
    body = reply.json()
    assert (body["launch_id"], body["reported_by"], body["detail"]) == (None, "olga", "switch lost power")
    recovery = body["recovery"]
    assert (recovery["state"], recovery["time_to_resume_seconds"]) == ("closed", 600.0)
    assert recovery["unattributed_seconds"] == 600.0 and recovery["phases"]["detect"] is None
    services.follow_runs()
    assert row_of(run).restart_seconds == 600.0
    assert ActivityEntry.objects.get(action="incident.report").target_id == body["id"]


def test_the_launch_that_was_running_is_found_and_its_records_measure_the_way_back(api: APIClient) -> None:
    job = Job()
    job.train("a1", 30, 57, begin=0)
    given = report(api, fault_at=job.at(27.5).isoformat(), resumed_at=job.at(99).isoformat())
    assert given.json()["errors"][0]["pointer"] == "/resumed_at"
    reply = report(api, fault_at=job.at(27.5).isoformat())
    body = reply.json()
    assert (reply.status_code, body["launch_id"], body["recovery"]["state"]) == (201, "a1", "open")
    job.restart("a2", 31)
    job.train("a2", 41, 50, begin=36)
    services.follow_runs()
    recovery = Recovery.objects.get()
    assert recovery.attempt is not None
    assert (recovery.state, recovery.attempt.launch_id, recovery.checkpoint_step) == ("closed", "a2", 40)
    assert recovery.time_to_resume_seconds == pytest.approx(8.5, abs=0.01)
    assert recovery.lost_steps == 17
    again = report(api, fault_at=job.at(28).isoformat())
    assert again.status_code == 409 and body["id"] in again.json()["detail"]
    assert Incident.objects.count() == 1


def test_what_a_drill_ended_is_no_incident(run: TrainingRun, api: APIClient) -> None:
    at = NOW - timedelta(minutes=90)
    ended = RunAttempt.objects.create(run=run, launch_id="a1", started_at=at, last_report_at=at)
    Drill.objects.create(
        cluster=run.cluster, run=run, kind="failover", attempt=ended, fault_at=NOW, created_at=NOW, requested_by="x"
    )
    assert report(api).status_code == 409


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"fault_at": "2999-01-01T00:00:00Z"}, "/fault_at"),
        ({"fault_at": "yesterday"}, "/fault_at"),
        ({"launch_id": "nobody"}, "/launch_id"),
        ({"detected_at": "2020-01-01T00:00:00Z"}, "/detected_at"),
        ({"resumed_at": "2020-01-01T00:00:00Z"}, "/resumed_at"),
        ({"colour": "red"}, "/colour"),
    ],
)
def test_a_report_that_cannot_be_says_which_field_is_wrong(
    run: TrainingRun, api: APIClient, fields: dict[str, str], pointer: str
) -> None:
    reply = report(api, **fields)
    assert reply.status_code in (400, 422), reply.content
    assert reply.json()["errors"][0]["pointer"] == pointer
    assert not Incident.objects.exists()
