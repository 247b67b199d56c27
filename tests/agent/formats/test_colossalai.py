"""What ColossalAI's Booster leaves, made by hand from its own rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory

from tests.agent.checkpoint_factory import safetensors_bytes
from tests.agent.formats.damage import written
from tests.agent.torch_factory import Tensor, torch_zip


def files(running: dict[str, int] | None = None, model: str = "modeling/") -> dict[str, bytes]:
    """A save of two files of weights and two of optimizer state. The index counts its total in MiB, as the library
    does."""
    weights = {"w1": "model-00001.safetensors", "w2": "model-00002.safetensors"}
    states = {"0": "pytorch_optim-00001.bin", "1": "pytorch_optim-00002.bin"}
    made = {f"{model}{name}": safetensors_bytes({key: b"abcd" * 8}) for key, name in weights.items()}
    made[f"{model}config.json"] = b'{"model_type": "llama"}'
    made[f"{model}model.safetensors.index.json"] = index(weights, total_size=0.5)
    for key, name in states.items():
        made[f"optimizer/{name}"] = torch_zip({int(key): {"exp_avg": Tensor("0", (8, 8))}})
    made["optimizer/pytorch_optim_group.bin"] = torch_zip([{"lr": 0.1}])
    groups = {"param_groups": "pytorch_optim_group.bin", "total_size": 0.5}
    made["optimizer/pytorch_optim.bin.index.json"] = index(states, **groups)
    made["lr_scheduler"] = torch_zip({"last_epoch": 1100, "base_lrs": [0.1]})
    if running is not None:
        made["running_states.json"] = json.dumps(running).encode()
    return made


def index(weight_map: dict[str, str], **metadata: object) -> bytes:
    return json.dumps({"metadata": metadata, "weight_map": weight_map}).encode()


RUNNING = {"epoch": 0, "step": 100, "sample_start_index": 400}


def damage(shard_map: ShardMap) -> set[str]:
    return {one.path for one in shard_map.findings if one.severity is Severity.DAMAGE}


@pytest.mark.parametrize("model", ["modeling/", "model/", ""])
def test_a_whole_save_is_complete_and_one_checkpoint(model: str, tmp_path: Path) -> None:
    written(tmp_path / "run/epoch-0_step-100", files(RUNNING, model))
    (found,) = inventory(tmp_path).checkpoints
    assert (found.format, found.run, found.step, found.status) == ("colossalai", "run", 100, Status.COMPLETE)
    assert found.resumable and damage(found) == set()
    assert {shard.role for shard in found.shards} >= {Role.MODEL, Role.OPTIMIZER, Role.SCHEDULER, Role.METADATA}
    assert {one.code for one in found.findings} <= {"rng_missing", "shared_shard", "rank_skew", "monolithic"}


@pytest.mark.parametrize(
    ("running", "step"),
    [
        ({"epoch": 1, "step": 100, "global_step": 1090}, 1090),
        ({"epoch": 1, "step": 100}, 1100),
        ({"epoch": 0, "step": 100}, 100),
    ],
)
def test_the_step_counts_over_all_epochs(running: dict[str, int], step: int, tmp_path: Path) -> None:
    assert read_checkpoint(written(tmp_path / "epoch-1_step-100", files(running))).step == step


def test_a_step_that_only_counts_within_an_epoch_is_said_to_be_none(tmp_path: Path) -> None:
    made = files({"epoch": 2, "step": 100})
    del made["lr_scheduler"]
    shard_map = read_checkpoint(written(tmp_path / "epoch-2_step-100", made))
    assert shard_map.step is None and "within epoch 2" in shard_map.findings[0].detail


def test_without_its_last_file_a_save_has_not_ended(tmp_path: Path) -> None:
    shard_map = read_checkpoint(written(tmp_path / "epoch-0_step-100", files()))
    assert (shard_map.format, shard_map.status) == ("colossalai", Status.INCOMPLETE)
    young = read_checkpoint(tmp_path / "epoch-0_step-100", grace_seconds=10**6)
    assert young.status is Status.IN_PROGRESS


@pytest.mark.parametrize(
    "name",
    [
        "modeling/model-00002.safetensors",
        "optimizer/pytorch_optim-00001.bin",
        "optimizer/pytorch_optim_group.bin",
        "optimizer/pytorch_optim.bin.index.json",
    ],
)
def test_what_an_index_promises_and_the_index_itself_are_missed(name: str, tmp_path: Path) -> None:
    made = files(RUNNING)
    del made[name]
    shard_map = read_checkpoint(written(tmp_path / "step-100", made))
    assert (shard_map.status, damage(shard_map)) == (Status.INCOMPLETE, {name})


def test_indexes_of_single_stages_show_a_save_that_stopped(tmp_path: Path) -> None:
    made = files(RUNNING)
    made["optimizer/tmp_index_files/pytorch_optim.bin.index-stage-00001.json"] = index({"0": "x"})
    shard_map = read_checkpoint(written(tmp_path / "step-100", made))
    assert shard_map.status is Status.UNCOMMITTED
    assert "temporary_left" in {one.code for one in shard_map.findings}


@pytest.mark.parametrize("map_of", [{"0": "../../etc/passwd"}, {"0": 7}])
def test_a_hostile_index_opens_nothing(map_of: dict[str, str], tmp_path: Path) -> None:
    made = files(RUNNING)
    made["optimizer/pytorch_optim.bin.index.json"] = index(map_of)
    shard_map = read_checkpoint(written(tmp_path / "step-100", made))
    assert "path_unsafe" in {one.code for one in shard_map.findings} and not shard_map.resumable


def test_a_folder_of_weights_with_some_json_beside_is_not_taken_for_one(tmp_path: Path) -> None:
    made = {"model.safetensors": safetensors_bytes({"w": b"abcd"}), "config.json": b"{}"}
    assert read_checkpoint(written(tmp_path / "export", made)).format == "safetensors"
