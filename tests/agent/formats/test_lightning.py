from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from muster_agent.formats.base import Severity, Status
from muster_agent.formats.detect import inventory, read_checkpoint

from tests.agent.formats.damage import DATA, KINDS, age, copy_sample, damage, written
from tests.agent.torch_factory import Tensor, torch_zip

SAMPLE = "lightning/save_last-copy"
STATE = {
    "epoch": 1,
    "global_step": 40,
    "pytorch-lightning_version": "2.6.6",
    "state_dict": {"l.weight": Tensor("0", (2, 8))},
    "loops": {"fit_loop": {"state_dict": {}}},
    "callbacks": {},
    "optimizer_states": [{"state": {0: {"exp_avg": Tensor("1", (2, 8))}}, "param_groups": [{"lr": 0.1}]}],
    "lr_schedulers": [],
}


def test_the_step_is_the_one_inside_whatever_the_name_says(tmp_path: Path) -> None:
    place = copy_sample(SAMPLE, tmp_path)
    steps = {one.path.rsplit("/", 1)[1]: one.step for one in inventory(place).checkpoints}
    assert steps["epoch=0-step=6-train_loss=2428.96.ckpt"] == 6
    last = read_checkpoint(place / "last.ckpt")
    assert (last.format, last.step, last.status, last.resumable) == ("lightning", 6, Status.COMPLETE, True)


def test_the_tensors_of_a_real_file_are_placed() -> None:
    tensors = {tensor.name: tensor for tensor in read_checkpoint(DATA / SAMPLE / "last.ckpt").tensors}
    assert tensors["state_dict.l.weight"].shape == (2, 8)
    assert any(name.startswith("optimizer_states.0.state") for name in tensors)


def test_weights_only_are_no_point_to_resume_from(tmp_path: Path) -> None:
    (tmp_path / "epoch=1.ckpt").write_bytes(torch_zip({**STATE, "optimizer_states": []}))
    age(tmp_path)
    shard_map = read_checkpoint(tmp_path / "epoch=1.ckpt")
    assert (shard_map.format, shard_map.step, shard_map.status) == ("lightning", 40, Status.COMPLETE)
    assert not shard_map.resumable


def test_another_tools_ckpt_is_only_a_torch_file(tmp_path: Path) -> None:
    (tmp_path / "a.ckpt").write_bytes(torch_zip({"state_dict": {"w": Tensor("0", (2,))}, "global_step": 5}))
    assert (read_checkpoint(tmp_path / "a.ckpt").format, read_checkpoint(tmp_path / "a.ckpt").step) == ("torch_save", 5)


def test_a_cut_file_is_corrupt(tmp_path: Path) -> None:
    place = copy_sample(SAMPLE, tmp_path)
    whole = (place / "last.ckpt").read_bytes()
    (place / "last.ckpt").write_bytes(whole[: len(whole) * 6 // 10])
    age(place)
    shard_map = read_checkpoint(place / "last.ckpt")
    assert shard_map.status is Status.CORRUPT
    assert shard_map.findings[0].code == "shard_truncated"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("delete", "flip_head")])
@pytest.mark.parametrize("seed", range(4))
def test_damage_to_a_real_file_is_found(tmp_path: Path, kind: str, seed: int) -> None:
    place = copy_sample(SAMPLE, tmp_path)
    done = damage(place / "last.ckpt", kind, seed)
    assert read_checkpoint(place / "last.ckpt").status is Status.CORRUPT, done


# -- sharded -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """DCP files as the real library wrote them, with the `meta.pt` of a sharded strategy beside them."""
    place = tmp_path / "run" / "epoch=1-step=40.ckpt"
    shutil.copytree(DATA / "dcp" / "w2" / "step-10", place)
    meta = {key: value for key, value in STATE.items() if key not in ("state_dict", "optimizer_states")}
    (place / "meta.pt").write_bytes(torch_zip(meta))
    age(place)
    return place


def test_a_sharded_folder_has_its_step_from_its_meta_file(sharded: Path) -> None:
    (shard_map,) = inventory(sharded.parent).checkpoints
    assert (shard_map.format, shard_map.step, shard_map.status) == ("lightning", 40, Status.COMPLETE)
    assert len(shard_map.shards) == 4


def test_a_sharded_folder_without_a_rank_is_incomplete(sharded: Path) -> None:
    (sharded / "__1_0.distcp").unlink()
    age(sharded)
    assert read_checkpoint(sharded).status is Status.INCOMPLETE


def test_a_cut_meta_file_is_found(sharded: Path) -> None:
    damage(sharded / "meta.pt", "truncate")
    shard_map = read_checkpoint(sharded)
    assert shard_map.status is Status.CORRUPT
    assert [found.path for found in shard_map.findings if found.severity is Severity.DAMAGE] == ["meta.pt"]


def test_deepspeeds_files_in_a_folder_are_judged_by_its_rule(tmp_path: Path) -> None:
    place = tmp_path / "run" / "epoch=0-step=4.ckpt"
    shutil.copytree(DATA / "deepspeed" / "zero1-bf16" / "global_step4", place / "checkpoint")
    (place / "latest").write_text("checkpoint")
    age(place)
    (shard_map,) = inventory(place.parent).checkpoints
    assert (shard_map.format, shard_map.step, shard_map.status) == ("lightning", 4, Status.COMPLETE)
    assert (shard_map.dp, shard_map.resumable) == (2, True)
    next((place / "checkpoint").glob("*zero_pp_rank_1*")).unlink()
    age(place)
    assert read_checkpoint(place).status is Status.INCOMPLETE


def test_the_number_of_a_requeued_jobs_file_counts_saves(tmp_path: Path) -> None:
    state = {
        "pytorch-lightning_version": "2.0",
        "global_step": 20,
        "state_dict": {"w": Tensor("0", (4, 4))},
        "optimizer_states": [{"state": {}, "param_groups": []}],
    }
    written(tmp_path / "run", {"hpc_ckpt_2.ckpt": torch_zip(state)})
    (found,) = inventory(tmp_path / "run").checkpoints
    assert found.step == 20 and "step_mismatch" not in {one.code for one in found.findings}


def test_averaged_weights_beside_a_step_are_no_second_step(tmp_path: Path) -> None:
    state = {"pytorch-lightning_version": "2.0", "global_step": 20, "state_dict": {"w": Tensor("0", (4, 4))}}
    names = ("epoch=0-step=20.ckpt", "epoch=0-step=20-EMA.ckpt")
    written(tmp_path / "run", {name: torch_zip(state) for name in names})
    assert all(
        "duplicate_step" not in {f.code for f in one.findings} for one in inventory(tmp_path / "run").checkpoints
    )
