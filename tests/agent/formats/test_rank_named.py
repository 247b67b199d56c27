from __future__ import annotations

import os
from pathlib import Path

import pytest
from muster_agent.formats.base import Severity, ShardMap, Status
from muster_agent.formats.detect import files_of, inventory, read_checkpoint

from tests.agent.formats.damage import KINDS, age, damage, swap, written
from tests.agent.torch_factory import Tensor, torch_zip

MODEL = torch_zip({"w": Tensor("0", (4, 8))})
OPTIMIZER = torch_zip({"state": {0: {"m": Tensor("0", (4, 8))}}, "param_groups": [{"lr": 0.1}]})
EXTRA = torch_zip({"lr_scheduler": {"last_epoch": 3}, "rng": {"cpu": [1]}})


def damaged(shard_map: ShardMap) -> set[tuple[str, str]]:
    return {(found.code, found.path) for found in shard_map.findings if found.severity is Severity.DAMAGE}


# -- verl --------------------------------------------------------------------------------------------------------------
def verl(place: Path, world: int = 3, part: str = "actor") -> Path:
    kinds = {"model": MODEL, "optim": OPTIMIZER, "extra_state": EXTRA}
    files = {
        f"{part}/{kind}_world_size_{world}_rank_{rank}.pt": data
        for kind, data in kinds.items()
        for rank in range(world)
    }
    return written(place, {**files, f"{part}/fsdp_config.json": b"{}", "data.pt": torch_zip({"position": 3})})


def test_a_step_of_verl_is_whole_with_every_rank_of_every_kind(tmp_path: Path) -> None:
    verl(tmp_path / "run" / "global_step_8")
    verl(tmp_path / "run" / "global_step_8", part="critic")
    (shard_map,) = inventory(tmp_path / "run").checkpoints
    assert (shard_map.format, shard_map.step, shard_map.status, shard_map.world_size) == ("verl", 8, Status.COMPLETE, 3)
    assert (shard_map.resumable, shard_map.must_match, len(shard_map.shards)) == (True, ("world_size",), 21)
    assert {found.code for found in shard_map.findings} == set()


def test_the_ranks_that_are_not_there_are_named(tmp_path: Path) -> None:
    place = verl(tmp_path / "global_step_8")
    os.unlink(place / "actor" / "optim_world_size_3_rank_1.pt")
    os.unlink(place / "actor" / "model_world_size_3_rank_2.pt")
    age(place)
    shard_map = read_checkpoint(place)
    assert shard_map.status is Status.INCOMPLETE
    assert damaged(shard_map) == {
        ("shard_missing", "actor/optim_world_size_3_rank_1.pt"),
        ("shard_missing", "actor/model_world_size_3_rank_2.pt"),
    }


def test_ranks_beyond_those_seen_are_known_from_the_name(tmp_path: Path) -> None:
    files = {f"actor/model_world_size_4_rank_{rank}.pt": MODEL for rank in (0, 1)}
    assert len(damaged(read_checkpoint(written(tmp_path / "global_step_8", files)))) == 2


def test_a_part_without_its_optimizer_is_no_point_to_resume_from(tmp_path: Path) -> None:
    files = {f"critic/model_world_size_2_rank_{rank}.pt": MODEL for rank in (0, 1)}
    place = verl(written(tmp_path / "global_step_8", files), world=2)
    shard_map = read_checkpoint(place)
    assert (shard_map.status, shard_map.resumable) == (Status.COMPLETE, False)
    assert "critic holds no optimizer state" in shard_map.not_resumable_reasons


def test_two_worlds_in_one_folder_are_told(tmp_path: Path) -> None:
    place = verl(verl(tmp_path / "global_step_8", world=2), world=3)
    assert "world_size_mismatch" in {code for code, _ in damaged(read_checkpoint(place))}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "flip_head"])
def test_damage_to_one_ranks_file_is_named(tmp_path: Path, kind: str) -> None:
    place = verl(tmp_path / "global_step_8")
    name = "actor/optim_world_size_3_rank_1.pt"
    damage(place / name, kind)
    age(place)
    shard_map = read_checkpoint(place)
    assert shard_map.status in (Status.CORRUPT, Status.INCOMPLETE)
    assert {path for _, path in damaged(shard_map)} == {name}


