"""EasyLM's streamed files, made by hand as its `StreamingCheckpointer` writes them: paths, and flax's bytes of each."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.formats.base import Role, Severity, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory

from tests.agent.formats.damage import age, damage, written
from tests.agent.formats.fuzz import examples


def packed(value: object) -> bytes:
    match value:
        case int() if 0 <= value < 128:
            return bytes([value])
        case str():
            raw = value.encode()
            return b"\xd9" + bytes([len(raw)]) + raw
        case bytes():
            return b"\xc6" + struct.pack(">I", len(value)) + value
        case list() | tuple():
            return bytes([0x90 | len(value)]) + b"".join(map(packed, value))
    raise TypeError(type(value))


def array(shape: tuple[int, ...], dtype: str, data: bytes) -> bytes:
    """What flax's `to_bytes` makes of one array."""
    inside = packed([list(shape), dtype, data])
    return b"\xc9" + struct.pack(">I", len(inside)) + b"\x01" + inside


def pair(path: str, of_array: bytes) -> bytes:
    return packed([path.split("/"), of_array])


STEP = pair("step", array((), "int32", struct.pack("<i", 1000)))
WEIGHTS = pair("params/params/lm_head/kernel", array((2, 3), "float32", b"abcd" * 6))
MOMENTS = pair("opt_state/1/0/mu/params/lm_head/kernel", array((2, 3), "float32", b"efgh" * 6))
STATE = STEP + WEIGHTS + MOMENTS


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return written(tmp_path / "run", {"streaming_train_state_1000": STATE, "streaming_params_900": WEIGHTS})


def test_a_train_state_is_a_point_to_resume_from_and_parameters_alone_are_none(run: Path) -> None:
    found = [
        (Path(one.path).name, one.format, one.step, one.status, one.resumable) for one in inventory(run).checkpoints
    ]
    assert found == [
        ("streaming_train_state_1000", "easylm", 1000, Status.COMPLETE, True),
        ("streaming_params_900", "easylm", 900, Status.COMPLETE, False),
    ]


def test_where_each_array_lies_is_told(run: Path) -> None:
    tensors = {one.name: one for one in read_checkpoint(run / "streaming_train_state_1000").tensors}
    moments = tensors["opt_state/1/0/mu/params/lm_head/kernel"]
    assert (moments.dtype, moments.shape, moments.role) == ("float32", (2, 3), Role.OPTIMIZER)
    assert STATE[moments.offset_bytes :][: moments.length_bytes] == b"efgh" * 6


def test_the_state_that_is_written_over_again_and_again_has_its_step_inside(tmp_path: Path) -> None:
    place = written(tmp_path, {"streaming_train_state": STATE})
    assert read_checkpoint(place / "streaming_train_state").step == 1000


def test_a_file_of_another_step_than_its_name_is_told(tmp_path: Path) -> None:
    place = written(tmp_path, {"streaming_train_state_1000": STATE.replace(struct.pack("<i", 1000), b"\x05\0\0\0")})
    assert read_checkpoint(place / "streaming_train_state_1000").step == 5


@pytest.mark.parametrize("kind", ["truncate", "empty", "extend"])
def test_a_file_of_another_length_is_damage(run: Path, kind: str) -> None:
    damage(run / "streaming_train_state_1000", kind)
    found = read_checkpoint(run / "streaming_train_state_1000")
    assert not found.resumable
    assert {one.path for one in found.findings if one.severity is Severity.DAMAGE} == {"streaming_train_state_1000"}


def test_bytes_that_are_no_array_are_damage(tmp_path: Path) -> None:
    place = written(tmp_path, {"streaming_train_state_5": WEIGHTS + packed([["step"], b"\x05"])})
    found = read_checkpoint(place / "streaming_train_state_5")
    assert [one.code for one in found.findings] == ["metadata_unreadable"]


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, len(STATE) - 1), st.binary(min_size=1, max_size=20))
def test_any_bytes_give_findings_and_no_exception(
    tmp_path_factory: pytest.TempPathFactory, at: int, patch: bytes
) -> None:
    place = tmp_path_factory.mktemp("easylm") / "streaming_train_state_7"
    place.write_bytes(STATE[:at] + patch + STATE[at + len(patch) :])
    age(place.parent)
    found = read_checkpoint(place)
    assert not any("reader failed" in one.detail for one in found.findings)
