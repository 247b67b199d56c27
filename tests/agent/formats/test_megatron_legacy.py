"""Megatron's legacy layout: the real grid of ranks, holes in it, and folders of another save."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory

from tests.agent.formats.damage import DATA, KINDS, age, copy_sample, damage, files_under, swap
from tests.agent.formats.fuzz import examples
from tests.agent.torch_factory import Global, New, Tensor, torch_zip

SAMPLE = "megatron/legacy/iter_0000050"
FILES = files_under(DATA / SAMPLE)
STATE = "model_optim_rng.pt"


def read(path: Path, grace_seconds: float = 0) -> ShardMap:
    return read_checkpoint(path, grace_seconds=grace_seconds)


def damaged(shard_map: ShardMap) -> set[str]:
    return {found.path for found in shard_map.findings if found.severity is Severity.DAMAGE}


def state(iteration: int = 50, **arguments: Any) -> bytes:
    value = {
        "args": New(Global("argparse", "Namespace"), arguments),
        "iteration": iteration,
        "model": {"w": Tensor("0", (4,))},
        "optimizer": {"exp_avg": Tensor("1", (4,))},
        "rng_state": [{}],
    }
    return torch_zip(value)


def build(folder: Path, names: list[str], **arguments: Any) -> Path:
    for number, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        (folder / name / STATE).write_bytes(state(**{"rank": number} | arguments))
    age(folder)
    return folder


# -- real saves --------------------------------------------------------------------------------------------------------
def test_a_real_grid_is_complete_and_tells_its_layout(tmp_path: Path) -> None:
    found = read(copy_sample(SAMPLE, tmp_path))
    assert (found.format, found.status, found.step, found.findings) == ("megatron_legacy", Status.COMPLETE, 50, ())
    assert (found.world_size, found.tp, found.pp, found.must_match) == (4, 2, 2, ("tp", "pp"))
    assert [one.path for one in found.shards if one.rank == 1] == [
        f"mp_rank_01_000/{name}" for name in ("distrib_optim.pt", STATE)
    ]
    assert {one.role for one in found.shards} == {Role.MODEL, Role.OPTIMIZER}


def test_the_scan_of_a_run_finds_it_and_its_pointer(tmp_path: Path) -> None:
    found = inventory(copy_sample("megatron/legacy", tmp_path), grace_seconds=0)
    assert [(one.step, one.status) for one in found.checkpoints] == [(50, Status.COMPLETE)]
    assert [one.step for one in found.pointers] == [50]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_damage_to_a_file_is_found_and_named(tmp_path: Path, name: str, kind: str, seed: int) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    before = (folder / name).read_bytes()
    done = damage(folder / name, kind, seed)
    if kind != "delete" and (folder / name).read_bytes() == before:
        return  # there were zeros before
    found = read(folder)
    if kind == "flip_head" and found.status is Status.COMPLETE:
        return  # a field that nothing depends on
    assert found.status is not Status.COMPLETE, done
    assert name in damaged(found), done


# -- holes in the grid -------------------------------------------------------------------------------------------------
def test_a_rank_without_a_folder_is_missing(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    shutil.rmtree(folder / "mp_rank_01_000")
    found = read(folder)
    assert (found.status, damaged(found)) == (
        Status.INCOMPLETE,
        {f"mp_rank_01_000/{STATE}"},
    )
    assert read(folder, grace_seconds=600).status is Status.INCOMPLETE


def test_an_empty_folder_of_a_rank_is_missing_its_state(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    for path in (folder / "mp_rank_00_001").iterdir():
        path.unlink()
    found = read(folder)
    assert found.status is Status.INCOMPLETE
    assert f"mp_rank_00_001/{STATE}" in damaged(found)


def test_a_hole_shows_in_the_names_where_no_arguments_can_be_read(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000050", ["mp_rank_00_000", "mp_rank_01_000", "mp_rank_01_001"])
    found = read(folder)
    assert (found.status, damaged(found)) == (Status.INCOMPLETE, {f"mp_rank_00_001/{STATE}"})


@pytest.mark.parametrize(
    ("names", "degrees"),
    [
        (["mp_rank_00", "mp_rank_01"], (2, 1, 1)),
        (["mp_rank_00_000", "mp_rank_00_001"], (1, 2, 1)),
        (["mp_rank_00_000", "mp_rank_00_001"], (1, 1, 2)),
        ([f"mp_rank_0{t}_00{p}_00{e}" for p in range(2) for e in range(2) for t in range(2)], (2, 2, 2)),
        (["mp_rank_00_000"], (1, 1, 1)),
    ],
)
def test_every_way_of_naming_ranks_is_complete(tmp_path: Path, names: list[str], degrees: tuple[int, int, int]) -> None:
    tp, pp, ep = degrees
    layout = {
        "tensor_model_parallel_size": tp,
        "pipeline_model_parallel_size": pp,
        "expert_model_parallel_size": ep,
        "rank": 0,
    }
    found = read(build(tmp_path / "iter_0000050", names, **layout))
    assert (found.status, found.findings, found.resumable) == (Status.COMPLETE, (), True)


def test_the_later_pipeline_stages_lie_on_another_node(tmp_path: Path) -> None:
    layout = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "world_size": 4}
    folder = build(tmp_path / "iter_0000050", ["mp_rank_00_000", "mp_rank_01_000"], **layout)
    found = read(folder)
    missing = [one for one in found.findings if one.code == "shard_missing"]
    assert [one.path for one in missing] == [f"mp_rank_00_001/{STATE}", f"mp_rank_01_001/{STATE}"]
    assert all("node" in one.detail and "each node" in one.cure for one in missing)


def test_folders_of_more_ranks_than_saved_are_of_another_save(tmp_path: Path) -> None:
    layout = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1}
    folder = build(tmp_path / "iter_0000050", ["mp_rank_00", "mp_rank_01", "mp_rank_02"], **layout)
    found = read(folder)
    assert found.status is Status.COMPLETE
    assert [(one.code, one.path) for one in found.findings] == [("shard_orphaned", "mp_rank_02")]


def test_absurd_degrees_are_not_believed(tmp_path: Path) -> None:
    layout = {"tensor_model_parallel_size": 1 << 20, "pipeline_model_parallel_size": 1 << 20}
    found = read(build(tmp_path / "iter_0000050", ["mp_rank_00_000", "mp_rank_01_000"], **layout))
    assert found.status is Status.COMPLETE
    os.rename(tmp_path / "iter_0000050" / "mp_rank_01_000", tmp_path / "iter_0000050" / "mp_rank_999999_999999")
    assert len(read(tmp_path / "iter_0000050").findings) < 200


# -- mixed saves -------------------------------------------------------------------------------------------------------
def test_a_rank_of_another_iteration_is_damage(tmp_path: Path) -> None:
    layout = {"tensor_model_parallel_size": 3, "pipeline_model_parallel_size": 1}
    folder = build(tmp_path / "iter_0000050", ["mp_rank_00", "mp_rank_01", "mp_rank_02"], **layout)
    (folder / "mp_rank_02" / STATE).write_bytes(state(40, rank=2, **layout))
    age(folder)
    found = read(folder)
    assert (found.status, damaged(found)) == (Status.CORRUPT, {f"mp_rank_02/{STATE}"})


def test_folders_of_two_ranks_that_were_exchanged_are_damage(tmp_path: Path) -> None:
    layout = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1}
    folder = build(tmp_path / "iter_0000050", ["mp_rank_01", "mp_rank_00"], **layout)
    assert damaged(read(folder)) == {f"mp_rank_00/{STATE}", f"mp_rank_01/{STATE}"}


@pytest.mark.parametrize("other", ["mp_rank_00_001", "mp_rank_01_000"])
def test_state_and_optimizer_that_were_exchanged_are_both_named(tmp_path: Path, other: str) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    swap(folder / "mp_rank_00_001" / "model_optim_rng.pt", folder / other / "distrib_optim.pt")
    found = read_checkpoint(folder, grace_seconds=0)
    assert found.status is Status.CORRUPT
    misplaced = {one.path for one in found.findings if one.code == "ranges_gap"}
    assert misplaced == {"mp_rank_00_001/model_optim_rng.pt", f"{other}/distrib_optim.pt"}


def test_what_a_converter_wrote_from_one_process_is_no_exchange(tmp_path: Path) -> None:
    layout = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1, "rank": 0}
    assert read(build(tmp_path / "iter_0000050", ["mp_rank_00", "mp_rank_01"], **layout)).findings == ()


# -- optimizers --------------------------------------------------------------------------------------------------------
def test_optimizer_files_of_every_data_parallel_rank_must_be_there(tmp_path: Path) -> None:
    layout = {
        "tensor_model_parallel_size": 2,
        "pipeline_model_parallel_size": 1,
        "data_parallel_size": 2,
        "world_size": 4,
    }
    folder = build(tmp_path / "iter_0000050", ["mp_rank_00", "mp_rank_01"], **layout)
    for name in ("mp_rank_00", "mp_rank_01"):
        for dp in range(2):
            (folder / name / f"layer_wise_optimizer_{dp}.pt").write_bytes(torch_zip({"state": {}}))
    age(folder)
    assert (read(folder).findings, read(folder).must_match) == ((), ("tp", "pp", "dp"))
    (folder / "mp_rank_01" / "layer_wise_optimizer_1.pt").unlink()
    assert damaged(read(folder)) == {"mp_rank_01/layer_wise_optimizer_1.pt"}


def test_weights_without_optimizer_state_are_no_resume_point(tmp_path: Path) -> None:
    folder = tmp_path / "release" / "mp_rank_00"
    folder.mkdir(parents=True)
    (folder / STATE).write_bytes(torch_zip({"model": {"w": Tensor("0", (4,))}, "iteration": 0}))
    age(tmp_path / "release")
    found = read(tmp_path / "release")
    assert (found.status, found.step, found.resumable) == (Status.COMPLETE, 0, False)


def test_an_older_optimizer_layout_has_folders_of_its_own(tmp_path: Path) -> None:
    layout = {"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 2, "use_distributed_optimizer": True}
    folder = tmp_path / "iter_0000050"
    for pp in range(2):
        (folder / f"mp_rank_00_00{pp}").mkdir(parents=True)
        (folder / f"mp_rank_00_00{pp}" / "model_rng.pt").write_bytes(state(rank=0, **layout))
        for dp in range(2):
            (folder / f"mp_rank_00_00{pp}_00{dp}").mkdir()
            (folder / f"mp_rank_00_00{pp}_00{dp}" / "optim.pt").write_bytes(torch_zip({"optimizer": {}}))
    age(folder)
    found = read(folder)
    assert (found.status, found.findings, found.resumable) == (Status.COMPLETE, (), True)
    assert len(found.shards) == 6


# -- any bytes ---------------------------------------------------------------------------------------------------------
@settings(max_examples=examples(150), deadline=5_000)
@given(st.binary(max_size=300))
def test_any_bytes_as_a_ranks_state(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "iter_0000050" / "mp_rank_00"
        folder.mkdir(parents=True)
        (folder / STATE).write_bytes(data)
        found = read(folder.parent)
    assert found.findings and not any("reader failed" in one.detail for one in found.findings)


def test_a_folder_that_lies_outside_the_root_could_not_be_looked_at_and_is_not_missing(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path / "root")
    shutil.move(folder / "mp_rank_01_000", tmp_path / "mp_rank_01_000")
    (folder / "mp_rank_01_000").symlink_to(tmp_path / "mp_rank_01_000")
    found = read(folder)
    assert (found.status, [one.code for one in found.findings]) == (Status.UNREADABLE, ["link_escapes_root"])
