"""Drills over files that were written again since the seal, and answers with times that no clock shows."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from django.utils import timezone
from drill_agents import Yard, advanced, report, run_to_end, tasks_of
from muster_agent.protocol.wire import DisruptBody, ReloadBody, TaskResult

from apps.checkpoints.models import Finding, RunAttempt, TrustEvidence
from apps.drills import results, services
from apps.drills.models import Drill
from apps.fleet import tasks

pytestmark = pytest.mark.django_db


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def make(yard: Yard, kind: str = "reload") -> Drill:
    return services.create_drill(run=yard.run, spec={"kind": kind}, actor="olga")


def test_a_file_written_again_with_other_bytes_fails_the_drill_without_marking_damage(yard: Yard) -> None:
    placement = yard.checkpoint()
    shard = Path(placement.path) / "rank-00002-of-00004.safetensors"
    shard.write_bytes(bytes(shard.stat().st_size))
    drill = run_to_end(make(yard), yard.agents)
    placement.refresh_from_db()
    assert (drill.outcome, drill.verified) == ("failed", None)
    assert "gpu-3 (rank 2)" in drill.reason and "changed since sealing" in drill.reason
    assert "Scan, then seal again" in drill.reason
    assert (placement.damaged_at, placement.status) == (None, "complete")
    assert not Finding.objects.filter(severity="damage").exists()
    assert not TrustEvidence.objects.filter(placement=placement, rung="reloaded").exists()


@pytest.mark.parametrize("seconds", [999_999_999_999.0, -5e9, 1e300])
def test_a_reload_that_began_at_a_time_that_no_clock_shows_has_no_time_of_its_own(yard: Yard, seconds: float) -> None:
    yard.checkpoint()
    drill = run_to_end(make(yard), yard.agents)
    rung = drill.rungs.get()
    client = results.clients_of(drill, rung)[0]
    assert isinstance(client.body, ReloadBody)
    strange = msgspec.structs.replace(client.body, started_unix_seconds=seconds)
    rung.results.all().delete()
    results.record(rung, [results.Client(client.index, client.name, client.ranks, client.task, strange)])
    assert rung.results.get().started_at is None


@pytest.mark.parametrize("seconds", [999_999_999_999.0, -5e9, 1e300])
def test_a_fault_at_a_time_that_no_clock_shows_is_dated_by_its_answer(yard: Yard, seconds: float) -> None:
    yard.cluster.allows_disruption = True
    yard.cluster.save()
    yard.checkpoint()
    now = timezone.now()
    RunAttempt.objects.create(
        run=yard.run, launch_id="demo-1", agent=yard.agents[0], started_at=now, last_report_at=now, last_step=12
    )
    drill = advanced(make(yard, "failover"))
    [task] = tasks_of(drill)
    [claimed] = tasks.claim(agent=task.agent, slots=1)
    tasks.acknowledge(agent=claimed.agent, task_id=claimed.pk, attempt=claimed.attempt)
    body = DisruptBody(pid=4242, signal_name="SIGKILL", injected_unix_seconds=seconds)
    report(claimed, TaskResult(outcome="done", body=msgspec.to_builtins(body)))
    drill = advanced(drill)
    assert drill.fault_at is not None and now <= drill.fault_at <= timezone.now()
    assert "no calendar" in drill.facts["fault_time"]
