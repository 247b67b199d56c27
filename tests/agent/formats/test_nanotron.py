"""Nanotron's folders, made by hand from the names and files that its `serialize` writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory

from tests.agent.checkpoint_factory import safetensors_bytes
from tests.agent.formats.damage import age, written
from tests.agent.torch_factory import Tensor, torch_zip

LAYER = "model/model/decoder/0/pp_block/attn/qkv_proj"


def checkpoint(place: Path, step: int = 1000, tp: int = 2, dp: int = 2) -> Path:
    metas = {"version": "1.4", "tp": tp, "dp": dp, "metas": {"last_train_step": step, "consumed_train_samples": 8}}
    state = torch_zip({"state": {0: {"exp_avg": Tensor("0", (4,))}}})
    files = {
        "checkpoint_metadata.json": json.dumps(metas).encode(),
        "config.yaml": b"a: 1\n",
        "model_config.json": b"{}",
    }
    for rank in range(tp):
        files[f"{LAYER}/model_weight_pp-rank-0-of-1_tp-rank-{rank}-of-{tp}.safetensors"] = safetensors_bytes(
            {"data": b"abcd" * 8}
        )
        files[f"lr_scheduler/lr_scheduler_pp-0-of-1_tp-{rank}-of-{tp}.pt"] = torch_zip({"last_epoch": 1})
        for other in range(dp):
            files[f"optimizer/optimizer_pp-0-of-1_dp-{other}-of-{dp}_tp-{rank}-of-{tp}.pt"] = state
            files[f"random/tp-{rank}-of-{tp}_dp-{other}-of-{dp}_pp-0-of-1.pt"] = torch_zip({"random": 1})
    files["model/model/final_norm/model_weight.safetensors"] = safetensors_bytes({"data": b"abcd"})
    return written(place / str(step), {**files, "optimizer/optimizer_config.json": b"{}"})


def missing(shard_map: ShardMap) -> set[str]:
    return {found.path for found in shard_map.findings if found.severity is Severity.DAMAGE}


def test_a_step_is_whole_with_every_rank_of_every_part(tmp_path: Path) -> None:
    checkpoint(tmp_path / "run", 1000)
    checkpoint(tmp_path / "run", 2000)
    (tmp_path / "run" / "latest.txt").write_text("2000")
    age(tmp_path)
    found = inventory(tmp_path / "run")
    assert [(one.step, one.format, one.status, one.resumable) for one in found.checkpoints] == [
        (2000, "nanotron", Status.COMPLETE, True),
        (1000, "nanotron", Status.COMPLETE, True),
    ]
    newest = found.checkpoints[0]
    assert (newest.world_size, newest.dp, newest.tp, newest.pp) == (4, 2, 2, 1)
    assert {one.code for one in newest.findings} <= {"dataloader_missing"}


def test_tensors_are_called_after_their_files(tmp_path: Path) -> None:
    tensors = {(one.name, one.role) for one in read_checkpoint(checkpoint(tmp_path)).tensors if one.role is Role.MODEL}
    assert {name for name, _ in tensors} == {"model.decoder.0.pp_block.attn.qkv_proj.weight", "model.final_norm.weight"}


@pytest.mark.parametrize(
    "name",
    [
        f"{LAYER}/model_weight_pp-rank-0-of-1_tp-rank-1-of-2.safetensors",
        "optimizer/optimizer_pp-0-of-1_dp-1-of-2_tp-0-of-2.pt",
        "random/tp-1-of-2_dp-1-of-2_pp-0-of-1.pt",
        "lr_scheduler/lr_scheduler_pp-0-of-1_tp-0-of-2.pt",
    ],
)
@pytest.mark.parametrize("kind", ["delete", "truncate"])
def test_each_ranks_file_that_is_gone_or_cut_is_named(tmp_path: Path, name: str, kind: str) -> None:
    place = checkpoint(tmp_path)
    if kind == "delete":
        (place / name).unlink()
    else:
        (place / name).write_bytes((place / name).read_bytes()[:-20])
    age(place)
    shard_map = read_checkpoint(place)
    assert shard_map.status is (Status.INCOMPLETE if kind == "delete" else Status.CORRUPT)
    assert missing(shard_map) == {name}


def test_without_its_metadata_nothing_says_that_the_save_ended(tmp_path: Path) -> None:
    place = checkpoint(tmp_path)
    (place / "checkpoint_metadata.json").unlink()
    age(place)
    shard_map = read_checkpoint(place)
    assert (shard_map.format, shard_map.status) == ("nanotron", Status.INCOMPLETE)
