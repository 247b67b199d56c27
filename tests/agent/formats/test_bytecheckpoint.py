"""ByteCheckpoint, and other checkpoints made of DCP folders: a real save, damage to it, and what is legitimate."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory

from tests.agent.dcp_factory import Piece, write_dcp
from tests.agent.formats.damage import DATA, KINDS, age, copy_sample, damage, files_under, swap
from tests.agent.torch_factory import torch_zip

SAMPLE = "bytecheckpoint/global_step_5"
FILES = files_under(DATA / SAMPLE)
BARE = ("model/__0_0.distcp", "optimizer/__0_0.distcp")


def read(path: Path, grace_seconds: float = 0) -> ShardMap:
    return read_checkpoint(path, grace_seconds=grace_seconds)


def damaged(shard_map: ShardMap) -> set[str]:
    return {found.path for found in shard_map.findings if found.severity is Severity.DAMAGE}


def test_a_real_save_is_complete_empty_files_of_a_rank_too(tmp_path: Path) -> None:
    found = read(copy_sample(SAMPLE, tmp_path))
    assert (found.format, found.status, found.step, found.world_size) == ("bytecheckpoint", Status.COMPLETE, 5, 2)
    assert (found.resumable, [one.code for one in found.findings]) == (True, ["dataloader_missing"])
    assert {one.path for one in found.shards} == set(FILES)
    roles = {one.name: one.role for one in found.tensors}
    assert (roles["module.weight"], roles["state.0.exp_avg"]) == (Role.MODEL, Role.OPTIMIZER)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith("__1_0.distcp")])
def test_damage_to_a_file_is_found_and_named(tmp_path: Path, name: str, kind: str, seed: int) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    before = (folder / name).read_bytes()
    done = damage(folder / name, kind, seed)
    if kind != "delete" and (folder / name).read_bytes() == before:
        return  # there were zeros before
    found = read(folder)
    hidden = kind == "flip_head" or (kind == "zero" and name in BARE) or (kind == "extend" and "metadata" in name)
    if hidden and found.status is Status.COMPLETE:
        return  # bare bytes of a tensor, which only a seal proves, or bytes that nothing depends on
    assert found.status is not Status.COMPLETE, done
    assert any(name in path or path in (f"{folder}/model", f"{folder}/optimizer") for path in damaged(found)), done


def test_swapped_components_are_found(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    swap(folder / "model" / "__0_0.distcp", folder / "optimizer" / "__0_0.distcp")
    assert damaged(read(folder)) == {"model/__0_0.distcp", "optimizer/__0_0.distcp"}


def test_a_rank_without_extra_state_is_missing(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    (folder / "extra_state" / "extra_state_rank_1.pt").unlink()
    found = read(folder)
    assert (found.status, damaged(found)) == (Status.INCOMPLETE, {"extra_state/extra_state_rank_1.pt"})


def test_an_empty_file_that_the_framework_asks_for_is_a_warning_with_its_cure(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    (folder / "model" / "__1_0.distcp").unlink()
    found = read(folder)
    (missing,) = [one for one in found.findings if one.code == "shard_missing"]
    assert (found.status, missing.severity, missing.path) == (
        Status.COMPLETE,
        Severity.WARNING,
        "model/__1_0.distcp",
    )
    assert "touch" in missing.cure


def test_a_component_whose_metadata_was_not_written_yet_is_incomplete_or_in_progress(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    (folder / "optimizer" / ".metadata").unlink()
    assert read(folder).status is Status.INCOMPLETE
    os.utime(folder / "optimizer" / "__0_0.distcp")
    assert read(folder, grace_seconds=600).status is Status.IN_PROGRESS


def test_without_the_model_component_it_is_incomplete(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    shutil.rmtree(folder / "model")
    assert read(folder).status is Status.INCOMPLETE


def test_without_the_optimizer_component_it_is_no_resume_point(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    shutil.rmtree(folder / "optimizer")
    found = read(folder)
    assert (found.status, found.resumable) == (Status.COMPLETE, False)
    assert "optimizer_missing" in {one.code for one in found.findings}


def test_a_temporary_file_of_an_interrupted_save_is_a_leftover(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    name = "__0_0.distcp_tmp_1b4e28ba-2fa1-11d2-883f-0016d3cca427"
    (folder / "model" / name).write_bytes(b"half")
    found = read(folder)
    assert found.status is Status.COMPLETE
    assert ("temporary_left", f"model/{name}") in {(one.code, one.path) for one in found.findings}


def test_extra_state_of_two_steps_is_a_mixture(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    (folder / "extra_state" / "extra_state_rank_1.pt").write_bytes(torch_zip({"step": 4, "rng": 1}))
    age(folder)
    assert "step_mismatch" in {one.code for one in read(folder).findings}


def components(folder: Path) -> None:
    write_dcp(folder / "model", {"__0_0.distcp": [Piece("w", (0,), (4,), (4,))]})
    write_dcp(folder / "optim", {"__0_0.distcp": [Piece("state.w.exp_avg", (0,), (4,), (4,))]})
    age(folder)


def test_plain_dcp_components_are_one_checkpoint(tmp_path: Path) -> None:
    components(tmp_path / "run" / "step_7")
    (found,) = inventory(tmp_path / "run", grace_seconds=0).checkpoints
    assert (found.format, found.status, found.step, found.resumable) == ("dcp", Status.COMPLETE, 7, True)
    assert {one.role for one in found.shards} == {Role.MODEL, Role.OPTIMIZER, Role.METADATA}


def test_plain_dcp_with_the_extra_state_of_each_rank_beside_is_one_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "global_step_7"
    pieces = [Piece("model.w", (0,), (4,), (4,)), Piece("optimizer.state.w.exp_avg", (0,), (4,), (4,))]
    write_dcp(folder, {"__0_0.distcp": pieces})
    (folder / "extra_state").mkdir()
    for rank in range(2):
        value = {"global_step": 7, "torch_rng_state": 1, "lr_scheduler": {}, "train_dataloader": {}}
        (folder / "extra_state" / f"extra_state_rank_{rank}.pt").write_bytes(torch_zip(value))
    age(folder)
    (found,) = inventory(tmp_path / "run", grace_seconds=0).checkpoints
    assert (found.format, found.status, found.resumable, found.world_size) == ("dcp", Status.COMPLETE, True, 2)
    (folder / "extra_state" / "extra_state_rank_0.pt").unlink()
    assert damaged(read(folder)) == {"extra_state/extra_state_rank_0.pt"}


def test_a_final_model_in_the_folder_of_its_run_stays_a_checkpoint_by_itself(tmp_path: Path) -> None:
    write_dcp(tmp_path / "run" / "model", {"__0_0.distcp": [Piece("w", (0,), (4,), (4,))]})
    components(tmp_path / "run" / "step_7")
    paths = {Path(one.path).name for one in inventory(tmp_path / "run", grace_seconds=0).checkpoints}
    assert paths == {"model", "step_7"}


@pytest.mark.parametrize("name", ["model", "optimizer", "extra_state"])
def test_a_component_that_lies_outside_the_root_could_not_be_looked_at_and_is_not_missing(
    tmp_path: Path, name: str
) -> None:
    folder = copy_sample(SAMPLE, tmp_path / "root")
    shutil.move(folder / name, tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    found = read(folder)
    assert (found.status, found.format) == (Status.UNREADABLE, "bytecheckpoint")
    assert "link_escapes_root" in {one.code for one in found.findings}
