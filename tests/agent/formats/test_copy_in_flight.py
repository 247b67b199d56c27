"""A copy that is still running may bring the commit marker before the data; at rest the same is damage."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from muster_agent.formats.base import Severity, ShardMap, Status
from muster_agent.formats.names import is_noise
from muster_agent.formats.walk import inventory

from tests.agent.formats.damage import age, copy_sample

HOUR_SECONDS = 3600


def only(root: Path) -> ShardMap:
    (found,) = inventory(root, settle_seconds=0).checkpoints
    return found


def data_file(folder: Path) -> Path:
    return max(folder.iterdir(), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("name", ["dcp/torchtitan/step-5", "megatron/torch_dist/iter_0000100"])
@pytest.mark.parametrize("kind", ["short", "empty", "absent"])
def test_young_metadata_before_its_data_is_a_running_copy_and_old_is_damage(
    name: str, kind: str, tmp_path: Path
) -> None:
    folder = copy_sample(name, tmp_path, age_seconds=0)
    path = data_file(folder)
    if kind == "absent":
        path.unlink()
    else:
        os.truncate(path, 900 if kind == "short" else 0)
    found = only(tmp_path)
    assert (found.status, found.resumable) == (Status.IN_PROGRESS, False)
    assert path.name in {one.path for one in found.findings}
    age(folder, HOUR_SECONDS)
    assert only(tmp_path).status is (Status.INCOMPLETE if kind == "absent" else Status.CORRUPT)


def test_a_file_cut_just_after_its_save_is_damage(tmp_path: Path) -> None:
    folder = copy_sample("dcp/torchtitan/step-5", tmp_path, age_seconds=20)
    os.utime(folder / ".metadata")
    os.truncate(data_file(folder), 900)
    assert only(tmp_path).status is Status.CORRUPT


def test_a_file_cut_just_now_in_an_old_checkpoint_is_damage(tmp_path: Path) -> None:
    folder = copy_sample("dcp/torchtitan/step-5", tmp_path)
    os.truncate(data_file(folder), 900)
    assert only(tmp_path).status is Status.CORRUPT


def test_young_bytes_that_cannot_be_a_part_of_the_file_are_damage(tmp_path: Path) -> None:
    folder = copy_sample("dcp/torchtitan/step-5", tmp_path, age_seconds=0)
    path = data_file(folder)
    path.write_bytes(path.read_bytes() + b"more")
    assert only(tmp_path).status is Status.CORRUPT


@pytest.mark.parametrize("ending", ["", ".part", ".partial"])
def test_a_temporary_name_of_a_copy_is_named_and_counts_while_it_is_young(ending: str, tmp_path: Path) -> None:
    folder = copy_sample("huggingface/trainer-single/checkpoint-9", tmp_path)
    weights = folder / "model.safetensors"
    partly = weights.with_name(weights.name + ending if ending else f".{weights.name}.aBc123")
    weights.rename(partly)
    now = time.time()
    os.utime(partly, (now, now))
    found = only(tmp_path)
    assert found.status is Status.IN_PROGRESS
    assert partly.name in {one.path for one in found.findings if one.code == "temporary_left"}
    age(folder, HOUR_SECONDS)
    found = only(tmp_path)
    assert found.status is Status.INCOMPLETE
    assert any(one.severity is Severity.DAMAGE for one in found.findings)


def test_a_young_leftover_does_not_make_a_whole_checkpoint_unfinished(tmp_path: Path) -> None:
    folder = copy_sample("dcp/torchtitan/step-5", tmp_path)
    (folder / ".__1_0.distcp.x9Yz0Q").write_bytes(b"half")
    found = only(tmp_path)
    assert found.status is Status.COMPLETE
    assert "temporary_left" in {one.code for one in found.findings}


def test_a_running_copy_is_not_taken_for_what_macos_leaves() -> None:
    assert is_noise("._model.safetensors") and not is_noise(".__1_0.distcp.x9Yz0Q")
