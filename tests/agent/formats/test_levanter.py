"""Levanter's folders before OCDBT, made by hand from the names that its `save_checkpoint` writes: zarr and a record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from muster_agent.formats.base import Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory

from tests.agent.formats.damage import age, written

ARRAYS = ("model/transformer/layers/weight", "optimizer_state/0/mu/transformer/layers/weight", "training_key")
GRID = {"zarr_format": 2, "shape": [4, 4], "chunks": [2, 4], "dtype": "<f4", "order": "C", "filters": None}
GRID |= {"compressor": None, "fill_value": None, "dimension_separator": "."}


def files(step: int = 1000) -> dict[str, bytes]:
    made = {
        "metadata.json": json.dumps({"step": step, "timestamp": "2024-01-01T00:00:00", "is_temporary": False}).encode()
    }
    for array in ARRAYS:
        made[f"{array}/.zarray"] = json.dumps(GRID).encode()
        made |= {f"{array}/{chunk}": b"\x01\x02\x03\x04" * 8 for chunk in ("0.0", "1.0")}
    return made


def damaged(one: ShardMap) -> set[str]:
    return {found.path for found in one.findings if found.severity is Severity.DAMAGE}


def test_a_whole_step_is_a_point_to_resume_from(tmp_path: Path) -> None:
    for step in (1000, 2000):
        written(tmp_path / "run" / f"step-{step}", files(step))
    found = inventory(tmp_path / "run").checkpoints
    assert [(one.step, one.format, one.status, one.resumable, damaged(one)) for one in found] == [
        (2000, "levanter", Status.COMPLETE, True, set()),
        (1000, "levanter", Status.COMPLETE, True, set()),
    ]
    assert {one.name.split("/")[0] for one in read_checkpoint(found[0].path).tensors} == {
        "model",
        "optimizer_state",
        "training_key",
    }


def test_without_its_record_a_save_has_not_ended(tmp_path: Path) -> None:
    made = files()
    del made["metadata.json"]
    place = written(tmp_path / "run/step-1000", made)
    (found,) = inventory(tmp_path / "run").checkpoints
    assert (found.format, found.status, found.resumable) == ("levanter", Status.UNCOMMITTED, False)
    age(place, 5)
    (found,) = inventory(tmp_path / "run").checkpoints
    assert found.status is Status.IN_PROGRESS


@pytest.mark.parametrize("name", [f"{ARRAYS[0]}/1.0", f"{ARRAYS[1]}/0.0"])
def test_a_chunk_that_was_cut_is_named(tmp_path: Path, name: str) -> None:
    place = written(tmp_path / "step-1000", {**files(), name: b"\x01\x02\x03"})
    found = read_checkpoint(place)
    assert found.status is Status.CORRUPT and damaged(found) == {name}


@pytest.mark.parametrize("data", [b"", b"{", b"[1]"])
def test_a_record_that_cannot_be_read_is_damage(tmp_path: Path, data: bytes) -> None:
    place = written(tmp_path / "run/step-1000", {**files(), "metadata.json": data})
    found = read_checkpoint(place)
    assert found.status is not Status.COMPLETE and not found.resumable


def test_a_record_of_something_else_beside_a_model_is_not_taken_for_levanters(tmp_path: Path) -> None:
    made = {**files(), "metadata.json": b'{"name": "model", "version": 3}'}
    assert read_checkpoint(written(tmp_path / "step-1000", made)).format != "levanter"