# -- Composer ----------------------------------------------------------------------------------------------------------
def composer_state(batch: int) -> bytes:
    counters = {"Timestamp": {"epoch": 0, "batch": batch}}
    optimizers = {"DecoupledAdamW": {"state": {0: {"m": Tensor("1", (4,))}}, "param_groups": [{"lr": 1.0}]}}
    state = {
        "model": {"w": Tensor("0", (4,))},
        "optimizers": optimizers,
        "timestamp": counters,
        "dataset_state": {"a": 1},
    }
    return torch_zip({"state": state, "rng": [{"python": [1]}]})


@pytest.fixture
def composer(tmp_path: Path) -> Path:
    place = tmp_path / "run"
    files = {f"ep0-ba{batch}-rank{rank}.pt": composer_state(batch) for batch in (10, 20) for rank in range(4)}
    written(place, files)
    for rank in range(4):
        (place / f"latest-rank{rank}.pt").symlink_to(f"ep0-ba20-rank{rank}.pt")
    return place


def test_the_steps_of_composer_share_a_folder(composer: Path) -> None:
    found = inventory(composer).checkpoints
    assert [(one.step, one.path.rsplit("/", 1)[1], one.status) for one in found] == [
        (20, "ep0-ba20-rank{rank}.pt", Status.COMPLETE),
        (10, "ep0-ba10-rank{rank}.pt", Status.COMPLETE),
    ]
    assert all((one.format, one.world_size, one.resumable) == ("composer", 4, True) for one in found)
    assert {found.code for one in found for found in one.findings} == set()


def test_a_family_is_read_by_its_path_too(composer: Path) -> None:
    shard_map = read_checkpoint(composer / "ep0-ba10-rank{rank}.pt")
    assert (shard_map.step, len(files_of(shard_map))) == (10, 4)
    assert len({(tensor.shard, tensor.name) for tensor in shard_map.tensors}) == 8


def test_a_rank_that_left_no_file_is_named(composer: Path) -> None:
    (composer / "ep0-ba20-rank1.pt").unlink()
    newest = next(one for one in inventory(composer).checkpoints if one.step == 20)
    assert (newest.status, damaged(newest)) == (Status.INCOMPLETE, {("shard_missing", "ep0-ba20-rank1.pt")})


def test_ranks_whose_files_were_swapped_between_steps_are_told(composer: Path) -> None:
    first, second = composer / "ep0-ba10-rank1.pt", composer / "ep0-ba20-rank1.pt"
    content = first.read_bytes(), second.read_bytes()
    first.write_bytes(content[1])
    second.write_bytes(content[0])
    age(composer)
    for shard_map in inventory(composer).checkpoints:
        assert "step_mismatch" in {found.code for found in shard_map.findings}


# -- fairseq and metaseq -----------------------------------------------------------------------------------------------
def fairseq(place: Path, stem: str, shards: int = 4) -> dict[str, bytes]:
    value = {
        "model": {"w": Tensor("0", (4,))},
        "last_optimizer_state": {"state": {0: {"m": Tensor("1", (4,))}}, "param_groups": [{"lr": 1.0}]},
        "optimizer_history": [{"num_updates": 22750}],
        "extra_state": {"train_iterator": {"epoch": 23}},
    }
    names = [f"{stem}-model_part-{part}-shard{shard}.pt" for part in range(2) for shard in range(shards)]
    return {name: torch_zip(value) for name in names}


