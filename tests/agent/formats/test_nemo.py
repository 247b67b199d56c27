"""NeMo 2: weights and context in a folder, and a marker beside it while a save is not finished."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory

from tests.agent.formats.damage import DATA, age
from tests.agent.torch_factory import Tensor, torch_zip

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
    older = place.parent / "megatron_gpt--val_loss=2.34-step=100-consumed_samples=800.0"
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


# -- NeMo 1: files of every step in the folders of ranks ---------------------------------------------------------------
OLD = "megatron_gpt--val_loss=2.34-step={step}-consumed_samples=800.0"


def ranks(run: Path, names: list[str], *steps: int) -> Path:
    for name in names:
        (run / "checkpoints" / name).mkdir(parents=True)
        for step in steps:
            value = {"state_dict": {"w": Tensor("0", (4,))}, "optimizer_states": [{"m": Tensor("1", (4,))}]}
            data = torch_zip(value | {"global_step": step + 1, "lr_schedulers": [{}]})
            (run / "checkpoints" / name / f"{OLD.format(step=step)}.ckpt").write_bytes(data)
    age(run)
    return run / "checkpoints"


def steps_of(place: Path) -> list[tuple[int | None, str, Status, bool]]:
    found = inventory(place, grace_seconds=0).checkpoints
    return [(one.step, one.format, one.status, one.resumable) for one in found]


@pytest.mark.parametrize(
    "names",
    [
        ["mp_rank_00", "mp_rank_01"],
        ["tp_rank_00", "tp_rank_01"],
        [f"tp_rank_0{t}_pp_rank_00{p}" for t in range(2) for p in range(2)],
    ],
)
def test_each_step_over_the_folders_of_ranks_is_one_checkpoint(tmp_path: Path, names: list[str]) -> None:
    place = ranks(tmp_path / "run", names, 99, 199)
    assert steps_of(place) == [(199, "nemo", Status.COMPLETE, True), (99, "nemo", Status.COMPLETE, True)]
    found = read(place / "{mp_rank}" / f"{OLD.format(step=99)}.ckpt")
    assert (found.tp, len(found.shards), found.must_match) == (2, len(names), ("tp", "pp"))
    assert "step_mismatch" not in codes(found)


def test_a_rank_without_its_file_makes_only_that_step_incomplete(tmp_path: Path) -> None:
    place = ranks(tmp_path / "run", ["mp_rank_00", "mp_rank_01", "mp_rank_02"], 99, 199)
    (place / "mp_rank_01" / f"{OLD.format(step=199)}.ckpt").unlink()
    assert [(step, status) for step, _, status, _ in steps_of(place)] == [
        (199, Status.INCOMPLETE),
        (99, Status.COMPLETE),
    ]


def test_a_rank_whose_whole_folder_is_gone_is_missed(tmp_path: Path) -> None:
    place = ranks(tmp_path / "run", ["tp_rank_00_pp_rank_000", "tp_rank_01_pp_rank_000", "tp_rank_01_pp_rank_001"], 99)
    found = inventory(place, grace_seconds=0).checkpoints[0]
    assert found.status is Status.INCOMPLETE
    assert [one.path for one in found.findings if one.code == "shard_missing"] == [
        f"tp_rank_00_pp_rank_001/{OLD.format(step=99)}.ckpt"
    ]


def test_a_cut_file_of_a_rank_is_corrupt_and_a_marker_beside_is_uncommitted(tmp_path: Path) -> None:
    place = ranks(tmp_path / "run", ["mp_rank_00", "mp_rank_01"], 99, 199)
    path = place / "mp_rank_01" / f"{OLD.format(step=199)}.ckpt"
    path.write_bytes(path.read_bytes()[:200])
    (place / f"{OLD.format(step=99)}-unfinished").touch()
    age(place)
    assert [(step, status) for step, _, status, _ in steps_of(place)] == [
        (199, Status.CORRUPT),
        (99, Status.UNCOMMITTED),
    ]


def test_ranks_of_two_steps_under_one_name_are_damage(tmp_path: Path) -> None:
    place = ranks(tmp_path / "run", ["mp_rank_00", "mp_rank_01", "mp_rank_02"], 99)
    (place / "mp_rank_02" / f"{OLD.format(step=99)}.ckpt").write_bytes(torch_zip({"global_step": 50}))
    age(place)
    (found,) = inventory(place, grace_seconds=0).checkpoints
    assert found.status is Status.CORRUPT
    assert "mp_rank_02" in next(one.path for one in found.findings if one.code == "step_mismatch")
