"""Files of flax: one msgpack value each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.formats.base import Role, Severity, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory

from tests.agent.formats.damage import DATA, age, damage

REAL = (DATA / "flax" / "checkpoint_1000").read_bytes()


@pytest.fixture
def run(sample: Callable[[str], Path]) -> Path:
    place = sample("flax")
    (place / "README.md").unlink()
    age(place)
    return place


def test_a_train_state_is_a_point_to_resume_from_and_weights_alone_are_none(run: Path) -> None:
    found = {
        Path(one.path).name: (one.format, one.step, one.status, one.resumable) for one in inventory(run).checkpoints
    }
    assert found == {
        "checkpoint_1000": ("flax", 1000, Status.COMPLETE, True),
        "checkpoint_2000": ("flax", 2000, Status.COMPLETE, True),
        "flax_model.msgpack": ("flax", None, Status.COMPLETE, False),
    }


def test_where_each_array_lies_is_told(run: Path) -> None:
    shard_map = read_checkpoint(run / "checkpoint_1000")
    array = {one.name: one for one in shard_map.tensors}["params/b"]
    assert (array.dtype, array.shape, array.role) == ("float32", (3,), Role.MODEL)
    assert REAL[array.offset_bytes :][: array.length_bytes] == bytes.fromhex("000000000000803f00000040")


@pytest.mark.parametrize("kind", ["truncate", "empty", "extend"])
def test_a_file_of_another_length_is_damage(run: Path, kind: str) -> None:
    damage(run / "checkpoint_2000", kind)
    shard_map = next(one for one in inventory(run).checkpoints if one.path.endswith("checkpoint_2000"))
    assert shard_map.status in (Status.CORRUPT, Status.INCOMPLETE) and not shard_map.resumable
    assert any(found.severity is Severity.DAMAGE for found in shard_map.findings)


def test_what_begins_otherwise_and_has_no_ending_is_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "checkpoint_5").write_bytes(b"some notes on checkpoint 5\n" * 100)
    age(tmp_path)
    assert not inventory(tmp_path).checkpoints


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(REAL) - 1), st.binary(min_size=1, max_size=20))
def test_any_bytes_give_findings_and_no_exception(
    tmp_path_factory: pytest.TempPathFactory, at: int, patch: bytes
) -> None:
    place = tmp_path_factory.mktemp("flax")
    (place / "model.msgpack").write_bytes(REAL[:at] + patch + REAL[at + len(patch) :])
    shard_map = read_checkpoint(place / "model.msgpack", grace_seconds=0)
    assert not any("reader failed" in found.detail for found in shard_map.findings)
