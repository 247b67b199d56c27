"""zarr arrays: each chunk of the grid must be there, since zarr itself does not miss one."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.formats.base import Role, Severity
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import look
from muster_agent.formats.zarr import read_array
from muster_agent.formats.zarr_grid import parse_grid

from tests.agent.formats.fuzz import examples

BOUND_MS = 5_000
PLAIN: dict[str, Any] = {
    "zarr_format": 2,
    "shape": [4, 6],
    "chunks": [2, 4],
    "dtype": "<f4",
    "compressor": None,
    "filters": None,
    "fill_value": None,
    "order": "C",
}


def array(place: Path, files: dict[str, int], **changes: Any) -> Path:
    place.mkdir(exist_ok=True)
    (place / ".zarray").write_text(json.dumps(PLAIN | changes))
    for name, size_bytes in files.items():
        (place / name).parent.mkdir(exist_ok=True, parents=True)
        (place / name).write_bytes(b"x" * size_bytes)
    return place


def judge(place: Path, absent: Severity = Severity.DAMAGE) -> Draft:
    return read_array(look(str(place), str(place)), True, name="w", role=Role.MODEL, absent=absent)


def seen(draft: Draft) -> list[tuple[str, str]]:
    return [(found.code, found.path) for found in draft.findings]


FULL = {"0.0": 32, "0.1": 32, "1.0": 32, "1.1": 32}


def test_a_full_grid_is_no_finding_and_edge_chunks_are_as_large_as_others(tmp_path: Path) -> None:
    draft = judge(array(tmp_path, FULL))
    assert (draft.findings, len(draft.tensors)) == ([], 4)
    assert {shard.promised_bytes for shard in draft.shards if shard.role is Role.MODEL} == {32}


def test_a_chunk_that_is_not_there_is_missing_although_zarr_reads_on(tmp_path: Path) -> None:
    draft = judge(array(tmp_path, {name: 32 for name in FULL if name != "1.0"}))
    assert seen(draft) == [("shard_missing", "1.0")]
    assert "fill value" in draft.findings[0].detail


def test_where_the_writer_skips_chunks_of_the_fill_value_their_absence_is_worth_a_note(tmp_path: Path) -> None:
    draft = judge(array(tmp_path, {"0.0": 32}), Severity.NOTE)
    assert {found.severity for found in draft.findings} == {Severity.NOTE}


@pytest.mark.parametrize(("size", "code"), [(0, "shard_empty"), (31, "shard_truncated"), (33, "shard_oversized")])
def test_a_chunk_of_another_size_than_described_is_damage(tmp_path: Path, size: int, code: str) -> None:
    assert seen(judge(array(tmp_path, FULL | {"0.1": size}))) == [(code, "0.1")]


def test_compressed_chunks_may_have_any_size_but_none(tmp_path: Path) -> None:
    sizes = {"0.0": 9, "0.1": 40, "1.0": 1, "1.1": 0}
    assert seen(judge(array(tmp_path, sizes, compressor={"id": "blosc"}))) == [("shard_empty", "1.1")]


def zstd(place: Path, name: str, data: bytes) -> None:
    (place / name).write_bytes(zstandard.compress(data))


def test_chunks_compressed_with_zstd_are_decompressed(tmp_path: Path) -> None:
    place = array(tmp_path, FULL, compressor={"id": "zstd"})
    for name in FULL:
        zstd(place, name, bytes(32))
    assert judge(place).findings == []
    zstd(place, "0.1", bytes(31))
    (place / "1.0").write_bytes(b"x" * 20)
    assert seen(judge(place)) == [("metadata_unreadable", "0.1"), ("metadata_unreadable", "1.0")]


def test_behind_a_filter_chunks_have_any_size_but_still_begin_as_zstd(tmp_path: Path) -> None:
    place = array(tmp_path, FULL, compressor={"id": "zstd"}, filters=[{"id": "delta"}])
    for name in FULL:
        zstd(place, name, bytes(9))
    assert judge(place).findings == []
    (place / "1.0").write_bytes(b"x" * 20)
    assert seen(judge(place)) == [("metadata_unreadable", "1.0")]


VERSION_3: dict[str, Any] = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4, 6],
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 4]}},
    "data_type": "bfloat16",
}


@pytest.mark.parametrize(
    ("encoding", "codecs", "names", "plain"),
    [
        ({"name": "default"}, ["bytes"], ["c/0/0", "c/0/1", "c/1/0", "c/1/1"], True),
        ({"name": "default", "configuration": {"separator": "."}}, ["bytes"], ["c.0.0", "c.0.1", "c.1.0"], True),
        ({"name": "v2"}, ["bytes", "zstd"], ["0.0", "0.1", "1.0", "1.1"], False),
        (None, ["transpose", "bytes", "crc32c"], ["c/0/0", "c/0/1"], False),
    ],
)
def test_the_third_version_names_and_packs_its_chunks_in_several_ways(
    encoding: Any, codecs: list[str], names: list[str], plain: bool
) -> None:
    document = VERSION_3 | {"chunk_key_encoding": encoding, "codecs": [{"name": one} for one in codecs]}
    grid = parse_grid(json.dumps(document).encode())
    assert [grid.name_of(index) for index in grid.indices(set())][: len(names)] == names
    assert [grid.index_of(name) for name in names] == list(grid.indices(set()))[: len(names)]
    assert (grid.chunk_bytes, grid.file_bytes) == (16, 16 if plain else None)
    assert grid.index_of("c/2/0") is None and grid.index_of("c/00/0") is None


def test_a_scalar_of_the_third_version_has_one_chunk() -> None:
    document = VERSION_3 | {"shape": [], "codecs": [{"name": "bytes"}]}
    document["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": []}}
    grid = parse_grid(json.dumps(document).encode())
    assert (grid.name_of(()), grid.index_of("c"), grid.index_of("0"), grid.file_bytes) == ("c", (), None, 2)


def test_chunks_outside_the_grid_are_of_another_save(tmp_path: Path) -> None:
    draft = judge(array(tmp_path, FULL | {"2.0": 32, "0.0.0": 32}))
    assert {path for code, path in seen(draft) if code == "shard_orphaned"} == {"2.0", "0.0.0"}


def test_a_scalar_has_one_chunk_and_an_empty_array_none(tmp_path: Path) -> None:
    assert judge(array(tmp_path / "a", {"0": 4}, shape=[], chunks=[])).findings == []
    assert seen(judge(array(tmp_path / "b", {}, shape=[], chunks=[]))) == [("shard_missing", "0")]
    assert judge(array(tmp_path / "c", {}, shape=[0, 6])).findings == []


def test_chunks_may_lie_in_sub_folders(tmp_path: Path) -> None:
    full = {name.replace(".", "/"): size for name, size in FULL.items()}
    assert judge(array(tmp_path / "a", full, dimension_separator="/")).findings == []
    del full["1/1"]
    assert seen(judge(array(tmp_path / "b", full, dimension_separator="/"))) == [("shard_missing", "1/1")]


@pytest.mark.parametrize(
    ("dtype", "size"), [("bfloat16", 16), ("|b1", 8), ("bool", 8), ("<f8", 64), ("float8_e4m3fn", 8)]
)
def test_widths_of_data_types_are_known(tmp_path: Path, dtype: str, size: int) -> None:
    assert judge(array(tmp_path, dict.fromkeys(FULL, size), dtype=dtype)).findings == []


def test_sizes_of_unknown_data_types_are_not_judged(tmp_path: Path) -> None:
    assert judge(array(tmp_path, FULL, dtype=[["a", "<f4"]])).findings == []
    assert judge(array(tmp_path, FULL, dtype="float9000x")).findings == []


def test_a_grid_beyond_all_measure_takes_no_time(tmp_path: Path) -> None:
    begun = time.monotonic()
    draft = judge(array(tmp_path, {"0.0": 4}, shape=[1 << 61, 1 << 61], chunks=[1, 1]))
    assert time.monotonic() - begun < 1
    assert {code for code, _ in seen(draft)} == {"shard_missing"} and len(draft.findings) <= 50


@pytest.mark.parametrize(
    "changes",
    [{"zarr_format": 3}, {"chunks": [0, 4]}, {"chunks": [2]}, {"shape": [-1, 6]}, {"shape": "4"}, {"chunks": None}],
)
def test_a_description_that_cannot_be_is_unreadable_metadata(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert seen(judge(array(tmp_path, FULL, **changes))) == [("metadata_unreadable", ".zarray")]


@settings(max_examples=examples(300), deadline=BOUND_MS)
@given(st.binary(max_size=200))
def test_any_bytes_as_the_description(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / ".zarray").write_bytes(data)
        assert judge(Path(place)).findings


@settings(max_examples=examples(300), deadline=BOUND_MS)
@given(
    st.lists(st.integers(-1, 1 << 63), max_size=4),
    st.lists(st.integers(-1, 1 << 63), max_size=4),
    st.sampled_from(["<f4", "|V9", "", "float99", "<U3", 3, None, ["x"]]),
    st.sampled_from([".", "/", "-", None]),
)
def test_any_numbers_in_the_description(shape: list[int], chunks: list[int], dtype: Any, separator: Any) -> None:
    with tempfile.TemporaryDirectory() as place:
        array(Path(place), {"0": 4, "0.0": 4}, shape=shape, chunks=chunks, dtype=dtype, dimension_separator=separator)
        assert len(judge(Path(place)).findings) <= 53
