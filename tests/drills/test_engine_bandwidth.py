"""Bandwidth drills: all nodes at once, with their balance, and the tier's ceiling kept with its method."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from drill_agents import Yard, advanced, report, tasks_of
from muster_agent.jobs.bandwidth import prepare
from muster_agent.jobs.control import JobControl
from muster_agent.protocol.measuring import BandwidthParams
from muster_agent.protocol.wire import TaskResult

from apps.checkpoints.models import TrustEvidence
from apps.core.errors import InvalidInput
from apps.drills import services
from apps.drills.models import Drill
from apps.fleet import barrier, tasks
from apps.recovery.matrix import columns
from apps.recovery.readiness import row_of
from apps.storage.models import TierCeiling


@pytest.fixture
def yard(db: None, tmp_path: Path) -> Yard:
    return Yard(tmp_path, node_count=3)


def make(yard: Yard, **spec: object) -> Drill:
    values = {"kind": "bandwidth", "runner": "builtin", "runner_seconds": 1, **spec}
    return services.create_drill(run=yard.run, spec=values, actor="olga")


def read_all(drill: Drill) -> None:
    """Each agent takes up its task, all meet, and each really reads."""
    held = [task for row in tasks_of(drill) for task in tasks.claim(agent=row.agent, slots=1)]
    for task in held:
        tasks.acknowledge(agent=task.agent, task_id=task.pk, attempt=task.attempt)
        task.refresh_from_db()
        barrier.mark_ready(task)
    barrier.settle(held[0].group_id or "")
    for task in held:
        body = prepare(msgspec.convert(task.params, BandwidthParams)).run(JobControl())
        report(task, TaskResult(outcome="done", body=msgspec.to_builtins(body)))


def test_every_node_reads_at_once_and_the_balance_and_ceiling_are_kept(yard: Yard) -> None:
    placement = yard.checkpoint(world_size=2, rank_bytes=3_000_000)
    drill = advanced(make(yard))
    parts = [task.params["part"] for task in tasks_of(drill)]
    assert parts == [[0, 3], [1, 3], [2, 3]]  # as many nodes as are online, whatever ranks the checkpoint has
    read_all(drill)
    advanced(drill)
    assert (drill.outcome, drill.verified) == ("passed", None), drill.reason
    balance = drill.facts["balance"]
    assert 0 < balance["min_rate"] <= balance["median_rate"] <= balance["max_rate"]
    assert "per node" in drill.reason and balance["slowest"].startswith("gpu-")
    assert drill.jain_index is not None
    ceiling = TierCeiling.objects.filter(client_count=3).first()
    if drill.cached_ratio_before is not None and drill.cached_ratio_before < 0.05:
        assert ceiling is not None and ceiling.method == f"bandwidth drill {drill.pk}, muster 4 MiB x 16"
    assert not TrustEvidence.objects.filter(placement=placement, rung="reloaded").exists()


def test_it_is_no_time_to_reload_and_judges_no_run(yard: Yard) -> None:
    yard.checkpoint(world_size=2, rank_bytes=3_000_000)
    drill = advanced(make(yard))
    read_all(drill)
    advanced(drill)
    [column] = columns([yard.tier])
    assert column.reload_seconds is None
    assert row_of(yard.run).drill is None


def test_a_runner_that_nobody_knows_is_refused(yard: Yard) -> None:
    with pytest.raises(InvalidInput) as problem:
        make(yard, runner="dd")
    assert problem.value.pointer == "/runner"
