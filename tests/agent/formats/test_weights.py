"""Folders of weights as they really lie: stale indexes, second sets, leftovers, downloads, caches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory

from tests.agent.checkpoint_factory import safetensors_bytes
from tests.agent.formats.damage import DATA, age, copy_sample, damage, files_under, swap
from tests.agent.torch_factory import Tensor, torch_zip

SHARDED = "huggingface/save_pretrained-sharded"


def read(path: Path, grace_seconds: float = 0) -> ShardMap:
    return read_checkpoint(path, grace_seconds=grace_seconds)


def alarms(found: ShardMap) -> list[tuple[str, str]]:
    return [(one.code, one.path) for one in found.findings if one.severity is not Severity.NOTE]


def numbered(count: int, numbers: range | None = None) -> dict[str, bytes]:
    """Files `model-0000N-of-0000M.safetensors`, each with the tensor `wN`."""
    return {
        f"model-{number:05d}-of-{count:05d}.safetensors": safetensors_bytes({f"w{number}": b"1234" * 8})
        for number in numbers or range(1, count + 1)
    }


def index(count: int) -> str:
    weight_map = {f"w{number}": f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)}
    return json.dumps({"metadata": {"total_size": 32 * count}, "weight_map": weight_map})


def write(folder: Path, files: dict[str, bytes | str]) -> Path:
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    age(folder)
    return folder


@pytest.mark.parametrize("kind", ["truncate", "empty", "delete", "extend"])
@pytest.mark.parametrize("file", [name for name in files_under(DATA / SHARDED) if name.startswith("model-")])
def test_damage_to_any_shard_is_found_and_named(tmp_path: Path, file: str, kind: str) -> None:
    folder = copy_sample(SHARDED, tmp_path)
    damage(folder / file, kind)
    found = read(folder)
    assert found.status is (Status.INCOMPLETE if kind == "delete" else Status.CORRUPT)
    assert file in {path for _, path in alarms(found)}


def test_two_shards_that_were_swapped_are_both_named(tmp_path: Path) -> None:
    folder = copy_sample(SHARDED, tmp_path)
    first, second = (f"model-{number:05d}-of-00005.safetensors" for number in (2, 4))
    swap(folder / first, folder / second)
    found = read(folder)
    assert found.status is Status.CORRUPT
    assert {path for code, path in alarms(found) if code == "ranges_gap"} == {first, second}


# -- what an index does not say ----------------------------------------------------------------------------------------
def test_a_leftover_index_names_files_that_are_not_there_beside_a_whole_set(tmp_path: Path) -> None:
    found = read(write(tmp_path / "model", {**numbered(15), "model.safetensors.index.json": index(30)}))
    assert (found.status, found.resumable) == (Status.INCOMPLETE, False)
    orphaned = [one for one in found.findings if one.code == "shard_orphaned"]
    assert any(one.path == "model-*-of-00015.safetensors" and "whole set" in one.detail for one in orphaned)
    assert len([one for one in found.findings if one.code == "shard_missing"]) == 30


def test_a_stale_index_that_some_files_still_fit_is_called_stale(tmp_path: Path) -> None:
    files = {**numbered(4, range(1, 3)), **numbered(3), "model.safetensors.index.json": index(4)}
    found = read(write(tmp_path / "model", files))
    assert found.status is Status.INCOMPLETE
    assert any("left from another save" in one.detail for one in found.findings)


def test_shards_of_a_larger_save_before_are_leftovers_and_no_damage(tmp_path: Path) -> None:
    left = numbered(5, range(4, 6))
    found = read(write(tmp_path / "model", {**numbered(3), **left, "model.safetensors.index.json": index(3)}))
    assert found.status is Status.COMPLETE
    assert alarms(found) == [*(("shard_orphaned", name) for name in left), ("optimizer_missing", found.path)]
    assert {shard.path for shard in found.shards}.isdisjoint(left)


@pytest.mark.parametrize("second", ["consolidated.safetensors", "model.safetensors"])
def test_two_sets_of_the_same_weights_are_counted_once(tmp_path: Path, second: str) -> None:
    files = {**numbered(2), "model.safetensors.index.json": index(2)}
    single = write(tmp_path / "one", files)
    both = write(tmp_path / "two", {**files, second: safetensors_bytes({"w1": b"1234" * 8, "w2": b"1234" * 8})})
    found = read(both)
    assert (found.status, found.total_bytes) == (Status.COMPLETE, read(single).total_bytes)
    assert ("shard_orphaned", second) in alarms(found)


def test_state_and_adapters_beside_indexed_weights_belong_to_the_checkpoint(tmp_path: Path) -> None:
    more = {
        name: safetensors_bytes({"exp_avg.w": b"1234"})
        for name in ("optimizer.safetensors", "adapter_model.safetensors")
    }
    found = read(write(tmp_path / "step-5", {**numbered(2), "model.safetensors.index.json": index(2), **more}))
    assert (found.status, found.resumable) == (Status.COMPLETE, True)
    assert "shard_orphaned" not in dict(alarms(found))
    assert {shard.role for shard in found.shards} >= {Role.MODEL, Role.OPTIMIZER}


def test_one_file_that_is_numbered_as_the_only_one_needs_no_index(tmp_path: Path) -> None:
    assert read(write(tmp_path / "model", dict(numbered(1)))).status is Status.COMPLETE


# -- files that are something else -------------------------------------------------------------------------------------
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 4976698672\n"
PAGE = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>'


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (LFS, "Git LFS pointer"),
        (PAGE, "HTML or XML page"),
        (b"<!DOCTYPE html><html></html>", "HTML or XML page"),
        (bytes(8192), "zeros"),
    ],
)
@pytest.mark.parametrize("name", ["model-00001-of-00002.safetensors", "pytorch_model.bin"])
def test_a_file_that_is_something_else_is_told_by_its_own_sentence(
    tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    files: dict[str, bytes | str] = {name: data}
    if name.startswith("model-"):
        files = {**numbered(2), "model.safetensors.index.json": index(2), name: data}
    found = read(write(tmp_path / "model", files))
    assert (found.status, found.resumable) == (Status.CORRUPT, False)
    assert any(one.path == name and words in one.detail for one in found.findings)


def test_a_shard_whose_first_page_reads_as_zeros_is_damage(tmp_path: Path) -> None:
    folder = copy_sample("huggingface/trainer-single", tmp_path) / "checkpoint-9"
    path = folder / "model.safetensors"
    path.write_bytes(bytes(4096) + path.read_bytes()[4096:])
    found = read(folder)
    assert found.status is Status.CORRUPT
    assert "model.safetensors" in {where for _, where in alarms(found)}


@pytest.mark.parametrize("count", [3, 100, 301, 330])
def test_a_download_that_stopped_anywhere_is_damage(tmp_path: Path, count: int) -> None:
    whole = safetensors_bytes({"a": b"1234" * 32, "b": b"1234" * 32})
    found = read(write(tmp_path / "model", {"model.safetensors": whole[:count]}))
    assert (found.status, alarms(found)) == (Status.CORRUPT, [("shard_truncated", "model.safetensors")])


# -- saves and downloads that did not end ------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["step-8", "final"])
@pytest.mark.parametrize("beside", [{}, {"config.json": "{}"}])
def test_a_file_that_was_never_renamed_is_no_model(tmp_path: Path, name: str, beside: dict[str, bytes | str]) -> None:
    folder = write(tmp_path / name, {".tmpAbC123": safetensors_bytes({"w": b"1234"}), **beside})
    found = read(folder)
    assert (found.format, found.status) == ("safetensors", Status.INCOMPLETE)
    assert ("temporary_left", ".tmpAbC123") in alarms(found)
    assert any("whole safetensors file" in one.detail for one in found.findings)
    assert [one.status for one in inventory(tmp_path, grace_seconds=0).checkpoints] == [Status.INCOMPLETE]


def hub(tmp_path: Path, target: str) -> Path:
    """A download cache with one snapshot whose link to the weights is `target`."""
    cache = tmp_path / "models--org--name"
    (cache / "blobs").mkdir(parents=True)
    snapshot = cache / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (cache / "blobs" / "ab12").write_bytes(safetensors_bytes({"w": b"1234"}))
    (cache / "blobs" / "cd34").write_text("{}")
    (snapshot / "model.safetensors").symlink_to(target)
    (snapshot / "config.json").symlink_to("../../blobs/cd34")
    return cache


def test_a_snapshot_of_the_download_cache_is_read_through_its_links(tmp_path: Path) -> None:
    found = inventory(hub(tmp_path, "../../blobs/ab12"), grace_seconds=0).checkpoints
    assert [(one.status, one.total_bytes > 0) for one in found] == [(Status.COMPLETE, True)]


@pytest.mark.parametrize("target", ["../blobs/ab12", "/old/cache/models--org--name/blobs/ab12"])
def test_broken_links_of_the_download_cache_are_incomplete_and_can_be_put_right(tmp_path: Path, target: str) -> None:
    (found,) = inventory(hub(tmp_path, target), grace_seconds=0).checkpoints
    assert (found.status, found.resumable) == (Status.INCOMPLETE, False)
    missing = next(one for one in found.findings if one.code == "shard_missing")
    assert (missing.path, "../../blobs/ab12" in missing.cure) == ("model.safetensors", True)


def test_a_snapshot_given_by_itself_is_read_from_its_own_cache_and_no_other(tmp_path: Path) -> None:
    snapshot = next((hub(tmp_path, "../../blobs/ab12") / "snapshots").iterdir())
    assert [one.status for one in inventory(snapshot, grace_seconds=0).checkpoints] == [Status.COMPLETE]
    assert read(snapshot).status is Status.COMPLETE
    other = next((hub(tmp_path / "other", str(tmp_path / "models--org--name/blobs/ab12")) / "snapshots").iterdir())
    assert ("link_escapes_root", "model.safetensors") in alarms(read(other))
    (unread,) = inventory(other, grace_seconds=0).checkpoints
    assert ("link_escapes_root", "model.safetensors") in alarms(unread)


def test_links_that_lead_out_of_the_folder_are_not_followed_and_nothing_is_called_missing(tmp_path: Path) -> None:
    cache = hub(tmp_path, "../../blobs/ab12").rename(tmp_path / "no-cache")
    found = read(next((cache / "snapshots").iterdir()))
    assert found.status is Status.UNREADABLE
    assert "shard_missing" not in dict(alarms(found))
    assert ("link_escapes_root", "model.safetensors") in alarms(found)


# -- torch files -------------------------------------------------------------------------------------------------------
def test_a_folder_of_torch_weights_is_a_whole_model(tmp_path: Path) -> None:
    files: dict[str, bytes | str] = {"pytorch_model.bin": torch_zip({"w": Tensor("0", (2,))}), "config.json": "{}"}
    found = read(write(tmp_path / "model", files))
    assert (found.format, found.status, found.resumable) == ("torch_save", Status.COMPLETE, False)
    assert {code for code, _ in alarms(found)} == {"optimizer_missing"}


def test_safetensors_with_a_torch_optimizer_beside_it_is_a_point_to_resume_from(tmp_path: Path) -> None:
    optimizer = torch_zip({"state": {0: {"exp_avg": Tensor("0", (2,))}}, "param_groups": []}, "optimizer")
    files: dict[str, bytes | str] = {"model.safetensors": safetensors_bytes({"w": b"1234"}), "optimizer.pt": optimizer}
    found = read(write(tmp_path / "step-3", files))
    assert (found.format, found.status, found.resumable) == ("safetensors", Status.COMPLETE, True)


def test_an_optimizer_without_an_entry_for_each_parameter_is_no_damage(tmp_path: Path) -> None:
    optimizer = torch_zip(
        {"state": {0: {"exp_avg": Tensor("0", (2,))}}, "param_groups": [{"params": [0, 1, 2]}]}, "optimizer"
    )
    files: dict[str, bytes | str] = {
        "model.safetensors": safetensors_bytes({name: b"1234" for name in "abc"}),
        "optimizer.pt": optimizer,
    }
    assert read(write(tmp_path / "step-3", files)).status is Status.COMPLETE


@pytest.mark.parametrize(
    "name",
    [
        "model (conflicted copy 2024-01-01).safetensors",
        "model.sync-conflict-20240101.safetensors",
        "model (1).safetensors",
    ],
)
def test_a_second_copy_that_a_synchroniser_left_is_not_loaded_and_no_damage(name: str, tmp_path: Path) -> None:
    files = {"model.safetensors": safetensors_bytes({"w": b"1234" * 8}), "config.json": "{}", name: b"x" * 100}
    found = read(write(tmp_path / "model", files))
    assert (found.status, alarms(found)) == (Status.COMPLETE, [("optimizer_missing", str(tmp_path / "model"))])


def test_checkpoints_in_a_hidden_folder_of_their_own_are_found(tmp_path: Path) -> None:
    for folder in (".checkpoints", ".cache"):
        copy_sample("huggingface/trainer-single/checkpoint-9", tmp_path / folder)
    assert [one.path for one in inventory(tmp_path).checkpoints] == [str(tmp_path / ".checkpoints/checkpoint-9")]
