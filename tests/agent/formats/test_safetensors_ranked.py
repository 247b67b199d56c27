from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint

from tests.agent.checkpoint_factory import safetensors_bytes, write_checkpoint

NAME = "rank-00002-of-00004.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "run-a", 40, rank_bytes=600)


def read(path: Path, grace_seconds: float = 0) -> ShardMap:
    return read_checkpoint(path, grace_seconds=grace_seconds)


def codes(shard_map: ShardMap) -> list[str]:
    return [found.code for found in shard_map.findings]


def rewrite_marker(folder: Path, **changes: Any) -> None:
    path = folder / "checkpoint.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_committed_checkpoint_is_complete_and_resumable(folder: Path) -> None:
    found = read(folder)
    assert (found.status, found.resumable, found.findings) == (Status.COMPLETE, True, ())
    assert (found.run, found.step, found.world_size, found.format) == ("run-a", 40, 4, "safetensors")
    ranks = {shard.rank for shard in found.shards if shard.role is Role.MODEL}
    assert ranks == {0, 1, 2, 3}
    assert {tensor.role for tensor in found.tensors} == {Role.MODEL, Role.OPTIMIZER, Role.RNG, Role.DATALOADER}


def test_the_marker_promises_each_files_size(folder: Path) -> None:
    promised = {shard.path: shard.promised_bytes for shard in read(folder).shards if shard.rank is not None}
    assert promised == json.loads((folder / "checkpoint.json").read_text())["files"]


def test_a_rank_file_that_is_gone_makes_it_incomplete(folder: Path) -> None:
    (folder / NAME).unlink()
    found = read(folder, grace_seconds=3600)
    assert (found.status, codes(found), found.findings[0].path) == (Status.INCOMPLETE, ["shard_missing"], NAME)


def test_a_cut_file_is_corrupt_even_when_the_cut_is_recent(folder: Path) -> None:
    data = (folder / NAME).read_bytes()
    (folder / NAME).write_bytes(data[:-100])
    found = read(folder, grace_seconds=3600)
    assert (found.status, codes(found)) == (Status.CORRUPT, ["shard_truncated"])
    assert (found.findings[0].begin_byte, found.findings[0].end_byte) == (len(data) - 100, len(data))


def test_an_empty_and_a_grown_file_are_corrupt(folder: Path) -> None:
    (folder / NAME).write_bytes(b"")
    assert codes(read(folder)) == ["shard_empty"]
    write_checkpoint(folder.parent, 50, rank_bytes=600)
    grown = folder.parent / "step-00000050" / NAME
    grown.write_bytes(grown.read_bytes() + b"x")
    assert codes(read(grown.parent)) == ["shard_oversized"]


def test_a_sound_file_of_another_save_shows_by_its_size(folder: Path) -> None:
    other = write_checkpoint(folder.parent / "other", 41, rank_bytes=900)
    (folder / NAME).write_bytes((other / NAME).read_bytes())
    found = read(folder)
    assert (found.status, codes(found)) == (Status.CORRUPT, ["shard_oversized"])


def test_without_the_marker_it_is_running_then_uncommitted(folder: Path) -> None:
    (folder / "checkpoint.json").unlink()
    assert read(folder, grace_seconds=3600).status is Status.IN_PROGRESS
    found = read(folder)
    assert (found.status, found.resumable, codes(found)) == (Status.UNCOMMITTED, False, ["uncommitted"])
    assert found.world_size == 4


def test_without_the_marker_the_names_say_which_rank_is_missing(folder: Path) -> None:
    (folder / "checkpoint.json").unlink()
    (folder / NAME).unlink()
    found = read(folder)
    assert (found.status, codes(found)) == (Status.INCOMPLETE, ["shard_missing"])
    assert "rank 2 of 4" in found.findings[0].detail


def test_two_saves_of_different_world_sizes_without_a_marker_are_named(folder: Path) -> None:
    (folder / "checkpoint.json").unlink()
    (folder / "rank-00000-of-00002.safetensors").write_bytes((folder / NAME).read_bytes())
    found = read(folder)
    assert (found.status, found.world_size) == (Status.CORRUPT, 4)
    assert "world_size_mismatch" in codes(found)


def test_a_file_of_another_world_size_beside_the_marker_is_an_orphan(folder: Path) -> None:
    (folder / "rank-00000-of-00002.safetensors").write_bytes((folder / NAME).read_bytes())
    found = read(folder)
    assert (found.status, codes(found)) == (Status.COMPLETE, ["shard_orphaned"])


