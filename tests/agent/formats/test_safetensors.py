from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from muster_agent.formats.base import Role, ShardMap, Status
from muster_agent.formats.detect import inventory, read_checkpoint

from tests.agent.checkpoint_factory import safetensors_bytes
from tests.agent.formats.damage import age

WEIGHTS = {f"model.layer{number}": bytes([number]) * 16 for number in range(4)}


def read(path: Path) -> ShardMap:
    return read_checkpoint(path, grace_seconds=0)


def codes(shard_map: ShardMap) -> list[str]:
    return [found.code for found in shard_map.findings]


def write_indexed(folder: Path, *, total_bytes: int = 64) -> Path:
    """Two files of two tensors each, and the index that ties them together."""
    folder.mkdir()
    names = list(WEIGHTS)
    weight_map = {}
    for number, part in enumerate((names[:2], names[2:]), start=1):
        file = f"model-{number:05d}-of-00002.safetensors"
        (folder / file).write_bytes(safetensors_bytes({name: WEIGHTS[name] for name in part}))
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def change_index(folder: Path, change: Callable[[dict[str, dict[str, object]]], None]) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))


def test_a_single_file_is_a_checkpoint_with_the_step_of_its_name(tmp_path: Path) -> None:
    path = tmp_path / "model-step-120.safetensors"
    path.write_bytes(safetensors_bytes(WEIGHTS))
    found = read(path)
    assert (found.status, found.step, found.format, found.resumable) == (Status.COMPLETE, 120, "safetensors", False)
    assert codes(found) == ["optimizer_missing"]
    assert [shard.path for shard in found.shards] == [path.name]


def test_tensor_ranges_hold_the_tensors_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors_bytes(WEIGHTS))
    data = path.read_bytes()
    ranges = {one.name: data[one.offset_bytes : one.offset_bytes + one.length_bytes] for one in read(path).tensors}
    assert ranges == WEIGHTS


def test_an_indexed_folder_is_complete(tmp_path: Path) -> None:
    found = read(write_indexed(tmp_path / "step-7"))
    assert (found.status, found.step, len(found.tensors)) == (Status.COMPLETE, 7, 4)
    assert codes(found) == ["optimizer_missing"]


def test_a_file_that_the_index_names_and_that_is_gone_makes_it_incomplete(tmp_path: Path) -> None:
    folder = write_indexed(tmp_path / "step-7")
    (folder / "model-00002-of-00002.safetensors").unlink()
    found = read(folder)
    assert (found.status, codes(found)) == (Status.INCOMPLETE, ["shard_missing"])


def test_an_index_is_the_commit_marker_so_a_recent_gap_is_not_a_running_save(tmp_path: Path) -> None:
    folder = write_indexed(tmp_path / "step-7")
    (folder / "model-00002-of-00002.safetensors").unlink()
    os.utime(folder / "model.safetensors.index.json")
    assert read_checkpoint(folder, grace_seconds=3600).status is Status.INCOMPLETE


def test_an_index_that_came_before_its_files_may_be_the_first_of_a_running_copy(tmp_path: Path) -> None:
    folder = write_indexed(tmp_path / "step-7")
    (folder / "model-00002-of-00002.safetensors").unlink()
    os.utime(folder / "model-00001-of-00002.safetensors")
    assert read_checkpoint(folder, grace_seconds=3600).status is Status.IN_PROGRESS
    age(folder)
    assert read_checkpoint(folder, grace_seconds=3600).status is Status.INCOMPLETE


def test_a_truncated_file_of_an_index_makes_it_corrupt(tmp_path: Path) -> None:
    folder = write_indexed(tmp_path / "step-7")
    path = folder / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    found = read(folder)
    assert (found.status, codes(found)) == (Status.CORRUPT, ["shard_truncated"])


def test_a_tensor_that_is_not_in_its_file_is_a_gap(tmp_path: Path) -> None:
    folder = write_indexed(tmp_path / "step-7")
    change_index(folder, lambda index: index["weight_map"].update(ghost="model-00001-of-00002.safetensors"))
    found = read(folder)
    assert (found.status, codes(found)) == (Status.CORRUPT, ["ranges_gap"])
    assert found.findings[0].tensor == "ghost"


def test_a_wrong_total_is_only_a_warning(tmp_path: Path) -> None:
    found = read(write_indexed(tmp_path / "step-7", total_bytes=65))
    assert (found.status, codes(found)) == (Status.COMPLETE, ["size_total_mismatch", "optimizer_missing"])


def test_names_that_promise_more_files_than_the_index_uses_are_incomplete(tmp_path: Path) -> None:
    folder = write_indexed(tmp_path / "step-7")
    change_index(folder, lambda index: [index["weight_map"].pop(name) for name in list(WEIGHTS)[2:]])
    found = read(folder)
    assert found.status is Status.INCOMPLETE
    assert "shard_missing" in codes(found)


