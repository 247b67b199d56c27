"""Rounds that are repeated, on several tiers, split evenly, blamed, and given up."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import factories
import pytest
from django.utils import timezone
from drill_agents import Yard, advanced, run_to_end, tasks_of

from apps.checkpoints.models import Placement, PlacementHold, RunAttempt, Shard, StepReport, TrustEvidence
from apps.core.errors import InvalidInput
from apps.drills import services, slowdown
from apps.drills.models import Drill
from apps.drills.reload import ClientFigures, blame, spread
from apps.fleet.models import Agent, AgentTask
from apps.storage.models import StorageTier

SECOND = timedelta(seconds=1)


@pytest.fixture
def yard(db: None, tmp_path: Path) -> Yard:
    return Yard(tmp_path / "fast", node_count=2)


def make(yard: Yard, kind: str = "reload", **spec: object) -> Drill:
    return services.create_drill(run=yard.run, spec={"kind": kind, **spec}, actor="olga")


def copied(yard: Yard, placement: Placement, to: Path) -> Placement:
    """The same checkpoint on a second tier, as a transfer would leave it."""
    shutil.copytree(yard.folder, to / "llama-70b")
    nas = factories.tier(yard.cluster, "nas", str(to), kind=StorageTier.Kind.NAS, speed_order=1)
    path = str(to / "llama-70b" / Path(placement.path).name)
    copy = factories.placement(yard.run, nas, placement.checkpoint.step, shards=0, path=path, trust="verified")
    for shard in placement.shards.all():
        Shard.objects.create(
            placement=copy, path=shard.path, size_bytes=shard.size_bytes, rank=shard.rank, role=shard.role,
            mtime_ns=(Path(path) / shard.path).stat().st_mtime_ns,
        )  # fmt: skip
    copy.manifest = placement.manifest
    copy.save()
    Agent.objects.update(roots=[str(yard.folder.parent), str(to)])
    return copy


def test_a_repeated_reload_counts_its_median_round_and_tells_the_spread(yard: Yard) -> None:
    yard.checkpoint(world_size=2)
    drill = run_to_end(make(yard, repeats=3), yard.agents)
    seconds = sorted(rung.seconds or 0.0 for rung in drill.rungs.all())
    told = drill.facts["repeats"]
    assert (drill.outcome, len(seconds), drill.seconds) == ("passed", 3, pytest.approx(seconds[1], rel=1e-3))
    assert [told[name] for name in ("count", "min_seconds", "median_seconds", "max_seconds")] == [3, *seconds]
    assert "3 times" in drill.reason and "apart" in drill.reason


def test_a_repeated_herd_has_one_point_of_the_ladder_for_each_count(yard: Yard) -> None:
    yard.checkpoint(world_size=2)
    drill = run_to_end(make(yard, kind="herd", ladder=[1, 2], repeats=3), yard.agents)
    assert [rung.client_count for rung in drill.rungs.order_by("order")] == [1, 1, 1, 2, 2, 2]
    assert [step["client_count"] for step in drill.facts["ladder"]] == [1, 2]


def test_one_drill_compares_every_tier_that_has_the_checkpoint(yard: Yard, tmp_path: Path) -> None:
    copy = copied(yard, yard.checkpoint(world_size=2), tmp_path / "slow")
    drill = advanced(make(yard, every_tier=True))
    assert PlacementHold.objects.filter(source_id=drill.pk, released_at=None).count() == 2
    run_to_end(drill, yard.agents)
    assert drill.outcome == "passed", drill.reason
    assert {row["tier_name"] for row in drill.facts["tiers"]} == {"nvme", "nas"}
    rates = [row["bytes_per_second"] for row in drill.facts["tiers"]]
    assert rates == sorted(rates, reverse=True) and "Fastest on" in drill.reason
    assert drill.placement is not None and drill.placement.tier.name == "nvme"
    nvme = next(row for row in drill.facts["tiers"] if row["tier_name"] == "nvme")
    assert drill.seconds == pytest.approx(nvme["seconds"], rel=1e-3)  # of the copy that it chose
    assert PlacementHold.objects.filter(source_id=drill.pk, released_at=None).count() == 0
    assert {rung.placement_id for rung in drill.rungs.all()} == {drill.placement_id, copy.pk}


def test_damage_on_the_second_tier_marks_that_copy_alone(yard: Yard, tmp_path: Path) -> None:
    first = yard.checkpoint(world_size=2)
    copy = copied(yard, first, tmp_path / "slow")
    shard = Path(copy.path) / "rank-00001-of-00002.safetensors"
    data = bytearray(shard.read_bytes())
    data[30_000] ^= 1
    shard.write_bytes(data)
    drill = run_to_end(make(yard, every_tier=True), yard.agents)
    first.refresh_from_db()
    assert drill.outcome == "failed" and shard.name in drill.reason
    assert first.damaged_at is None


def test_an_even_split_reads_every_byte_once_on_more_clients_than_ranks(yard: Yard) -> None:
    placement = yard.checkpoint(world_size=1, rank_bytes=24_000_000)
    drill = run_to_end(make(yard, mapping="even"), yard.agents)
    assert (drill.outcome, drill.verified, drill.total_bytes) == ("passed", True, placement.total_bytes)
    parts = [result.bytes or 0 for rung in drill.rungs.all() for result in rung.results.all()]
    assert len(parts) == 2 and max(parts) - min(parts) <= 5 * 1024 * 1024  # chunks of 4 MiB stay whole
    assert TrustEvidence.objects.filter(placement=placement, rung="reloaded").exists()


def test_the_ranks_mapping_gives_a_single_rank_to_a_single_client(yard: Yard) -> None:
    yard.checkpoint(world_size=1)
    drill = run_to_end(make(yard), yard.agents)
    assert [rung.client_count for rung in drill.rungs.all()] == [1]


def test_a_gpu_that_was_asked_for_and_not_reached_fails_with_the_reason(yard: Yard) -> None:
    yard.checkpoint(world_size=2)
    drill = run_to_end(make(yard, device="cuda:0"), yard.agents)
    assert drill.outcome == "failed"
    assert drill.reason.startswith("cuda:0 was asked for, but gpu-1 (rank 0) read by host_")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"device": "tpu"}, "device"),
        ({"repeats": 0}, "repeats"),
        ({"mapping": "odd"}, "mapping"),
        ({"abort_slowdown_ratio": 1}, "abort_slowdown_ratio"),
    ],
)
def test_a_setting_that_is_none_names_its_field(yard: Yard, spec: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as problem:
        make(yard, **spec)
    assert problem.value.pointer == f"/{field}"


# -- given up ----------------------------------------------------------------------------------------------------------
def test_a_client_without_progress_for_too_long_fails_the_drill_and_is_named(yard: Yard) -> None:
    yard.checkpoint(world_size=2)
    drill = advanced(make(yard, abort_stall_seconds=10))
    begun = timezone.now() - 60 * SECOND
    AgentTask.objects.filter(pk=tasks_of(drill)[0].pk).update(state="running", started_at=begun)
    assert advanced(drill).outcome == "failed"
    assert drill.reason.startswith("Stalled: gpu-1 (rank 0) told of no progress for 60")


def test_progress_or_no_limit_keeps_a_slow_client_at_work(yard: Yard) -> None:
    yard.checkpoint(world_size=2)
    begun = timezone.now() - 60 * SECOND
    for limit, progress in ((None, {}), (10, {"at": timezone.now().timestamp()})):
        drill = advanced(make(yard, abort_stall_seconds=limit))
        AgentTask.objects.filter(owner_id=drill.pk).update(state="running", started_at=begun, progress=progress)
        assert advanced(drill).state == "running"
        services.cancel_drill(drill=drill, actor="olga")
        AgentTask.objects.filter(owner_id=drill.pk).update(state="lost", outcome="lost")
        assert advanced(drill).outcome == "cancelled"


def test_a_job_that_slows_down_beside_the_drill_ends_it_as_cancelled(yard: Yard) -> None:
    yard.checkpoint(world_size=2)
    other, now = factories.run(yard.cluster, "production"), timezone.now()
    times = {"started_at": now - timedelta(hours=1), "last_report_at": now}
    attempt = RunAttempt.objects.create(run=other, launch_id="L1", last_step=1, **times)
    drill = advanced(make(yard, abort_slowdown_ratio=1.5))
    Drill.objects.filter(pk=drill.pk).update(started_at=now - 20 * SECOND)
    for step in range(10):
        StepReport.objects.create(attempt=attempt, step=step, at=now - (30 - step) * SECOND)
    assert advanced(drill).state == "running"
    for step in range(6):
        StepReport.objects.create(attempt=attempt, step=20 + step, at=now - (19 - 3 * step) * SECOND)
    assert advanced(drill).outcome == "cancelled"
    assert drill.reason == "Given up to spare the job: production takes 3.00 s per step, 3.0 times what it took before."


def test_harm_needs_steps_before_and_since_or_a_long_silence() -> None:
    before = [float(second) for second in range(0, 20, 2)]
    assert slowdown.harm(before, [20.0, 22.0, 24.0, 26.0, 28.0, 30.0], 31.0, 1.5) == ""
    assert "2.0 times" in slowdown.harm(before, [20.0, 24.0, 28.0, 32.0, 36.0, 40.0], 41.0, 1.5)
    assert slowdown.harm(before[:4], [20.0, 60.0, 100.0, 140.0, 180.0, 220.0], 221.0, 1.5) == ""
    assert slowdown.harm(before, [], 40.0, 1.5) == ""
    assert "no step for 42 s" in slowdown.harm(before, [], 60.0, 1.5)


# -- blame and spread, pure --------------------------------------------------------------------------------------------
def client(name: str, rank: int, **phases: float) -> ClientFigures:
    seconds = sum(phases.values())
    return ClientFigures(name=name, ranks=(rank,), bytes=1, seconds=seconds, started_seconds=0, phases=phases)


def test_a_straggler_is_blamed_with_its_rank_node_and_the_phase_it_lost_most_in() -> None:
    usual = [client(f"gpu-{number}", number, read=10.0, verify=2.0) for number in range(3)]
    late = client("gpu-9", 9, read=10.5, verify=8.0)
    (found,) = blame([*usual, late])
    assert (found.name, found.ranks, found.phase) == ("gpu-9", (9,), "verify")
    assert found.excess_seconds == pytest.approx(6.0)
    assert blame(usual) == () and blame([late, *usual[:1]]) == ()


def test_spread_is_told_against_the_median() -> None:
    told = spread([4.0, 2.0, 3.0])
    assert (told.count, told.min_seconds, told.median_seconds, told.max_seconds) == (3, 2.0, 3.0, 4.0)
    assert told.spread_ratio == pytest.approx(2 / 3)
    assert spread([5.0]).spread_ratio == 0
