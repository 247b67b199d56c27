"""NeMo 2: weights and context in a folder, and a marker beside it while a save is not finished."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory

from tests.agent.formats.damage import DATA, age

NAME = "llama--val_loss=2.34-epoch=0-step=99-consumed_samples=800.0-last"


def read(path: Path, grace_seconds: float = 0) -> ShardMap:
    return read_checkpoint(path, grace_seconds=grace_seconds)


def codes(shard_map: ShardMap) -> list[str]:
    return [found.code for found in shard_map.findings]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A NeMo checkpoint whose weights are a real Megatron save of step 100."""
    folder = tmp_path / "run" / NAME
    folder.mkdir(parents=True)
    shutil.copytree(DATA / "megatron/torch_dist/iter_0000100", folder / "weights")
    (folder / "context" / "nemo_tokenizer").mkdir(parents=True)
    (folder / "context" / "io.json").write_text("{}")
    (folder / "context" / "nemo_tokenizer" / "vocab.json").write_text("{}")
    age(tmp_path / "run")
    return folder


def test_weights_and_context_are_one_checkpoint(place: Path) -> None:
    found = read(place)
    assert (found.format, found.status, found.step, found.findings) == ("nemo", Status.COMPLETE, 99, ())
    assert (found.world_size, found.tp, found.resumable) == (4, 2, True)
    paths = {one.path for one in found.shards}
    assert {"weights/__0_0.distcp", "weights/metadata.json", "context/nemo_tokenizer/vocab.json"} <= paths
    assert all(one.shard.startswith("weights/") for one in found.tensors)


def test_the_scan_of_a_run_lists_it_once(place: Path) -> None:
    found = inventory(place.parent, grace_seconds=0)
    assert [(one.path, one.format, one.run) for one in found.checkpoints] == [(str(place), "nemo", "run")]


def test_a_stale_marker_beside_whole_weights_makes_it_uncommitted(place: Path) -> None:
    (place.parent / f"{NAME}-unfinished").touch()
    age(place.parent)
    found = read(place)
    assert (found.status, found.resumable) == (Status.UNCOMMITTED, False)
    assert codes(found) == ["temporary_left", "uncommitted"]
    assert found.findings[0].path == str(place.parent / f"{NAME}-unfinished")
    assert [one.status for one in inventory(place.parent, grace_seconds=0).checkpoints] == [Status.UNCOMMITTED]


def test_a_marker_while_the_weights_are_young_is_a_save_in_progress(place: Path) -> None:
    (place.parent / f"{NAME}-unfinished").touch()
    (place / "weights" / "__2_0.distcp").touch()
    assert read(place, grace_seconds=600).status is Status.IN_PROGRESS


def test_a_marker_over_missing_files_is_incomplete(place: Path) -> None:
    (place.parent / f"{NAME}-unfinished").touch()
    (place / "weights" / "__2_0.distcp").unlink()
    age(place.parent)
    found = read(place)
    assert found.status is Status.INCOMPLETE
    assert "weights/__2_0.distcp" in {one.path for one in found.findings}


def test_weights_that_were_never_begun_are_incomplete(place: Path) -> None:
    shutil.rmtree(place / "weights")
    (place / "weights").mkdir()
    age(place.parent)
    assert (read(place).format, read(place).status) == ("nemo", Status.INCOMPLETE)


def test_weights_without_megatrons_marker_are_uncommitted(place: Path) -> None:
    (place / "weights" / "metadata.json").unlink()
    assert read(place).status is Status.UNCOMMITTED


def test_weights_without_a_context_are_complete_with_a_warning(place: Path) -> None:
    shutil.rmtree(place / "context")
    found = read(place)
    assert (found.status, found.resumable, codes(found)) == (Status.COMPLETE, True, ["metadata_missing"])


@pytest.mark.parametrize(("step", "expected"), [(99, []), (100, []), (98, ["step_mismatch"]), (900, ["step_mismatch"])])
def test_a_name_may_count_one_step_less_than_the_state(place: Path, step: int, expected: list[str]) -> None:
    renamed = place.rename(place.parent / f"llama--val_loss=2.34-epoch=0-step={step}-consumed_samples=800.0")
    assert codes(read(renamed)) == expected


def test_a_distributed_checkpoint_of_nemo_1_has_the_same_marker(place: Path) -> None:
    older = place.parent / "megatron_gpt--val_loss=2.34-step=99-consumed_samples=800.0"
    shutil.move(place / "weights", older)
    assert (read(older).format, read(older).status, read(older).findings) == ("megatron_dist", Status.COMPLETE, ())
    (place.parent / f"{older.name}-unfinished").touch()
    age(place.parent)
    assert read(older).status is Status.UNCOMMITTED


def test_a_run_that_keeps_its_final_weights_beside_is_not_taken_for_nemo(tmp_path: Path) -> None:
    (tmp_path / "run" / "weights").mkdir(parents=True)
    (tmp_path / "run" / "weights" / "notes.txt").write_text("x")
    (tmp_path / "run" / "context").mkdir()
    assert inventory(tmp_path / "run", grace_seconds=0).checkpoints == ()