def test_files_outside_the_index_are_named_as_left_over(tmp_path: Path) -> None:
    folder = write_indexed(tmp_path / "step-7")
    for name in ("model-00003-of-00003.safetensors", "model.safetensors"):
        (folder / name).write_bytes(safetensors_bytes(WEIGHTS))
    found = read(folder)
    assert (found.status, codes(found).count("shard_orphaned")) == (Status.COMPLETE, 2)
    assert len([shard for shard in found.shards if shard.role is Role.MODEL]) == 2


@pytest.mark.parametrize("name", ["/etc/passwd", "../up.safetensors", "a\\b", "a\0b", "", "C:x", 7])
def test_an_index_that_leads_out_of_the_folder_is_never_followed(tmp_path: Path, name: object) -> None:
    folder = write_indexed(tmp_path / "step-7")
    change_index(folder, lambda index: index["weight_map"].update(ghost=name))
    found = read(folder)
    assert (found.status, codes(found)) == (Status.UNREADABLE, ["path_unsafe"])
    assert found.tensors == ()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"weight_map":{}}', '{"weight_map":[]}', "[" * 5000])
def test_an_index_that_is_not_understood_makes_it_corrupt(tmp_path: Path, text: str) -> None:
    folder = write_indexed(tmp_path / "step-7")
    (folder / "model.safetensors.index.json").write_text(text)
    found = read(folder)
    assert (found.status, codes(found)) == (Status.CORRUPT, ["metadata_unreadable"])


def test_numbered_files_without_their_index_were_never_committed(tmp_path: Path) -> None:
    folder = write_indexed(tmp_path / "step-7")
    (folder / "model.safetensors.index.json").unlink()
    assert read(folder).status is Status.UNCOMMITTED
    assert read_checkpoint(folder, grace_seconds=3600).status is Status.IN_PROGRESS
    (folder / "model-00001-of-00002.safetensors").unlink()
    assert read(folder).status is Status.INCOMPLETE


def test_a_file_name_gives_the_role_of_tensors_without_a_prefix(tmp_path: Path) -> None:
    folder = tmp_path / "step-3"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(safetensors_bytes({"w": bytes(4)}))
    (folder / "optimizer.safetensors").write_bytes(safetensors_bytes({"w": bytes(4)}))
    (folder / "config.json").write_text("{}")
    found = read(folder)
    roles = {shard.path: shard.role for shard in found.shards}
    assert found.resumable
    assert roles == {
        "model.safetensors": Role.MODEL,
        "optimizer.safetensors": Role.OPTIMIZER,
        "config.json": Role.OTHER,
    }


def test_a_data_type_of_a_newer_writer_makes_the_checkpoint_unknown(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(safetensors_bytes(WEIGHTS).replace(b'"F32"', b'"F2 "'))
    found = read(path)
    assert found.status is Status.UNKNOWN
    assert "does not know" in found.not_resumable_reasons[1]


def test_the_writers_temporary_file_is_named_and_not_part_of_the_checkpoint(tmp_path: Path) -> None:
    folder = write_indexed(tmp_path / "step-7")
    (folder / ".tmpAb3dE9").write_bytes(b"half")
    found = read(folder)
    assert found.status is Status.COMPLETE
    assert "temporary_left" in codes(found)
    assert ".tmpAb3dE9" not in [shard.path for shard in found.shards]


def test_a_model_beside_files_that_are_not_read_is_not_called_complete(tmp_path: Path) -> None:
    folder = tmp_path / "step-3"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(safetensors_bytes(WEIGHTS))
    (folder / "optimizer.bin").write_bytes(b"half")
    found = read(folder)
    assert (found.status, found.resumable) == (Status.UNKNOWN, False)
    assert "optimizer.bin" in found.not_resumable_reasons[1]


def test_names_of_tensors_are_kept_to_the_byte_also_where_two_look_alike(tmp_path: Path) -> None:
    """A line end, an emoji, and one word in two Unicode forms: two tensors, and JSON that stays one line."""
    names = [
        "model.a\nb",
        "model.\N{ROCKET}",
        "model.caf\N{LATIN SMALL LETTER E WITH ACUTE}",
        "model.cafe\N{COMBINING ACUTE ACCENT}",
    ]
    folder = tmp_path / "run \u6a21\u578b" / "checkpoint-5"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(safetensors_bytes({name: b"abcd" for name in names}))
    found = read_checkpoint(folder)
    assert sorted(one.name for one in found.tensors) == sorted(names) and found.status is Status.COMPLETE
    assert b"\n" not in msgspec.json.encode(found)
    (listed,) = inventory(tmp_path).checkpoints
    assert (listed.path, listed.run) == (str(folder), "run \u6a21\u578b")
