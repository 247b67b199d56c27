"""TensorFlow's checkpoints, of both its writers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.decide.evidence import from_disk
from muster_agent.decide.frameworks import named_by
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.tf_index import IndexRefused, parse_index
from muster_agent.formats.walk import inventory

from tests.agent.formats.damage import DATA, age, damage

INDEX = DATA / "tensorflow" / "saver" / "model.ckpt-2.index"
DATA_FILE = "model.ckpt-2.data-00000-of-00001"


def newest(place: Path) -> ShardMap:
    return read_checkpoint(place / "model.ckpt-2.{part}")


def damaged(shard_map: ShardMap) -> set[tuple[str, str]]:
    return {(found.code, found.path) for found in shard_map.findings if found.severity is Severity.DAMAGE}


@pytest.fixture
def saver(sample: Callable[[str], Path]) -> Path:
    place = sample("tensorflow/saver")
    age(place)
    return place


def test_each_save_of_a_saver_is_a_point_to_resume_from(saver: Path) -> None:
    found = inventory(saver)
    assert [(one.step, one.format, one.status, one.resumable) for one in found.checkpoints] == [
        (2, "tensorflow", Status.COMPLETE, True),
        (1, "tensorflow", Status.COMPLETE, True),
    ]


def test_where_each_tensor_lies_is_told(saver: Path) -> None:
    tensors = {one.name: one for one in newest(saver).tensors}
    assert (tensors["w"].shape, tensors["w"].dtype, tensors["w"].role) == ((4, 3), "float32", Role.MODEL)
    assert tensors["w/Adam_1"].role is Role.OPTIMIZER
    step = tensors["global_step"]
    data = (saver / step.shard).read_bytes()[step.offset_bytes : step.offset_bytes + step.length_bytes]
    assert int.from_bytes(data, "little") == 2


def test_the_pointer_names_the_save_whatever_its_number_counts(sample: Callable[[str], Path]) -> None:
    """`tf.train.Checkpoint` counts saves in the name; the step is the one inside."""
    place = sample("tensorflow/checkpoint")
    age(place)
    found = inventory(place)
    assert {one.step for one in found.checkpoints} == {7}
    assert "step_mismatch" not in {finding.code for one in found.checkpoints for finding in one.findings}
    (pointer,) = found.pointers
    named = named_by(pointer, [from_disk(one, 0.0) for one in found.checkpoints])
    assert named is not None and os.path.basename(named.path) == "ckpt-2.{part}"


def test_a_save_without_its_index_did_not_end(saver: Path) -> None:
    os.unlink(saver / "model.ckpt-2.index")
    assert newest(saver).status is Status.INCOMPLETE and ("metadata_missing", "model.ckpt-2.index") in damaged(
        newest(saver)
    )
    age(saver, 5)
    assert newest(saver).status is Status.IN_PROGRESS


def test_a_data_file_that_is_gone_is_named_though_only_the_index_is_left(saver: Path) -> None:
    os.unlink(saver / DATA_FILE)
    age(saver)
    assert newest(saver).status is Status.INCOMPLETE and damaged(newest(saver)) == {("shard_missing", DATA_FILE)}


@pytest.mark.parametrize("kind", ["truncate", "empty", "extend"])
def test_a_data_file_of_another_length_is_damage(saver: Path, kind: str) -> None:
    damage(saver / DATA_FILE, kind)
    assert newest(saver).status is Status.CORRUPT and {path for _, path in damaged(newest(saver))} == {DATA_FILE}


@pytest.mark.parametrize("kind", ["truncate", "zero", "empty", "extend", "flip_head"])
def test_an_index_that_changed_is_damage(saver: Path, kind: str) -> None:
    damage(saver / "model.ckpt-2.index", kind)
    assert newest(saver).status is Status.CORRUPT and not newest(saver).resumable


def test_other_index_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "vectors.index").write_bytes(b"IxF2" + bytes(4000))
    age(tmp_path)
    assert not inventory(tmp_path).checkpoints


@settings(max_examples=60, deadline=None)
@given(st.integers(0, INDEX.stat().st_size - 1), st.binary(min_size=1, max_size=40))
def test_no_bytes_of_an_index_raise_anything_else(at: int, patch: bytes) -> None:
    data = INDEX.read_bytes()
    for changed in (data[:at] + patch + data[at + len(patch) :], data[:at], data[at:], patch + data):
        try:
            parse_index(changed)
        except IndexRefused as error:
            assert error.reason


def test_weights_that_are_reached_through_the_optimizer_are_weights(sample: Callable[[str], Path]) -> None:
    place = sample("tensorflow/checkpoint")
    age(place)
    shard_map = read_checkpoint(place / "ckpt-2.{part}")
    assert shard_map.resumable
    assert {one.role for one in shard_map.tensors if "_trainable_variables" in one.name} == {Role.MODEL}
