"""Herd ladders: rung after rung, with more clients each time."""

from __future__ import annotations

from pathlib import Path

import pytest
from drill_agents import Yard, advanced, run_to_end, tasks_of, work

from apps.checkpoints.models import TrustEvidence
from apps.drills import services
from apps.drills.models import Drill, DrillRung, RankResult
from apps.fleet.models import Agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def make(yard: Yard, **spec: object) -> Drill:
    return services.create_drill(run=yard.run, spec={"kind": "herd", **spec}, actor="olga")


def test_the_default_ladder_doubles_up_to_every_node(yard: Yard) -> None:
    placement = yard.checkpoint()
    drill = run_to_end(make(yard), yard.agents)
    rungs = list(DrillRung.objects.filter(drill=drill).order_by("order"))
    assert drill.outcome == "passed"
    assert [rung.client_count for rung in rungs] == [1, 2, 4]
    assert [rung.results.count() for rung in rungs] == [1, 2, 4]
    assert all(rung.seconds and rung.bytes_per_second and rung.finished_at for rung in rungs)
    assert [step["client_count"] for step in drill.facts["ladder"]] == [1, 2, 4]
    assert (drill.total_bytes or 0) >= placement.total_bytes
    assert TrustEvidence.objects.filter(placement=placement, rung="reloaded").count() == 1


def test_rungs_run_one_after_the_other(yard: Yard) -> None:
    yard.checkpoint()
    drill = advanced(make(yard))
    assert len(tasks_of(drill)) == 1
    work(yard.agents)
    advanced(drill)
    assert len(tasks_of(drill)) == 3


def test_a_given_ladder_is_used_as_it_is(yard: Yard) -> None:
    yard.checkpoint()
    drill = run_to_end(make(yard, ladder=[1, 3]), yard.agents)
    assert list(DrillRung.objects.filter(drill=drill).values_list("client_count", flat=True)) == [1, 3]
    widest = RankResult.objects.filter(rung__drill=drill, rung__client_count=3).order_by("rank")
    assert [row.ranks for row in widest] == [[0], [1], [2, 3]]


def test_a_ladder_wider_than_the_checkpoint_is_skipped_with_its_width(yard: Yard) -> None:
    yard.checkpoint(world_size=2)
    drill = advanced(make(yard, ladder=[1, 4]))
    assert drill.outcome == "skipped"
    assert "splits into 2 parts" in drill.reason


def test_an_agent_that_is_gone_before_a_rung_is_named(yard: Yard) -> None:
    yard.checkpoint()
    drill = advanced(make(yard))
    work(yard.agents)
    Agent.objects.filter(node__name="gpu-2").update(state=Agent.State.LOST)
    advanced(drill)
    assert (drill.outcome, drill.reason) == ("lost", "gpu-2 went away before the round of 2 clients.")
