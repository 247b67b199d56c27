"""A restart inside one launch, from the hook's own count and from NVRx's cycle files, becomes a measured recovery."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import factories
import pytest
from django.test import Client
from django.utils import timezone
from muster_agent.hooks.nvrx_cycles import CycleReader
from muster_agent.hooks.reporter import attempt_of
from muster_agent.protocol.wire import HookRecord

from apps.accounts.models import Role
from apps.checkpoints.hooks import ingest_records
from apps.fleet.models import Agent
from apps.recovery.models import Incident
from apps.recovery.services import follow_runs

pytestmark = pytest.mark.django_db
BEGAN = timezone.now() - timedelta(minutes=30)


@pytest.fixture
def agent() -> Agent:
    return factories.agent(factories.node(factories.cluster()))


def record(kind: str, second: float, *, restart: int = 0, **fields: object) -> HookRecord:
    """Of rank 0's process, which each restart starts anew."""
    return HookRecord(
        source=f"rank0-{restart}",
        seq=int(second * 10),
        kind=kind,
        run="llama",
        attempt=attempt_of("48123", {"TORCHELASTIC_RESTART_COUNT": str(restart)}),
        at_unix_seconds=BEGAN.timestamp() + second,
        mono_seconds=second,
        rank=0,
        **fields,  # type: ignore[arg-type]
    )


def train(agent: Agent) -> None:
    """Steps 1 to 9, a fault, and step 6 again from the checkpoint of step 5, in the same launch."""
    first = [record("process_started", 0), *(record("step", step * 10, step=step) for step in range(1, 10))]
    again = [
        record("process_started", 100, restart=1),
        record("phase", 102, restart=1, phase="read", edge="begin"),
        record("phase", 110, restart=1, phase="read", edge="end"),
        record("resumed_from", 112, restart=1, step=5, data={"path": "/ckpt/step-5"}),
        record("step", 120, restart=1, step=6),
    ]
    ingest_records(agent=agent, records=[*first, *again])


def test_steps_that_stop_and_start_again_inside_one_launch_are_a_recovery(agent: Agent) -> None:
    train(agent)
    follow_runs()
    incident = Incident.objects.get()
    recovery = incident.recovery
    assert incident.ended_attempt is not None and incident.ended_attempt.launch_id == "48123"
    assert recovery.attempt is not None and recovery.attempt.launch_id == "48123+1"
    assert (recovery.state, recovery.checkpoint_step, recovery.lost_steps) == ("closed", 5, 4)
    assert recovery.time_to_resume_seconds == pytest.approx(30, abs=0.01)  # from the last step, 90 s, to 120 s
    assert recovery.lost_seconds == pytest.approx(40, abs=0.01)
    assert recovery.phases["read"] == pytest.approx(8, abs=0.01) and "detect" not in recovery.phases


def test_nvrx_cycle_files_add_when_the_failure_was_noticed(agent: Agent, tmp_path: Path) -> None:
    train(agent)
    for number, (begin, end) in enumerate(((0, 95), (98, None))):
        times = [(BEGAN + timedelta(seconds=at)).isoformat() if at is not None else "" for at in (begin, end)]
        body = {"job_id": "48123", "attempt_index": 0, "cycle_number": number}
        body |= {"cycle_start_time": times[0], "cycle_end_time": times[1]}
        (tmp_path / f"cycle_info.48123.0.{number}").write_text(json.dumps(body))
    records = CycleReader({str(tmp_path): "llama"}).read_new()
    ingest_records(agent=agent, records=records)
    ingest_records(agent=agent, records=records)  # an agent that started again sends all of them once more
    follow_runs()
    incident = Incident.objects.get()
    assert incident.detected_at is not None
    assert (incident.detected_at - BEGAN).total_seconds() == pytest.approx(95, abs=0.01)
    assert incident.recovery.phases["reschedule"] == pytest.approx(3, abs=0.01)
    assert incident.recovery.phases["launch"] == pytest.approx(2, abs=0.01)


def test_the_pages_show_incidents_only_of_clusters_in_sight(agent: Agent, client: Client) -> None:
    train(agent)
    follow_runs()
    incident = Incident.objects.get()
    client.force_login(factories.user("vera", Role.VIEWER))
    for url in ("/incidents/", "/incidents/?state=closed&q=lla", f"/incidents/{incident.pk}/"):
        html = client.get(url).content.decode()
        assert "llama" in html and "4 " in html, url
    assert "No incident matches" in client.get("/incidents/?state=open").content.decode()
    client.force_login(factories.user("nora", Role.NONE))
    assert client.get(f"/incidents/{incident.pk}/").status_code == 403
