"""Reload drills, from creation to their evidence, with real files and fleet's real task life."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import factories
import pytest
from django.utils import timezone
from drill_agents import Yard, advanced, fail_task, run_to_end, tasks_of, work
from msgspec import convert
from muster_agent.formats.codes import finding
from muster_agent.manifest.check import why_invalid
from muster_agent.manifest.model import Manifest
from muster_agent.protocol.wire import ReloadParams

from apps.checkpoints.evidence import mark_damage
from apps.checkpoints.models import PlacementHold, RunPointer, TrustEvidence
from apps.core.models import Transition
from apps.drills import engine, services
from apps.drills.models import Drill, RankResult
from apps.fleet.models import Agent, AgentTask, TaskGroup

pytestmark = pytest.mark.django_db


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def make(yard: Yard, **spec: object) -> Drill:
    return services.create_drill(run=yard.run, spec={"kind": "reload", **spec}, actor="olga")


def test_four_agents_read_one_rank_each_and_the_drill_passes(yard: Yard) -> None:
    placement = yard.checkpoint()
    drill = run_to_end(make(yard), yard.agents)
    assert (drill.state, drill.outcome, drill.checkpoint_step) == ("finished", "passed", 10)
    assert drill.placement_id == placement.pk
    assert drill.verified is True
    results = list(RankResult.objects.filter(rung__drill=drill).order_by("rank").select_related("node"))
    assert [(row.rank, row.ranks, row.node.name if row.node else "") for row in results] == [
        (0, [0], "gpu-1"),
        (1, [1], "gpu-2"),
        (2, [2], "gpu-3"),
        (3, [3], "gpu-4"),
    ]
    assert drill.total_bytes == sum(row.bytes or 0 for row in results) >= placement.total_bytes
    assert drill.seconds is not None
    assert drill.seconds >= max(row.seconds or 0 for row in results)
    assert sum(drill.phases.values()) + (drill.unattributed_seconds or 0) == pytest.approx(drill.seconds)
    assert "first_step" not in drill.phases
    assert drill.jain_index is not None and 0 < drill.jain_index <= 1


def test_a_passed_reload_is_evidence_that_the_checkpoint_was_reloaded(yard: Yard) -> None:
    placement = yard.checkpoint()
    drill = run_to_end(make(yard), yard.agents)
    placement.refresh_from_db()
    evidence = TrustEvidence.objects.get(placement=placement, rung="reloaded")
    assert (evidence.source_kind, evidence.source_id, evidence.fingerprint) == (
        "drill",
        drill.pk,
        placement.fingerprint,
    )
    assert placement.trust == "reloaded"


def test_each_node_gets_only_its_part_of_the_manifest_and_that_part_is_sound(yard: Yard) -> None:
    yard.checkpoint()
    drill = advanced(make(yard))
    for rank, task in enumerate(tasks_of(drill)):
        params = convert(task.params, ReloadParams)
        assert isinstance(params.manifest, Manifest)
        assert {shard.path for shard in params.manifest.shards} <= set(params.shards)
        assert any(f"rank-{rank:05d}" in path for path in params.shards)
        assert why_invalid(params.manifest) is None
        assert params.evict
        assert not task.idempotent  # a lost client is not measured again, alone and after the others


def test_the_tasks_meet_at_one_barrier_of_all_agents(yard: Yard) -> None:
    yard.checkpoint()
    drill = advanced(make(yard))
    groups = {task.group_id for task in tasks_of(drill)}
    assert len(groups) == 1
    assert TaskGroup.objects.get(pk=groups.pop()).quorum == 4


def test_fewer_nodes_than_ranks_read_blocks_of_ranks(yard: Yard) -> None:
    yard.checkpoint()
    drill = run_to_end(make(yard, node_count=2), yard.agents)
    assert [row.ranks for row in RankResult.objects.filter(rung__drill=drill).order_by("rank")] == [[0, 1], [2, 3]]
    assert drill.outcome == "passed"


def test_an_unsealed_checkpoint_passes_without_a_claim_that_it_was_verified(yard: Yard) -> None:
    placement = yard.checkpoint(sealed=False, trust="complete")
    drill = run_to_end(make(yard, choice="latest"), yard.agents)
    assert (drill.outcome, drill.verified) == ("passed", None)
    assert "not verified" in drill.reason
    assert not TrustEvidence.objects.filter(placement=placement, rung="reloaded").exists()


def test_a_flipped_byte_fails_the_drill_and_names_node_shard_and_range(yard: Yard) -> None:
    placement = yard.checkpoint()
    shard = Path(placement.path) / "rank-00002-of-00004.safetensors"
    data = bytearray(shard.read_bytes())
    data[30_000] ^= 1
    before = shard.stat()
    shard.write_bytes(data)
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    drill = run_to_end(make(yard), yard.agents)
    placement.refresh_from_db()
    assert (drill.outcome, drill.verified, drill.objective_state) == ("failed", False, "none")
    assert "gpu-3 (rank 2)" in drill.reason and shard.name in drill.reason and "bytes 0 to" in drill.reason
    assert placement.damaged_at is not None
    assert not TrustEvidence.objects.filter(placement=placement, rung="reloaded").exists()


def test_files_that_changed_since_the_scan_give_no_evidence(yard: Yard) -> None:
    placement = yard.checkpoint()
    drill = advanced(make(yard))
    shard = Path(placement.path) / "rank-00000-of-00004.safetensors"
    shard.write_bytes(shard.read_bytes())
    run_to_end(drill, yard.agents)
    assert drill.outcome == "passed"
    assert not TrustEvidence.objects.filter(placement=placement, rung="reloaded").exists()


@pytest.mark.parametrize(("objective", "state"), [(3600.0, "met"), (0.001, "breached"), (None, "none")])
def test_restored_but_late_is_passed_and_breached_never_failed(yard: Yard, objective: float | None, state: str) -> None:
    yard.checkpoint()
    drill = run_to_end(make(yard, objective_seconds=objective, max_bytes_per_second=1_000_000), yard.agents)
    assert (drill.outcome, drill.objective_state) == ("passed", state)


@pytest.mark.parametrize("kind", ["reload", "herd"])
def test_reading_alone_is_not_measured_against_the_objective_of_a_restart(yard: Yard, kind: str) -> None:
    yard.run.rto_objective_seconds = 90
    yard.run.save()
    drill = make(yard, kind=kind)
    assert (drill.objective_seconds, make(yard, kind=kind, objective_seconds=9).objective_seconds) == (None, 9)


def test_the_objective_is_copied_from_the_run_when_the_drill_is_created(yard: Yard) -> None:
    yard.run.rto_objective_seconds = 90
    yard.run.save()
    yard.cluster.allows_disruption = True
    yard.cluster.save()
    drill = make(yard, kind="failover")
    yard.run.rto_objective_seconds = 5
    yard.run.save()
    drill.refresh_from_db()
    assert drill.objective_seconds == 90


def test_without_a_verified_checkpoint_the_drill_is_skipped_and_says_what_to_do(yard: Yard) -> None:
    yard.checkpoint(trust="sealed")
    drill = advanced(make(yard))
    assert (drill.outcome, tasks_of(drill)) == ("skipped", [])
    assert drill.reason == "llama-70b has no verified checkpoint: audit one, or choose latest."


def test_without_an_agent_that_reaches_the_files_the_drill_is_skipped(yard: Yard) -> None:
    yard.checkpoint()
    Agent.objects.update(state=Agent.State.LOST)
    drill = advanced(make(yard))
    assert drill.outcome == "skipped"
    assert "No online agent of east can read" in drill.reason


def test_more_nodes_than_are_online_is_skipped_with_both_numbers(yard: Yard) -> None:
    yard.checkpoint()
    Agent.objects.filter(node__name__in=["gpu-1", "gpu-2"]).update(state=Agent.State.STALE)
    drill = advanced(make(yard, node_count=4))
    assert drill.outcome == "skipped"
    assert "4 nodes were asked for and 2 can read" in drill.reason


def test_a_damaged_newest_checkpoint_is_passed_over(yard: Yard) -> None:
    yard.checkpoint(10)
    newest = yard.checkpoint(20)
    differs = finding("digest_mismatch", path="rank-00000-of-00004.safetensors", detail="bytes 0 to 4 differ")
    mark_damage(
        placement=newest, findings=[differs], source_kind="audit", source_id="aud_1", fingerprint=newest.fingerprint
    )
    assert advanced(make(yard)).checkpoint_step == 10


def test_a_step_beyond_a_binding_pointer_is_not_rehearsed_as_no_restart_would_take_it(yard: Yard) -> None:
    older = yard.checkpoint(10)
    yard.checkpoint(20)
    RunPointer.objects.create(
        run=yard.run, tier=yard.tier, path=older.path, step=10, binding=True, seen_at=timezone.now()
    )
    assert advanced(make(yard)).checkpoint_step == 10


def test_a_named_step_is_read_even_if_it_is_not_the_newest(yard: Yard) -> None:
    yard.checkpoint(10)
    yard.checkpoint(20)
    assert advanced(make(yard, choice="named", step=10)).checkpoint_step == 10


def test_a_random_choice_repeats_with_its_seed(yard: Yard) -> None:
    for step in (10, 20, 30, 40, 50):
        yard.checkpoint(step, rank_bytes=600)
    drills = [make(yard, choice="random", seed=seed) for seed in (1, 2, 3, 4, 5, 6, 7, 8)]
    from apps.drills.selectors import chosen_placement

    chosen = [chosen_placement(drill) for drill in drills]
    again = [chosen_placement(drill) for drill in drills]
    assert [row.pk for row in chosen if row] == [row.pk for row in again if row]
    assert len({row.pk for row in chosen if row}) > 1


def test_the_checkpoint_is_held_while_the_drill_runs_and_released_after(yard: Yard) -> None:
    placement = yard.checkpoint()
    drill = advanced(make(yard))
    assert PlacementHold.objects.get(placement=placement, source_id=drill.pk).released_at is None
    run_to_end(drill, yard.agents)
    assert PlacementHold.objects.get(placement=placement, source_id=drill.pk).released_at is not None


def test_a_second_drill_on_the_cluster_waits_for_the_first(yard: Yard) -> None:
    yard.checkpoint()
    first, second = advanced(make(yard)), make(yard)
    assert advanced(second).state == "waiting"
    assert tasks_of(second) == []
    run_to_end(first, yard.agents)
    assert advanced(second).state == "running"


def test_a_drill_that_waited_an_hour_is_skipped(yard: Yard) -> None:
    yard.checkpoint()
    first, second = advanced(make(yard)), advanced(make(yard))
    Drill.objects.filter(pk=second.pk).update(created_at=timezone.now() - timedelta(hours=2))
    assert advanced(second).outcome == "skipped"
    assert first.pk in second.reason


def test_a_failed_task_fails_the_drill_and_names_rank_and_node(yard: Yard) -> None:
    yard.checkpoint()
    drill = advanced(make(yard))
    fail_task(tasks_of(drill)[1], "the disk went away")
    advanced(drill)
    assert drill.outcome == "failed"
    assert drill.reason == "gpu-2 (rank 1) failed: the disk went away."
    assert all(task.outcome for task in tasks_of(drill))
    assert TaskGroup.objects.get(owner_id=drill.pk).state == "aborted"


def test_a_lost_agent_gives_the_outcome_lost_and_its_name(yard: Yard) -> None:
    yard.checkpoint()
    drill = advanced(make(yard))
    AgentTask.objects.filter(pk=tasks_of(drill)[3].pk).update(state="lost", outcome="lost", finished_at=timezone.now())
    advanced(drill)
    assert (drill.outcome, "gpu-4 (rank 3) was lost" in drill.reason) == ("lost", True)


def test_an_agent_that_never_gets_ready_is_named(yard: Yard) -> None:
    yard.checkpoint()
    drill = advanced(make(yard))
    TaskGroup.objects.filter(owner_id=drill.pk).update(deadline_at=timezone.now() - timedelta(seconds=30))
    work(yard.agents[:0])
    advanced(drill)
    assert drill.outcome == "lost"
    assert "gpu-1 (rank 0)" in drill.reason


def test_gds_that_was_asked_for_and_not_effective_fails_with_the_reason(yard: Yard) -> None:
    yard.checkpoint()
    drill = run_to_end(make(yard, backend="gds"), yard.agents)
    assert drill.outcome == "failed"
    assert drill.reason.startswith("GDS was asked for, but gpu-1 (rank 0) read by host_")


def test_a_drill_past_its_deadline_fails_and_names_who_is_still_reading(yard: Yard) -> None:
    yard.checkpoint()
    drill = advanced(make(yard))
    Drill.objects.filter(pk=drill.pk).update(deadline_at=timezone.now() - timedelta(seconds=1))
    advanced(drill)
    assert drill.outcome == "failed"
    assert "still reading: gpu-1 (rank 0)" in drill.reason


def test_advancing_twice_hands_out_no_second_set_of_tasks(yard: Yard) -> None:
    yard.checkpoint()
    drill = make(yard)
    for _time in range(3):
        engine.advance(drill.pk)
    assert len(tasks_of(drill)) == 4


def test_every_state_leaves_its_transition_row(yard: Yard) -> None:
    yard.checkpoint()
    drill = run_to_end(make(yard), yard.agents)
    rows = Transition.objects.filter(owner_kind="drill", owner_id=drill.pk).order_by("id")
    assert [row.new for row in rows] == ["scheduled", "preparing", "running", "validating", "finished"]


def test_due_names_unfinished_drills_whose_time_has_come(yard: Yard) -> None:
    drill = make(yard)
    assert engine.due() == [drill.pk]
    assert engine.due(timezone.now() - timedelta(minutes=1)) == []
    advanced(drill)
    assert engine.due(timezone.now() + timedelta(hours=1)) == []


def test_a_run_of_another_cluster_does_not_wait(yard: Yard, tmp_path: Path) -> None:
    yard.checkpoint()
    advanced(make(yard))
    other = factories.run(factories.cluster("west"), "other")
    drill = services.create_drill(run=other, spec={"kind": "reload"}, actor="olga")
    assert advanced(drill).state == "finished"