def test_a_marker_that_contradicts_its_files_about_the_ranks_is_damage(folder: Path) -> None:
    rewrite_marker(folder, world_size=8)
    assert (read(folder).status, codes(read(folder))) == (Status.CORRUPT, ["world_size_mismatch"])


def test_a_marker_without_some_ranks_file_is_incomplete(folder: Path) -> None:
    files = json.loads((folder / "checkpoint.json").read_text())["files"]
    files.pop(NAME)
    rewrite_marker(folder, files=files)
    assert read(folder).status is Status.INCOMPLETE


def test_the_step_inside_counts_where_the_folder_was_renamed(folder: Path) -> None:
    renamed = folder.rename(folder.parent / "step-99")
    found = read(renamed)
    assert (found.step, codes(found)) == (40, ["step_mismatch"])


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "other"},
        {"step": -1},
        {"step": "40"},
        {"world_size": 0},
        {"world_size": 10**9},
        {"files": {}},
        {"files": {NAME: -5}},
        {"files": {NAME: 1.5}},
        {"files": []},
    ],
)
def test_a_marker_with_impossible_values_is_corrupt(folder: Path, changes: dict[str, Any]) -> None:
    rewrite_marker(folder, **changes)
    assert (read(folder).status, codes(read(folder))) == (Status.CORRUPT, ["metadata_unreadable"])


@pytest.mark.parametrize("name", ["/etc/passwd", "../x.safetensors", "a/../../x"])
def test_a_marker_that_leads_out_of_the_folder_is_never_followed(folder: Path, name: str) -> None:
    rewrite_marker(folder, files={name: 5})
    assert (read(folder).status, codes(read(folder))) == (Status.UNREADABLE, ["path_unsafe"])


def test_optimizer_rng_and_loader_state_are_each_missed(tmp_path: Path) -> None:
    def written(step: int, *names: str) -> ShardMap:
        folder = tmp_path / f"step-{step}"
        folder.mkdir()
        data = safetensors_bytes({name: bytes(8) for name in names})
        file = "rank-00000-of-00001.safetensors"
        (folder / file).write_bytes(data)
        marker = {"format": "muster-ranked-safetensors", "step": step, "world_size": 1, "files": {file: len(data)}}
        (folder / "checkpoint.json").write_text(json.dumps(marker))
        return read(folder)

    assert codes(written(1, "model.w", "rng.s", "dataloader.p")) == ["optimizer_missing"]
    bare = written(2, "model.w", "optimizer.m")
    assert (codes(bare), bare.resumable) == (["rng_missing", "dataloader_missing"], True)


# -- while a save runs -------------------------------------------------------------------------------------------------
def test_a_rank_that_has_not_written_yet_is_no_damage_while_the_save_runs(folder: Path) -> None:
    (folder / "checkpoint.json").unlink()
    (folder / NAME).rename(folder / f"{NAME}.tmp")
    found = read(folder, grace_seconds=3600)
    assert found.status is Status.IN_PROGRESS
    assert {one.code: one.severity for one in found.findings} == {
        "shard_missing": Severity.NOTE, "temporary_left": Severity.NOTE, "in_progress": Severity.NOTE,
    }  # fmt: skip
    (missing,) = [one for one in found.findings if one.code == "shard_missing"]
    assert "Wait for the save to end" in missing.cure


def test_the_same_rank_is_damage_once_the_grace_period_is_over(folder: Path) -> None:
    (folder / "checkpoint.json").unlink()
    (folder / NAME).unlink()
    (missing,) = [one for one in read(folder).findings if one.code == "shard_missing"]
    assert missing.severity is Severity.DAMAGE and "Copy the file back" in missing.cure


@pytest.mark.parametrize(
    ("name", "format", "world_size"),
    [
        ("rank-00000-of-00004.safetensors.tmp", "safetensors", 4),
        ("model-00001-of-00002.safetensors.tmp", "unknown", None),
    ],
)
def test_a_save_that_has_only_begun_is_in_progress_then_incomplete(
    tmp_path: Path, name: str, format: str, world_size: int | None
) -> None:
    begun = tmp_path / "run" / "step-50"
    begun.mkdir(parents=True)
    (begun / name).write_bytes(b"x" * 10)
    found = read(begun, grace_seconds=3600)
    assert (found.status, found.format, found.step, found.world_size) == (Status.IN_PROGRESS, format, 50, world_size)
    assert "temporary_left" in codes(found)
    assert all(one.severity is Severity.NOTE for one in found.findings)
    assert read(begun).status is Status.INCOMPLETE and "temporary_left" in codes(read(begun))
