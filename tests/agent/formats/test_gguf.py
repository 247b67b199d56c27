from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.formats.base import Severity, ShardMap, Status
from muster_agent.formats.detect import inventory, read_checkpoint
from muster_agent.formats.gguf import HeaderRefused, read_header

from tests.agent.formats.damage import DATA, KINDS, age, copy_sample, damage, swap
from tests.agent.formats.fuzz import examples
from tests.agent.formats.test_torch_archive import Bytes

TINY = (DATA / "gguf" / "tiny.gguf").read_bytes()


def damaged(shard_map: ShardMap) -> list[tuple[str, str]]:
    return [(found.code, found.path) for found in shard_map.findings if found.severity is Severity.DAMAGE]


def test_real_files_are_whole_and_no_point_to_resume_from(tmp_path: Path) -> None:
    found = {one.path.rsplit("/", 1)[1]: one for one in inventory(copy_sample("gguf", tmp_path)).checkpoints}
    assert set(found) == {"tiny.gguf", "split-{part}-of-00002.gguf"}
    assert {(one.format, one.status, one.resumable) for one in found.values()} == {("gguf", Status.COMPLETE, False)}
    assert len(found["split-{part}-of-00002.gguf"].shards) == 2


def test_the_tensors_of_a_real_file_are_placed() -> None:
    tensors = read_checkpoint(DATA / "gguf" / "tiny.gguf").tensors
    assert len(tensors) == 2
    assert all(tensor.offset_bytes % 32 == 0 for tensor in tensors)
    assert {tensor.dtype for tensor in tensors} <= {"F32", "F16"}
    assert max(tensor.offset_bytes + tensor.length_bytes for tensor in tensors) <= len(TINY)


def test_every_cut_is_found() -> None:
    end = read_header(Bytes(TINY), "x").end_byte
    for size in range(end):
        with pytest.raises(HeaderRefused):
            read_header(Bytes(TINY[:size]), "x")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("zero", "flip_head", "delete", "extend")])
def test_damage_is_found(tmp_path: Path, kind: str) -> None:
    place = copy_sample("gguf", tmp_path)
    damage(place / "tiny.gguf", kind)
    assert read_checkpoint(place / "tiny.gguf").status is Status.CORRUPT


def test_a_part_that_is_not_there_is_named(tmp_path: Path) -> None:
    place = copy_sample("gguf", tmp_path)
    (place / "split-00002-of-00002.gguf").unlink()
    shard_map = read_checkpoint(place / "split-{part}-of-00002.gguf")
    assert (shard_map.status, damaged(shard_map)) == (
        Status.INCOMPLETE,
        [("shard_missing", "split-00002-of-00002.gguf")],
    )


def test_swapped_parts_say_so(tmp_path: Path) -> None:
    place = copy_sample("gguf", tmp_path)
    swap(place / "split-00001-of-00002.gguf", place / "split-00002-of-00002.gguf")
    shard_map = read_checkpoint(place / "split-{part}-of-00002.gguf")
    assert shard_map.status is Status.CORRUPT
    assert {path for _, path in damaged(shard_map)} == {"split-00001-of-00002.gguf", "split-00002-of-00002.gguf"}


def test_something_else_under_its_name_is_damage(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    age(tmp_path)
    assert read_checkpoint(tmp_path / "model.gguf").status is Status.CORRUPT


@settings(max_examples=examples(300), deadline=5_000)
@given(st.binary(max_size=200), st.integers(0, 1 << 64 - 1), st.integers(0, 40))
def test_any_bytes_as_a_header(data: bytes, count: int, at: int) -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, count % 3, count)
    for raw in (head + data, TINY[:at] + data + TINY[at + len(data) :]):
        try:
            read_header(Bytes(raw), "x")
        except HeaderRefused as error:
            assert error.found.detail


def test_flipped_bytes_never_raise_anything_else() -> None:
    chance = random.Random(5)
    for _ in range(300):
        data = bytearray(TINY)
        for _ in range(3):
            data[chance.randrange(len(data) // 2)] = chance.randrange(256)
        try:
            read_header(Bytes(bytes(data)), "x")
        except HeaderRefused as error:
            assert error.found.path == "x"
