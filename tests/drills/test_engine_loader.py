"""Loader comparisons: asked for by name, on a node that has it, with both side by side."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from drill_agents import Yard, advanced, report, tasks_of
from muster_agent.jobs.loader_compare import side_by_side
from muster_agent.jobs.reload import prepare
from muster_agent.protocol.measuring import LoaderCompareParams
from muster_agent.protocol.results import LoaderReport
from muster_agent.protocol.wire import TaskResult

from apps.core.errors import InvalidInput
from apps.drills import services
from apps.drills.models import Drill
from apps.fleet import barrier, tasks


@pytest.fixture
def yard(db: None, tmp_path: Path) -> Yard:
    return Yard(tmp_path, node_count=3)


def make(yard: Yard, **spec: object) -> Drill:
    return services.create_drill(run=yard.run, spec={"kind": "loader_compare", **spec}, actor="olga")


def test_the_node_that_has_the_loader_reads_and_both_stand_side_by_side(yard: Yard) -> None:
    yard.checkpoint(world_size=2)
    yard.nodes[1].facts = {"loaders": ["team"]}
    yard.nodes[1].save()
    drill = advanced(make(yard, loader="team"))
    (task,) = tasks_of(drill)
    assert (task.agent.node.name, task.kind) == ("gpu-2", "loader_compare")
    params = msgspec.convert(task.params, LoaderCompareParams)
    assert params.loader == "team" and "argv" not in str(task.params)  # a name, never a command
    assert len(params.reload.shards) >= 2
    (held,) = tasks.claim(agent=task.agent, slots=1)
    tasks.acknowledge(agent=held.agent, task_id=held.pk, attempt=held.attempt)
    held.refresh_from_db()
    barrier.mark_ready(held)
    barrier.settle(held.group_id or "")
    body = prepare(params.reload).run()
    own = LoaderReport(
        seconds=2.0, cpu_seconds=3.0, peak_rss_bytes=1, bytes=body.report.bytes, phases={"unpickle": 1.5}
    )
    told = {"loader": "team", "own": msgspec.to_builtins(own), **side_by_side(body.report, own)}
    body = msgspec.structs.replace(
        body, report=msgspec.structs.replace(body.report, evidence={**body.report.evidence, "loader_compare": told})
    )
    report(held, TaskResult(outcome="done", body=msgspec.to_builtins(body)))
    advanced(drill)
    assert drill.outcome == "passed", drill.reason
    assert drill.facts["loader_compare"]["own"]["phases"] == {"unpickle": 1.5}
    assert "team took" in drill.reason and "times as much" in drill.reason


def test_without_a_node_that_names_it_the_drill_is_skipped_and_says_so(yard: Yard) -> None:
    yard.checkpoint(world_size=2)
    drill = advanced(make(yard, loader="team"))
    assert (drill.outcome, tasks_of(drill)) == ("skipped", [])
    assert "names a loader 'team' in its config.json" in drill.reason


@pytest.mark.parametrize("spec", [{}, {"kind": "reload", "loader": "team"}, {"loader": "x" * 65}])
def test_a_comparison_names_its_loader_and_no_other_kind_has_one(yard: Yard, spec: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as problem:
        make(yard, **spec)
    assert problem.value.pointer == "/loader"
