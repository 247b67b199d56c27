"""T5X's own checkpoints, made by hand from its own rules: flax's msgpack and a zarr folder for each array."""

from __future__ import annotations

import gzip
import json
import struct
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.msgpack_bounded import MAX_DEPTH, Extension, MsgpackRefused, parse_msgpack
from muster_agent.formats.walk import inventory

from tests.agent.formats.damage import written
from tests.agent.formats.fuzz import examples

ARRAYS = ("target.decoder.kernel", "state.param_states.decoder.kernel.v")


def numpy_scalar(value: int) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(1, msgspec.msgpack.encode([[], "int32", struct.pack("<i", value)]))


def spec(name: str) -> dict[str, Any]:
    return {"driver": "zarr", "dtype": "float32", "kvstore": {"driver": "file", "path": name}, "metadata": {}}


def state(step: int = 1000) -> bytes:
    tree = {
        "target": {"decoder": {"kernel": spec(ARRAYS[0])}},
        "state": {"step": numpy_scalar(step), "param_states": {"decoder": {"kernel": {"v": spec(ARRAYS[1])}}}},
    }
    return msgspec.msgpack.encode({"version": 3, "optimizer": tree})


def files(step: int = 1000) -> dict[str, bytes]:
    grid = {"zarr_format": 2, "shape": [4, 4], "chunks": [2, 4], "dtype": "<f4", "order": "C", "filters": None}
    grid |= {"compressor": {"id": "gzip", "level": 1}, "fill_value": None}
    made = {"checkpoint": state(step)}
    for array in ARRAYS:
        made[f"{array}/.zarray"] = json.dumps(grid).encode()
        made |= {f"{array}/{chunk}": gzip.compress(b"\x01\x02\x03\x04" * 8) for chunk in ("0.0", "1.0")}
    for part in ("index", "data-00000-of-00001"):
        made |= {f"train_ds-{host:03d}-of-002.{part}": b"i" * 50 for host in range(2)}
    return made


def without(*names: str) -> dict[str, bytes]:
    return {name: data for name, data in files().items() if name not in names}


def damage(shard_map: ShardMap) -> set[str]:
    return {one.path for one in shard_map.findings if one.severity is Severity.DAMAGE}


def test_a_whole_checkpoint_is_complete_with_the_step_inside(tmp_path: Path) -> None:
    written(tmp_path / "run/checkpoint_1000", files())
    written(tmp_path / "run/checkpoint_2000.tmp-1700000000", files(2000))
    found = inventory(tmp_path)
    one = next(one for one in found.checkpoints if one.step == 1000)
    assert (one.format, one.status, one.resumable, damage(one)) == ("t5x", Status.COMPLETE, True, set())
    assert {shard.role for shard in one.shards} == {Role.MODEL, Role.OPTIMIZER, Role.DATALOADER, Role.METADATA}
    assert not any(other.resumable for other in found.checkpoints if other is not one)


@pytest.mark.parametrize(
    ("lost", "named"),
    [
        (("target.decoder.kernel/1.0",), "target.decoder.kernel/1.0"),
        (("target.decoder.kernel/.zarray",), "target.decoder.kernel/.zarray"),
        (tuple(name for name in files() if name.startswith("state.")), f"{ARRAYS[1]}/.zarray"),
        (("train_ds-000-of-002.index", "train_ds-000-of-002.data-00000-of-00001"), "train_ds-000-of-002"),
    ],
)
def test_what_is_gone_is_named(lost: tuple[str, ...], named: str, tmp_path: Path) -> None:
    shard_map = read_checkpoint(written(tmp_path / "checkpoint_1000", without(*lost)))
    assert (shard_map.status, damage(shard_map)) == (Status.INCOMPLETE, {named})


def test_chunks_of_zeros_that_were_left_out_are_no_alarm(tmp_path: Path) -> None:
    of_moments = without(f"{ARRAYS[1]}/0.0", f"{ARRAYS[1]}/1.0")
    assert read_checkpoint(written(tmp_path / "a/checkpoint_1000", of_moments)).status is Status.COMPLETE
    of_a_bias = without(f"{ARRAYS[0]}/0.0", f"{ARRAYS[0]}/1.0")
    assert read_checkpoint(written(tmp_path / "b/checkpoint_1000", of_a_bias)).status is Status.COMPLETE


@pytest.mark.parametrize("data", [b"", state()[:-20], state() + b"x", b"\xc1" * 100])
def test_a_damaged_state_is_damage(data: bytes, tmp_path: Path) -> None:
    shard_map = read_checkpoint(written(tmp_path / "checkpoint_1000", {**files(), "checkpoint": data}))
    assert (shard_map.format, shard_map.status, damage(shard_map)) == ("t5x", Status.CORRUPT, {"checkpoint"})


@settings(max_examples=examples(200), deadline=5_000, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6), st.integers(0, 500))
def test_a_bent_or_cut_state_gives_findings_and_no_failure(spots: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(state())
    for place, byte in spots:
        data[place % len(data)] = byte
    with tempfile.TemporaryDirectory() as place:
        made = {**files(), "checkpoint": bytes(data[: len(data) - cut % 50])}
        found = read_checkpoint(written(Path(place) / "checkpoint_1000", made))
    assert not any("reader failed" in one.detail for one in found.findings)


def test_an_array_that_lies_elsewhere_is_not_opened(tmp_path: Path) -> None:
    tree = {"target": {"w": spec("../../etc")}, "state": {}}
    data = msgspec.msgpack.encode({"version": 3, "optimizer": tree})
    shard_map = read_checkpoint(written(tmp_path / "checkpoint_1000", {**files(), "checkpoint": data}))
    assert "path_unsafe" in {one.code for one in shard_map.findings}


# -- msgpack -----------------------------------------------------------------------------------------------------------
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=20), st.dictionaries(st.text(), inner, max_size=20)),
    max_leaves=30,
)


@settings(max_examples=examples(300), deadline=5_000)
@given(plain)
def test_what_was_packed_comes_back_equal(value: Any) -> None:
    assert parse_msgpack(msgspec.msgpack.encode(value)) == value


@settings(max_examples=examples(300), deadline=5_000)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        parse_msgpack(data)
    except MsgpackRefused as refused:
        assert refused.reason


def test_extensions_and_bytes_come_back_as_they_are() -> None:
    data = msgspec.msgpack.encode([b"raw" * 100, msgspec.msgpack.Ext(5, b"x" * 300), msgspec.msgpack.Ext(-1, b"1234")])
    assert parse_msgpack(data) == [b"raw" * 100, Extension(5, b"x" * 300), Extension(255, b"1234")]


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\x7f\xff\xff\xff\x00",
        b"\xdb\xff\xff\xff\xff",
        b"\x91" * (MAX_DEPTH + 2) + b"\xc0",
    ],
)
def test_a_length_or_depth_that_lies_is_refused_before_anything_is_made(data: bytes) -> None:
    with pytest.raises(MsgpackRefused):
        parse_msgpack(data)
