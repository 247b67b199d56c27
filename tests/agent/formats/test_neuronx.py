"""NeuronX Distributed's folders, made by hand from the names and files that its `save_checkpoint` writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory

from tests.agent.formats.damage import age, written
from tests.agent.torch_factory import Global, New, Tensor, torch_zip

REFERENCE = Global("torch_xla.utils.serialization", "TensorReference")


def ranked(dp: int, tp: int, pp: int) -> str:
    return f"dp_rank_{dp:02d}_tp_rank_{tp:02d}_pp_rank_{pp:02d}"


def checkpoint(place: Path, step: int = 100, *, dp: int = 2, tp: int = 2, pp: int = 2, xser: bool = False) -> Path:
    files = {
        "checkpoint": b"1",
        "scheduler.pt": torch_zip({"last_epoch": step}, "scheduler"),
        "user_content.pt": torch_zip({"total_steps": step, "global_step": step, "epoch": 0}, "user_content"),
        "done": b"1",
    }
    for stage in range(pp):
        for tensor in range(tp):
            files |= rank_files(f"model/{ranked(0, tensor, stage)}", xser=xser)
            for data in range(dp):
                files |= rank_files(f"optim/{ranked(data, tensor, stage)}", xser=xser)
    return written(place / f"step_{step}", files)


def rank_files(path: str, *, xser: bool) -> dict[str, bytes]:
    root = path.rpartition("/")[2]
    if not xser:
        return {f"{path}.pt": torch_zip({"w": Tensor("0", (4,))}, root)}
    info = {number: {"dtype": Global("torch", "float32"), "shape": (4,)} for number in (0, 1)}
    return {
        f"{path}.pt": torch_zip({f"w{number}": New(REFERENCE, {"tid": number}) for number in (0, 1)}, root),
        f"{path}.pt.info.pt": torch_zip(info, f"{root}.pt.info"),
        **{
            f"{path}.pt.tensors/tensor_{number}.pt": torch_zip(Tensor("0", (4,)), f"tensor_{number}") for number in info
        },
    }


def damaged(shard_map: ShardMap) -> set[str]:
    return {found.path for found in shard_map.findings if found.severity is Severity.DAMAGE}


@pytest.mark.parametrize("xser", [False, True])
def test_a_tag_is_whole_with_every_rank_of_model_and_optimizer(tmp_path: Path, xser: bool) -> None:
    checkpoint(tmp_path / "run", 100, xser=xser)
    checkpoint(tmp_path / "run", 200, xser=xser)
    age(tmp_path)
    found = inventory(tmp_path / "run").checkpoints
    assert [(one.step, one.format, one.status, one.resumable) for one in found] == [
        (200, "neuronx", Status.COMPLETE, True),
        (100, "neuronx", Status.COMPLETE, True),
    ]
    newest = found[0]
    assert (newest.world_size, newest.dp, newest.tp, newest.pp) == (8, 2, 2, 2)
    assert set(newest.must_match) == {"dp", "tp", "pp"}
    assert {one.code for one in newest.findings} <= {"dataloader_missing", "rng_missing", "custom_globals"}


def test_without_its_last_mark_a_save_has_not_ended(tmp_path: Path) -> None:
    """A removal takes the mark away first, so that what it leaves is never taken for whole either."""
    place = checkpoint(tmp_path / "run")
    (place / "done").unlink()
    age(place)
    (found,) = inventory(tmp_path / "run").checkpoints
    assert (found.status, found.resumable) == (Status.UNCOMMITTED, False)
    age(place, 5)
    (found,) = inventory(tmp_path / "run").checkpoints
    assert found.status is Status.IN_PROGRESS


@pytest.mark.parametrize(
    "name", [f"model/{ranked(0, 1, 0)}.pt", f"optim/{ranked(1, 0, 1)}.pt", f"optim/{ranked(0, 1, 1)}.pt"]
)
@pytest.mark.parametrize(("kind", "status"), [("delete", Status.INCOMPLETE), ("cut", Status.CORRUPT)])
def test_a_ranks_file_that_is_gone_or_cut_is_named(tmp_path: Path, name: str, kind: str, status: Status) -> None:
    place = checkpoint(tmp_path)
    if kind == "delete":
        (place / name).unlink()
    else:
        (place / name).write_bytes((place / name).read_bytes()[:-20])
    age(place)
    found = read_checkpoint(place)
    assert found.status is status and damaged(found) == {name}


@pytest.mark.parametrize("number", [0, 1])
def test_a_tensor_in_a_file_of_its_own_is_missed_by_what_its_rank_noted(tmp_path: Path, number: int) -> None:
    place = checkpoint(tmp_path, xser=True)
    name = f"optim/{ranked(1, 1, 0)}.pt.tensors/tensor_{number}.pt"
    (place / name).unlink()
    age(place)
    found = read_checkpoint(place)
    assert found.status is Status.INCOMPLETE and damaged(found) == {name}


def test_a_folder_of_tensors_that_is_gone_is_named(tmp_path: Path) -> None:
    place = checkpoint(tmp_path, xser=True)
    folder = place / f"model/{ranked(0, 0, 0)}.pt.tensors"
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    age(place)
    assert damaged(read_checkpoint(place)) == {f"model/{folder.name}"}


def test_an_optimizer_that_is_not_spread_over_data_parallel_ranks_fits_any_number_of_them(tmp_path: Path) -> None:
    found = read_checkpoint(checkpoint(tmp_path, dp=1))
    assert (found.status, found.dp, found.world_size, set(found.must_match)) == (
        Status.COMPLETE,
        None,
        None,
        {"tp", "pp"},
    )


def test_a_model_alone_is_complete_and_no_point_to_resume_from(tmp_path: Path) -> None:
    place = checkpoint(tmp_path)
    for file in (place / "optim").iterdir():
        file.unlink()
    (place / "optim").rmdir()
    age(place)
    found = read_checkpoint(place)
    assert (found.status, found.resumable) == (Status.COMPLETE, False)
    assert "optimizer_missing" in {one.code for one in found.findings}


def test_two_ranks_files_that_were_swapped_are_both_named(tmp_path: Path) -> None:
    place = checkpoint(tmp_path)
    first, second = place / f"optim/{ranked(0, 0, 0)}.pt", place / f"optim/{ranked(1, 0, 0)}.pt"
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)
    age(place)
    assert damaged(read_checkpoint(place)) == {f"optim/{first.name}", f"optim/{second.name}"}


def test_roles_follow_the_folders(tmp_path: Path) -> None:
    roles = {shard.path: shard.role for shard in read_checkpoint(checkpoint(tmp_path)).shards}
    assert roles[f"model/{ranked(0, 0, 0)}.pt"] is Role.MODEL
    assert roles[f"optim/{ranked(0, 0, 0)}.pt"] is Role.OPTIMIZER
    assert roles["scheduler.pt"] is Role.SCHEDULER