def test_a_failed_save_and_an_emptied_last_one_are_told_apart(tmp_path: Path) -> None:
    files = fairseq(tmp_path, "checkpoint_22_20000") | fairseq(tmp_path, "checkpoint_23_22750")
    files |= fairseq(tmp_path, "checkpoint_last")
    files["checkpoint_23_22750-model_part-1-shard2.pt.tmp"] = files.pop("checkpoint_23_22750-model_part-1-shard2.pt")[
        :50
    ]
    files["checkpoint_last-model_part-0-shard0.pt"] = b""
    found = {one.path.rsplit("/", 1)[1].split("-")[0]: one for one in inventory(written(tmp_path, files)).checkpoints}
    assert {name: (one.format, one.step, one.status) for name, one in found.items()} == {
        "checkpoint_22_20000": ("fairseq", 22750, Status.COMPLETE),
        "checkpoint_23_22750": ("fairseq", 22750, Status.INCOMPLETE),
        "checkpoint_last": ("fairseq", 22750, Status.CORRUPT),
    }
    assert damaged(found["checkpoint_last"]) == {("shard_empty", "checkpoint_last-model_part-0-shard0.pt")}
    half = found["checkpoint_23_22750"]
    assert damaged(half) == {("shard_missing", "checkpoint_23_22750-model_part-1-shard2.pt")}
    assert "temporary_left" in {one.code for one in half.findings}
    assert found["checkpoint_22_20000"].world_size == 8


# -- others ------------------------------------------------------------------------------------------------------------
def test_any_names_with_step_and_rank_are_taken_together(tmp_path: Path) -> None:
    files = {f"state-step{step}-rank{rank:02d}.pt": MODEL for step in (5, 10) for rank in range(3)}
    del files["state-step10-rank01.pt"]
    found = inventory(written(tmp_path, files)).checkpoints
    assert [(one.step, one.status) for one in found] == [(10, Status.INCOMPLETE), (5, Status.COMPLETE)]
    assert damaged(found[0]) == {("shard_missing", "state-step10-rank01.pt")}


def test_ranks_whose_files_were_swapped_are_told(tmp_path: Path) -> None:
    names = [f"ep0-ba10-rank{rank}" for rank in range(3)]
    files = {f"{name}.pt": torch_zip({"w": Tensor("0", (4,))}, root=name) for name in names}
    place = written(tmp_path, files)
    assert damaged(read_checkpoint(place / "ep0-ba10-rank{rank}.pt")) == set()
    swap(place / "ep0-ba10-rank0.pt", place / "ep0-ba10-rank2.pt")
    shard_map = read_checkpoint(place / "ep0-ba10-rank{rank}.pt")
    assert shard_map.status is Status.CORRUPT
    assert {path for _, path in damaged(shard_map)} == {"ep0-ba10-rank0.pt", "ep0-ba10-rank2.pt"}


def test_files_for_each_part_of_a_step_are_taken_together(tmp_path: Path) -> None:
    names = {"model": MODEL, "ema_0.9999_": MODEL, "opt": OPTIMIZER}
    files = {f"{part}{step:06d}.pt": data for part, data in names.items() for step in (5000, 10000)}
    del files["opt010000.pt"]
    found = inventory(written(tmp_path, files)).checkpoints
    assert [(one.step, one.status, one.resumable) for one in found if one.resumable] == [(5000, Status.COMPLETE, True)]
    assert len(next(one for one in found if one.step == 5000).shards) == 3
    whole = read_checkpoint(tmp_path / "{part}005000.pt")
    assert {tensor.shard for tensor in whole.tensors} == {"model005000.pt", "ema_0.9999_005000.pt", "opt005000.pt"}


def test_an_optimizer_alone_is_no_point_to_resume_from(tmp_path: Path) -> None:
    (shard_map,) = inventory(written(tmp_path, {"optim_100.pt": OPTIMIZER})).checkpoints
    assert (shard_map.status, shard_map.not_resumable_reasons) == (Status.COMPLETE, ("it holds no model",))


def test_parts_of_one_model_over_ranks_make_their_folder_one_checkpoint(tmp_path: Path) -> None:
    files = {f"consolidated.{part:02d}.pth": MODEL for part in (0, 1, 3)}
    (shard_map,) = inventory(written(tmp_path / "llama", {**files, "params.json": b"{}"})).checkpoints
    assert (shard_map.status, damaged(shard_map)) == (Status.INCOMPLETE, {("shard_missing", "consolidated.02.pth")})


