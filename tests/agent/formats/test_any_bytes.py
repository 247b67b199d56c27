"""Whatever lies in the place of metadata, the answer is a ShardMap with findings: never an exception, never a wait."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.detect import read_checkpoint

from tests.agent.formats.fuzz import examples

METADATA = (Path(__file__).parents[2] / "data" / "dcp" / "w2" / "step-10" / ".metadata").read_bytes()
ZIP = (Path(__file__).parents[2] / "data" / "torch" / "zip.pt").read_bytes()
BOUND_MS = 5_000


def judged(**files: bytes) -> ShardMap:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "step-1"
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
        return read_checkpoint(folder, grace_seconds=0)


def assert_judged(shard_map: ShardMap) -> None:
    assert shard_map.status in (Status.COMPLETE, Status.UNKNOWN) or shard_map.findings
    assert not any("reader failed" in found.detail for found in shard_map.findings)


@settings(max_examples=examples(300), deadline=BOUND_MS)
@given(st.binary(max_size=400))
def test_any_bytes_as_dcp_metadata(data: bytes) -> None:
    assert_judged(judged(**{".metadata": data, "__0_0.distcp": b"x"}))


@settings(max_examples=examples(300), deadline=BOUND_MS)
@given(st.lists(st.tuples(st.integers(0, len(METADATA) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_real_dcp_metadata_with_flipped_bytes(changes: list[tuple[int, int]]) -> None:
    data = bytearray(METADATA)
    for place, byte in changes:
        data[place] = byte
    assert_judged(judged(**{".metadata": bytes(data), "__0_0.distcp": b"x"}))


@settings(max_examples=examples(300), deadline=BOUND_MS)
@given(st.binary(max_size=200), st.integers(0, 300))
def test_any_bytes_as_a_safetensors_file(data: bytes, length: int) -> None:
    assert_judged(judged(**{"model.safetensors": length.to_bytes(8, "little") + data}))


@settings(max_examples=examples(300), deadline=BOUND_MS)
@given(st.binary(max_size=200))
def test_any_bytes_as_a_commit_marker_or_an_index(data: bytes) -> None:
    assert_judged(judged(**{"checkpoint.json": data}))
    assert_judged(judged(**{"model.safetensors.index.json": data}))


@settings(max_examples=examples(300), deadline=BOUND_MS)
@given(
    st.lists(st.tuples(st.integers(0, len(ZIP) - 1), st.integers(0, 255)), min_size=1, max_size=4),
    st.binary(max_size=9),
)
def test_a_torch_zip_with_flipped_bytes(changes: list[tuple[int, int]], behind: bytes) -> None:
    data = bytearray(ZIP)
    for place, byte in changes:
        data[place] = byte
    assert_judged(judged(**{"model.pt": bytes(data) + behind, "ep0-ba1-rank0.pt": bytes(data)}))
