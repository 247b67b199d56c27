from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from muster_agent.formats.base import Severity, ShardMap, Status
from muster_agent.formats.detect import inventory, read_checkpoint

from tests.agent.formats.damage import KINDS, age, copy_sample, damage, swap


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return copy_sample("nvrx-local", tmp_path) / "jobA"


def by_step(place: Path) -> dict[int | None, ShardMap]:
    return {one.step: one for one in inventory(place).checkpoints}


def damaged(shard_map: ShardMap) -> set[tuple[str, str]]:
    return {(found.code, found.path) for found in shard_map.findings if found.severity is Severity.DAMAGE}


@pytest.mark.parametrize("above", [0, 1])
def test_the_iteration_that_every_rank_has_is_the_one_to_resume_from(session: Path, above: int) -> None:
    found = by_step(session.parent if above else session)
    assert {step: (one.format, one.status, one.resumable) for step, one in found.items()} == {
        20: ("nvrx_local", Status.COMPLETE, True),
        30: ("nvrx_local", Status.INCOMPLETE, False),
    }
    assert damaged(found[30]) == {("shard_missing", "1/iter_0000030_1_local.pt")}
    assert "temporary_left" in {one.code for one in found[30].findings}
    assert found[20].path.endswith("jobA/{rank}/iter_0000020_{rank}_local.pt")
    assert [shard.path for shard in found[20].shards] == ["0/iter_0000020_0_local.pt", "1/iter_0000020_1_local.pt"]


def test_a_family_is_read_by_its_path(session: Path) -> None:
    shard_map = read_checkpoint(session / "{rank}" / "iter_0000020_{rank}_local.pt")
    assert (shard_map.step, shard_map.world_size, len(shard_map.tensors)) == (20, 2, 2)


def test_files_of_two_iterations_that_were_swapped_are_told_where_the_ranks_disagree(session: Path) -> None:
    swap(session / "0" / "iter_0000020_0_local.pt", session / "0" / "iter_0000030_0_local.pt")
    age(session)
    found = by_step(session)[20]
    assert (found.status, damaged(found)) == (Status.CORRUPT, {("step_mismatch", "0/iter_0000020_0_local.pt")})


def test_a_replica_in_another_ranks_folder_counts(session: Path) -> None:
    shutil.copy(session / "1" / "iter_0000020_1_local.pt", session / "0")
    (session / "1" / "iter_0000020_1_local.pt").unlink()
    age(session)
    shard_map = by_step(session)[20]
    assert (shard_map.status, shard_map.shards[1].path) == (Status.COMPLETE, "0/iter_0000020_1_local.pt")


def test_a_whole_replica_stands_in_for_a_damaged_file(session: Path) -> None:
    shutil.copy(session / "1" / "iter_0000020_1_local.pt", session / "0")
    damage(session / "1" / "iter_0000020_1_local.pt", "truncate")
    age(session)
    shard_map = by_step(session)[20]
    assert (shard_map.status, damaged(shard_map)) == (Status.COMPLETE, set())
    assert "1/iter_0000020_1_local.pt" in {found.path for found in shard_map.findings if found.code == "shard_orphaned"}


def test_a_rank_without_a_folder_is_missing(session: Path) -> None:
    shutil.copytree(session / "1", session / "3")
    (session / "3" / "iter_0000020_1_local.pt").rename(session / "3" / "iter_0000020_3_local.pt")
    age(session)
    assert damaged(by_step(session)[20]) == {("shard_missing", "2/iter_0000020_2_local.pt")}


def test_a_node_that_holds_the_upper_ranks_only_does_not_miss_the_lower_ones(session: Path) -> None:
    for rank in (0, 1):
        (session / str(rank)).rename(session / str(rank + 4))
        (session / str(rank + 4) / f"iter_0000020_{rank}_local.pt").rename(
            session / str(rank + 4) / f"iter_0000020_{rank + 4}_local.pt"
        )
    for path in session.rglob("iter_0000030*"):
        path.unlink()
    age(session)
    shard_map = by_step(session)[20]
    assert (shard_map.status, shard_map.world_size) == (Status.COMPLETE, None)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "flip_head"])
def test_damage_to_one_ranks_file_is_named(session: Path, kind: str) -> None:
    damage(session / "0" / "iter_0000020_0_local.pt", kind, seed=1)
    age(session)
    shard_map = by_step(session)[20]
    assert shard_map.status in (Status.CORRUPT, Status.INCOMPLETE)
    assert {path for _, path in damaged(shard_map)} == {"0/iter_0000020_0_local.pt"}


def test_a_rank_that_may_not_be_listed_is_not_called_missing(session: Path) -> None:
    outside = session.parent / "elsewhere"
    (session / "1").rename(outside)
    (session / "1").symlink_to("/proc/1/fdinfo")
    shard_map = by_step(session).get(20)
    assert (
        shard_map is None
        or "shard_missing" not in {code for code, _ in damaged(shard_map)}
        or shard_map.world_size == 1
    )
