"""torchtune's folders of weights with one state beside them, made by hand from its own rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from muster_agent.formats.base import Role, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory
from muster_agent.jobs.seal import seal
from muster_agent.manifest.beside import read_beside

from tests.agent.checkpoint_factory import safetensors_bytes
from tests.agent.formats.damage import written
from tests.agent.torch_factory import Tensor, torch_zip

OPTIMIZER = {"state": {0: {"exp_avg": Tensor("0", (8, 8))}}, "param_groups": [{"lr": 0.1}]}


def files(epochs_run: int = 2, **more: int) -> dict[str, bytes]:
    """Two epochs."""
    made = {}
    weights = {f"w{number}": f"model-{number:05d}-of-00002.safetensors" for number in (1, 2)}
    for epoch in (0, 1):
        made |= {f"epoch_{epoch}/{name}": safetensors_bytes({key: b"abcd" * 8}) for key, name in weights.items()}
        index = {"metadata": {"total_size": 64}, "weight_map": weights}
        made[f"epoch_{epoch}/model.safetensors.index.json"] = json.dumps(index).encode()
    state = {"optimizer": OPTIMIZER, "seed": 7, "epochs_run": epochs_run, "total_epochs": 3, **more}
    made["recipe_state/recipe_state.pt"] = torch_zip(state, "recipe_state")
    return made


def found(place: Path, made: dict[str, bytes]) -> list[ShardMap]:
    return list(inventory(written(place / "run", made)).checkpoints)


def test_the_newest_weights_are_resumed_from_with_the_state_beside_them(tmp_path: Path) -> None:
    newest, older = sorted(found(tmp_path, files()), key=lambda one: -(one.step or 0))
    assert (Path(newest.path).name, newest.format, newest.run) == ("{epoch_1,recipe_state}", "torchtune", "run")
    assert (newest.step, newest.status, newest.resumable) == (1, Status.COMPLETE, True)
    assert {shard.role for shard in newest.shards} >= {Role.MODEL, Role.OPTIMIZER}
    assert (Path(older.path).name, older.format, older.resumable) == ("epoch_0", "safetensors", False)


def test_the_step_inside_counts_before_the_epoch(tmp_path: Path) -> None:
    newest = found(tmp_path, files(steps_run=240))[0]
    assert (newest.step, newest.resumable) == (240, True)
    assert "step_mismatch" not in {one.code for one in newest.findings}


def test_a_state_of_another_epoch_is_told_and_not_resumed_from(tmp_path: Path) -> None:
    newest = next(one for one in found(tmp_path, files(epochs_run=1)) if one.format == "torchtune")
    assert (newest.status, newest.resumable) == (Status.COMPLETE, False)
    assert any("when 1 epochs had been run" in one.detail for one in newest.findings)


@pytest.mark.parametrize("name", ["epoch_1/model-00002-of-00002.safetensors", "recipe_state/recipe_state.pt"])
def test_a_cut_file_is_damage(name: str, tmp_path: Path) -> None:
    made = files()
    made[name] = made[name][:-30]
    newest = next(one for one in found(tmp_path, made) if one.format == "torchtune")
    assert newest.status is Status.CORRUPT and name in {one.path for one in newest.findings}


def test_it_is_read_and_sealed_by_its_path(tmp_path: Path) -> None:
    path = found(tmp_path, files())[0].path
    assert read_checkpoint(path).status is Status.COMPLETE
    manifest = seal(path).manifest
    assert manifest is not None and {shard.path.split("/")[0] for shard in manifest.shards} == {
        "epoch_1",
        "recipe_state",
    }
    assert read_beside(path) == manifest


def test_without_the_state_the_weights_are_checkpoints_by_themselves(tmp_path: Path) -> None:
    made = {name: data for name, data in files().items() if not name.startswith("recipe")}
    assert {one.format for one in found(tmp_path, made)} == {"safetensors"}


# -- before 0.5, all in one folder -------------------------------------------------------------------------------------
def flat(epochs: int = 2, epochs_run: int | None = None) -> dict[str, bytes]:
    weights = torch_zip({"w": Tensor("0", (8, 8))})
    made = {f"hf_model_000{shard}_{epoch}.pt": weights for shard in (1, 2) for epoch in range(epochs)}
    state = {"optimizer": OPTIMIZER, "seed": 7, "epochs_run": epochs_run or epochs, "total_epochs": 3}
    return {**made, "recipe_state.pt": torch_zip(state, "recipe_state"), "config.json": b"{}"}


def test_in_one_folder_the_newest_epoch_goes_with_the_state(tmp_path: Path) -> None:
    by_epoch = {one.step: one for one in found(tmp_path, flat())}
    assert {epoch: (one.format, one.status, one.resumable) for epoch, one in by_epoch.items()} == {
        1: ("torchtune", Status.COMPLETE, True),
        0: ("torchtune", Status.COMPLETE, False),
    }
    assert {shard.path for shard in by_epoch[1].shards} == {
        "hf_model_0001_1.pt",
        "hf_model_0002_1.pt",
        "recipe_state.pt",
    }
    assert read_checkpoint(by_epoch[1].path).resumable


def test_in_one_folder_a_shard_that_other_epochs_have_is_missed(tmp_path: Path) -> None:
    made = flat()
    del made["hf_model_0002_1.pt"]
    newest = next(one for one in found(tmp_path, made) if one.step == 1)
    assert newest.status is Status.INCOMPLETE and "hf_model_0002_1.pt" in {one.path for one in newest.findings}


def test_in_one_folder_a_state_of_another_epoch_is_told(tmp_path: Path) -> None:
    newest = next(one for one in found(tmp_path, flat(epochs_run=1)) if one.step == 1)
    assert not newest.resumable and any("when 1 epochs had been run" in one.detail for one in newest.findings)
