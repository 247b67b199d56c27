"""A step's folder whose state lies in checkpoints below it, with other files beside them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory
from muster_agent.jobs.seal import seal

from tests.agent.checkpoint_factory import safetensors_bytes
from tests.agent.dcp_factory import Piece, write_dcp
from tests.agent.formats.damage import DATA, age, written
from tests.agent.torch_factory import Tensor, torch_zip

LOADER = {"_snapshot": {"position": 7}, "step": 20}


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def only(root: Path) -> ShardMap:
    age(root)
    (found,) = inventory(root).checkpoints
    return found


def damaged(found: ShardMap) -> set[str]:
    return {one.path for one in found.findings if one.severity is Severity.DAMAGE}


def nested_weights(root: Path) -> Path:
    step = root / "step_20"
    shutil.copytree(DATA / "megatron/torch_dist/iter_0000100", step / "policy/weights/iter_0000000")
    put(step / "train_dataloader.pt", torch_zip(LOADER))
    put(step / "training_info.json", b'{"step": 20}')
    return step


def test_weights_deep_below_a_step_are_read_and_sealed_with_it(tmp_path: Path) -> None:
    step = nested_weights(tmp_path)
    found = only(tmp_path)
    assert (found.step, found.format, found.status) == (20, "megatron_dist", Status.COMPLETE)
    assert found.resumable and found.world_size == 4
    paths = {shard.path for shard in found.shards}
    assert {"train_dataloader.pt", "policy/weights/iter_0000000/__0_0.distcp"} <= paths
    manifest = seal(str(step)).manifest
    assert manifest is not None and {one.path for one in manifest.shards} == paths


def test_a_file_that_the_deep_weights_need_makes_the_step_incomplete(tmp_path: Path) -> None:
    lost = "policy/weights/iter_0000000/__2_0.distcp"
    (nested_weights(tmp_path) / lost).unlink()
    found = only(tmp_path)
    assert (found.step, found.status, damaged(found)) == (20, Status.INCOMPLETE, {lost})


def test_a_cut_file_of_a_rank_beside_the_model_is_damage(tmp_path: Path) -> None:
    step = tmp_path / "step10"
    shutil.copytree(DATA / "dcp/torchtitan/step-5", step / "model_and_optim")
    for rank in (0, 1):
        put(step / f"train/rank{rank}.pt", torch_zip({"global_step": 10, "data_loader": {"epoch": rank}}))
    whole = only(tmp_path)
    assert whole.status is Status.COMPLETE and whole.resumable
    with (step / "train/rank1.pt").open("r+b") as file:
        file.truncate(50)
    assert (only(tmp_path).status, damaged(only(tmp_path))) == (Status.CORRUPT, {"train/rank1.pt"})


def test_a_wrapped_part_beside_a_loaders_file_is_read(tmp_path: Path) -> None:
    step = tmp_path / "global_step_20"
    shutil.copytree(DATA / "megatron/torch_dist/iter_0000100", step / "actor/dist_ckpt")
    put(step / "data.pt", torch_zip(LOADER))
    found = only(tmp_path)
    assert (found.step, found.format, found.status) == (20, "megatron_dist", Status.COMPLETE)
    assert found.resumable
    (step / "actor/dist_ckpt/__1_0.distcp").unlink()
    found = only(tmp_path)
    assert (found.status, damaged(found)) == (Status.INCOMPLETE, {"actor/dist_ckpt/__1_0.distcp"})


def test_a_step_whose_larger_part_no_reader_understands_is_unknown_and_never_sealed(tmp_path: Path) -> None:
    step = tmp_path / "step_20"
    put(step / "loader.pt", torch_zip(LOADER))
    put(step / "a/b/c/weights.bin", bytes(range(256)) * 64)
    found = only(tmp_path)
    assert (found.status, found.resumable) == (Status.UNKNOWN, False)
    assert seal(str(step)).manifest is None


def test_a_small_file_in_a_deep_folder_leaves_a_whole_state_as_it_is(tmp_path: Path) -> None:
    step = tmp_path / "step_20"
    state = {"model": {"w": Tensor("0", (64, 64))}, "optimizer": {"state": {0: {"exp_avg": Tensor("1", (64, 64))}}}}
    put(step / "state.pt", torch_zip(state))
    put(step / "a/b/c/notes.bin", b"small")
    found = only(tmp_path)
    assert found.status is Status.COMPLETE
    assert Role.MODEL in {shard.role for shard in found.shards}


def test_a_folder_numbered_like_a_step_that_holds_a_run_is_not_taken_for_its_only_save(tmp_path: Path) -> None:
    shutil.copytree(DATA / "dcp/w2/step-10", tmp_path / "1" / "checkpoints" / "step-10")
    age(tmp_path)
    assert not any(found.step == 1 and found.resumable for found in inventory(tmp_path).checkpoints)


def test_a_step_that_lies_below_another_number_is_found_by_its_own(tmp_path: Path) -> None:
    deep = tmp_path / "run/global_step_900/archive/global_step_12"
    shutil.copytree(DATA / "dcp/single/step-5", deep)
    found = only(tmp_path)
    assert (found.path, found.step, found.run) == (str(deep), 12, "archive")


def automodel(place: Path) -> Path:
    """What NeMo AutoModel saves: weights as Hugging Face keeps them, the optimizer as PyTorch DCP."""
    write_dcp(place / "optim", {"__0_0.distcp": [Piece("optim.state.w.exp_avg", (0,), (4,), (4,))]})
    index = {"metadata": {}, "weight_map": {"w": "model-00001-of-00001.safetensors"}}
    files = {
        "model/model-00001-of-00001.safetensors": safetensors_bytes({"w": b"abcd" * 4}),
        "model/model.safetensors.index.json": json.dumps(index).encode(),
        "rng/rng_dp_rank_0.pt": torch_zip({"rng": 1}),
    }
    return written(place, files)


def test_a_step_of_two_formats_is_one_checkpoint_by_its_own_name(tmp_path: Path) -> None:
    automodel(tmp_path / "run" / "epoch_0_step_20")
    os.symlink("epoch_0_step_20", tmp_path / "run" / "LATEST")
    found = inventory(tmp_path / "run")
    (one,) = found.checkpoints
    assert (one.step, one.status, one.resumable) == (20, Status.COMPLETE, True)
    assert [pointer.target for pointer in found.pointers] == ["epoch_0_step_20"]


def test_an_optimizer_alone_is_no_point_to_resume_from(tmp_path: Path) -> None:
    shard_map = read_checkpoint(automodel(tmp_path / "epoch_0_step_20") / "optim")
    assert not shard_map.resumable and "it holds no model" in shard_map.not_resumable_reasons


def test_what_a_save_that_did_not_end_left_is_no_checkpoint(tmp_path: Path) -> None:
    """NeMo RL writes a step under `tmp_step_N` and renames it."""
    automodel(tmp_path / "run" / "tmp_step_20")
    found = inventory(tmp_path / "run")
    assert not any(one.resumable for one in found.checkpoints)


def test_ranks_folders_in_a_step_are_no_steps(tmp_path: Path) -> None:
    files = {f"{rank}/state.pt": torch_zip({"model": {"w": Tensor("0", (4, 4))}}) for rank in (0, 1)}
    written(tmp_path / "run" / "step-10", files)
    assert [Path(one.path).name for one in inventory(tmp_path / "run").checkpoints] == ["step-10"]
