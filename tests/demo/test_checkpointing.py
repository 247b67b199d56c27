"""Checkpoints of the demo trainer are whole or visibly not, and damage is refused before any of it is used."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from deploy.demo import checkpointing
from deploy.demo.checkpointing import CheckpointReader, UnusableCheckpoint, committed_steps, prune, save


def rank_tensors(value: float) -> list[dict[str, np.ndarray]]:
    return [
        {
            "model.weight": np.full((3, 5), value + rank, np.float32),
            "optimizer.step": np.array([rank], np.int64),
            "rng.state": np.array([1, 2, 2**64 - 1], np.uint64),
        }
        for rank in range(2)
    ]


def load(path: Path, world_size: int = 2) -> CheckpointReader:
    reader = CheckpointReader(path, world_size=world_size)
    reader.allocate()
    reader.read()
    reader.verify()
    return reader


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = save(tmp_path, 20, rank_tensors(1.5), {"seed": "7"})
    reader = load(path)
    assert (path, reader.step) == (tmp_path / "step-20", 20)
    for (tensors, metadata), saved in zip(reader.tensors(), rank_tensors(1.5), strict=True):
        assert tensors.keys() == saved.keys()
        assert all(np.array_equal(tensors[name], saved[name]) for name in saved)
        assert metadata["seed"] == "7"


def test_a_file_follows_the_safetensors_layout(tmp_path: Path) -> None:
    """Read by the specification alone: length, JSON header, tensors without holes, aligned."""
    path = save(tmp_path, 20, rank_tensors(1.5)) / "rank-00001-of-00002.safetensors"
    data = path.read_bytes()
    (header_bytes,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + header_bytes])
    body = data[8 + header_bytes :]
    assert header_bytes % 8 == 0
    assert all(isinstance(value, str) for value in header.pop("__metadata__").values())
    offsets = sorted(entry["data_offsets"] for entry in header.values())
    assert [begin for begin, _end in offsets] == [0, *(end for _begin, end in offsets[:-1])]
    assert offsets[-1][1] == len(body)
    begin, end = header["model.weight"]["data_offsets"]
    assert (header["model.weight"]["dtype"], header["model.weight"]["shape"], begin % 4) == ("F32", [3, 5], 0)
    assert np.frombuffer(body[begin:end], "<f4").tolist() == [2.5] * 15


def test_the_marker_names_every_file_with_its_size(tmp_path: Path) -> None:
    path = save(tmp_path, 20, rank_tensors(1.0))
    marker = json.loads((path / "checkpoint.json").read_text())
    files = {file.name: file.stat().st_size for file in path.glob("*.safetensors")}
    assert marker == {"format": "muster-ranked-safetensors", "step": 20, "world_size": 2, "files": files}
    assert sorted(files) == ["rank-00000-of-00002.safetensors", "rank-00001-of-00002.safetensors"]


def test_one_flipped_bit_anywhere_in_a_file_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 20, rank_tensors(1.0))
    file = path / "rank-00000-of-00002.safetensors"
    good = file.read_bytes()
    body_begin = 8 + struct.unpack("<Q", good[:8])[0]
    for position in (*range(8), *range(body_begin, len(good))):
        file.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        with pytest.raises(UnusableCheckpoint, match="rank-00000"):
            load(path).tensors()
    file.write_bytes(good)
    load(path).tensors()


@pytest.mark.parametrize("length_bytes", [0, 7, 100])
def test_a_truncated_file_is_refused_by_name_and_size(tmp_path: Path, length_bytes: int) -> None:
    path = save(tmp_path, 20, rank_tensors(1.0))
    file = path / "rank-00001-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:length_bytes])
    with pytest.raises(UnusableCheckpoint, match=f"rank-00001.*: {length_bytes} bytes on disk.*muster resume-point"):
        CheckpointReader(path, world_size=2)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 20, rank_tensors(1.0))
    (path / "rank-00001-of-00002.safetensors").unlink()
    with pytest.raises(UnusableCheckpoint, match="rank-00001"):
        CheckpointReader(path, world_size=2)


def test_a_step_that_was_never_committed_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 20, rank_tensors(1.0))
    (path / "checkpoint.json").unlink()
    with pytest.raises(UnusableCheckpoint, match="never committed"):
        CheckpointReader(path, world_size=2)


def test_another_number_of_ranks_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 20, rank_tensors(1.0))
    with pytest.raises(UnusableCheckpoint, match="saved by 2 ranks, this run has 4"):
        CheckpointReader(path, world_size=4)


@pytest.mark.parametrize(
    "marker",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"format":"other","step":1,"world_size":2,"files":{}}',
        '{"format":"muster-ranked-safetensors","step":1,"world_size":2,"files":{"../x":1}}',
        '{"format":"muster-ranked-safetensors","step":1,"world_size":2,"files":7}',
    ],
)
def test_a_damaged_marker_is_refused(tmp_path: Path, marker: str) -> None:
    path = save(tmp_path, 20, rank_tensors(1.0))
    (path / "checkpoint.json").write_text(marker)
    with pytest.raises(UnusableCheckpoint, match="checkpoint.json"):
        CheckpointReader(path, world_size=2)


def test_a_step_saved_again_replaces_what_lay_there_manifest_included(tmp_path: Path) -> None:
    path = save(tmp_path, 20, rank_tensors(1.0))
    (path / ".muster-manifest.json").write_text("of the bytes before")
    save(tmp_path, 20, rank_tensors(2.0))
    assert load(path).tensors()[0][0]["model.weight"][0, 0] == 2.0
    assert not (path / ".muster-manifest.json").exists()


def test_pruning_keeps_the_newest_and_the_one_that_was_loaded(tmp_path: Path) -> None:
    for step in range(10, 80, 10):
        save(tmp_path, step, rank_tensors(step))
    prune(tmp_path, keep=3, loaded=tmp_path / "step-20")
    assert committed_steps(tmp_path) == [70, 60, 50, 20]


def test_pruning_removes_what_an_interrupted_save_left_but_not_a_save_ahead(tmp_path: Path) -> None:
    save(tmp_path, 20, rank_tensors(1.0))
    for name in ("step-10", "step-30", "notes", "step-x"):
        (tmp_path / name).mkdir()
    prune(tmp_path, keep=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "step-20", "step-30", "step-x"]


def test_pruning_where_nothing_is_committed_removes_nothing(tmp_path: Path) -> None:
    (tmp_path / "step-10").mkdir()
    assert prune(tmp_path, keep=1) == []


def test_a_removal_that_is_interrupted_leaves_a_step_that_is_visibly_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, 20, rank_tensors(1.0))

    def interrupted(_path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpointing.shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpointing.remove(path)
    assert path.exists()
    assert committed_steps(tmp_path) == []