# -- a file of the model, and one of the optimizer for each rank -------------------------------------------------------
def with_ranked_optimizer(place: Path, steps: tuple[int, ...] = (100, 200)) -> Path:
    files = {f"model_{step:06d}.pt": MODEL for step in steps}
    files |= {f"optim_{step:06d}_rank{rank}.pt": OPTIMIZER for step in steps for rank in (0, 1)}
    return written(place, {**files, **{f"meta_{step:06d}.json": b"{}" for step in steps}})


@pytest.mark.parametrize("steps", [(100,), (100, 200)])
def test_a_model_and_the_optimizers_of_its_ranks_are_one_checkpoint_for_each_step(
    tmp_path: Path, steps: tuple[int, ...]
) -> None:
    found = inventory(with_ranked_optimizer(tmp_path, steps)).checkpoints
    assert sorted(one.step or 0 for one in found) == list(steps)
    for one in found:
        assert (one.status, one.resumable, one.world_size, len(one.shards)) == (Status.COMPLETE, True, 2, 4)


@pytest.mark.parametrize("lost", ["optim_000200_rank0.pt", "optim_000200_rank1.pt", "model_000200.pt"])
def test_a_file_that_one_of_the_steps_lost_is_named(tmp_path: Path, lost: str) -> None:
    with_ranked_optimizer(tmp_path)
    (tmp_path / lost).unlink()
    age(tmp_path)
    newest, oldest = inventory(tmp_path).checkpoints
    assert (newest.step, newest.status, oldest.status) == (200, Status.INCOMPLETE, Status.COMPLETE)
    assert ("shard_missing", lost) in damaged(newest)


def test_fewer_ranks_with_larger_parts_are_a_change_of_the_world_not_a_loss(tmp_path: Path) -> None:
    with_ranked_optimizer(tmp_path)
    (tmp_path / "optim_000200_rank1.pt").unlink()
    larger = {"state": {0: {"m": Tensor("0", (64, 64))}}, "param_groups": [{"lr": 0.1}]}
    written(tmp_path, {"optim_000200_rank0.pt": torch_zip(larger)})
    assert inventory(tmp_path).checkpoints[0].status is Status.COMPLETE


# -- a padded number before the rank, and two networks -----------------------------------------------------------------
def test_steps_told_by_a_padded_number_before_the_rank_are_not_mixed(tmp_path: Path) -> None:
    names = {step: [f"model_{step:07d}.rank_{rank}.pth" for rank in (0, 1)] for step in (1249, 2499)}
    files = {
        name: torch_zip(
            {"model": {"w": Tensor("0", (4, 4))}, "optimizer": {"state": {}, "param_groups": []}, "iteration": step}
        )
        for step, pair in names.items()
        for name in pair
    }
    pointers = {f"last_checkpoint.rank_{rank}": names[2499][rank].encode() for rank in (0, 1)}
    place = written(tmp_path / "run", {**files, **pointers})
    found = inventory(place)
    assert [(one.step, one.world_size, one.status, one.resumable) for one in found.checkpoints] == [
        (2499, 2, Status.COMPLETE, True),
        (1249, 2, Status.COMPLETE, True),
    ]
    assert {pointer.target for pointer in found.pointers} == set(names[2499])


def two_networks(place: Path, *names: str) -> Path:
    state = {"model": {"w": Tensor("0", (4, 4))}, "optimizer": {"state": {}, "param_groups": []}}
    return written(place, {f"{name}.pth": torch_zip({**state, "iteration": int(name[2:])}) for name in names})


def test_generator_and_discriminator_of_a_step_are_one_checkpoint(tmp_path: Path) -> None:
    found = inventory(two_networks(tmp_path / "run", "G_1000", "D_1000", "G_2000", "D_2000")).checkpoints
    assert [(one.step, one.status, len(one.shards)) for one in found] == [
        (2000, Status.COMPLETE, 2),
        (1000, Status.COMPLETE, 2),
    ]


def test_one_network_without_the_other_is_incomplete(tmp_path: Path) -> None:
    found = inventory(two_networks(tmp_path / "run", "G_1000", "D_1000", "G_2000")).checkpoints
    assert [(one.step, one.status) for one in found] == [(2000, Status.INCOMPLETE), (1000, Status.COMPLETE)]
    assert damaged(found[0]) == {("shard_missing", "D_2000.pth")}
