from __future__ import annotations

from pathlib import Path

import pytest
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory

from tests.agent.formats.damage import age, copy_sample, damage, files_under, swap
from tests.agent.torch_factory import Global, New, Tensor, torch_legacy, torch_zip

TAGS = (
    "deepspeed/zero0-fp32/global_step4",
    "deepspeed/zero1-bf16/global_step4",
    "deepspeed/zero2-fp32/global_step4",
    "deepspeed/zero3-bf16/global_step4",
)
DATA = Path(__file__).parents[2] / "data"


def read(path: Path) -> ShardMap:
    return read_checkpoint(path, grace_seconds=0)


def alarms(found: ShardMap) -> list[tuple[str, str]]:
    return [(one.code, one.path) for one in found.findings if one.severity is not Severity.NOTE]


def codes(found: ShardMap) -> set[str]:
    return {one.code for one in found.findings if one.severity is not Severity.NOTE}


def model(dp: int, mp: int = 1, **more: object) -> dict[str, object]:
    """What DeepSpeed 0.19 writes of the save as a whole into each file of the model."""
    return {
        "module": {"w": Tensor("0", (2,))},
        "optimizer": None,
        "param_shapes": [{}],
        "dp_world_size": dp,
        "mp_world_size": mp,
        "global_steps": 7,
        "ds_config": {"zero_optimization": {"stage": 1}},
        **more,
    }


def optim(dp: int) -> dict[str, object]:
    return {"optimizer_state_dict": {"partition_count": [dp], "state": {0: {"exp_avg": Tensor("0", (2,))}}}}


def write(folder: Path, files: dict[str, object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_bytes(torch_zip(value, name.removesuffix(".pt")))
    age(folder)
    return folder


def optims(
    dp: int, mp: int = 1, pattern: str = "zero_pp_rank_{dp}_mp_rank_{mp:02d}_optim_states.pt"
) -> dict[str, object]:
    return {pattern.format(dp=one, mp=two): optim(dp) for one in range(dp) for two in range(mp)}


@pytest.mark.parametrize("name", TAGS)
def test_a_real_tag_is_complete_and_resumable_with_its_ranks(name: str) -> None:
    found = read(DATA / name)
    assert (found.format, found.status, found.resumable, found.step) == ("deepspeed", Status.COMPLETE, True, 4)
    assert (found.world_size, found.dp, found.tp, found.pp) == (2, 2, 1, 1)
    assert not alarms(found)


def test_partitions_need_the_same_data_parallel_size_and_one_whole_optimizer_does_not() -> None:
    assert "dp" in read(DATA / TAGS[1]).must_match
    assert "dp" not in read(DATA / TAGS[0]).must_match


def test_tensors_are_found_where_they_lie() -> None:
    found = read(DATA / TAGS[1])
    bias = next(one for one in found.tensors if one.name.endswith("2.bias"))
    assert (bias.shape, bias.dtype, bias.role, bias.length_bytes) == ((4,), "bfloat16", Role.MODEL, 8)
    assert any(
        one.role is Role.OPTIMIZER and one.shard.endswith("rank_1_mp_rank_00_optim_states.pt") for one in found.tensors
    )


@pytest.mark.parametrize("kind", ["truncate", "zero", "empty", "delete", "extend"])
@pytest.mark.parametrize(("name", "file"), [(name, file) for name in TAGS for file in files_under(DATA / name)])
def test_damage_to_any_file_is_found_and_named(tmp_path: Path, name: str, file: str, kind: str) -> None:
    folder = copy_sample(name, tmp_path)
    damage(folder / file, kind, seed=3)
    found = read(folder)
    if len(files_under(folder)) == 0:
        assert found.status is Status.INCOMPLETE
        return
    assert file in {path for _, path in alarms(found)}, found.findings
    assert found.status is (Status.INCOMPLETE if kind == "delete" else Status.CORRUPT)
    assert not found.resumable


@pytest.mark.parametrize("name", TAGS[1:])
def test_two_ranks_files_that_were_swapped_are_both_named(tmp_path: Path, name: str) -> None:
    folder = copy_sample(name, tmp_path)
    first, second = sorted(folder.glob("*zero_pp_rank_*_optim_states.pt"))
    swap(first, second)
    found = read(folder)
    assert found.status is Status.CORRUPT
    assert {path for _, path in alarms(found)} == {first.name, second.name}


def test_every_missing_rank_is_listed(tmp_path: Path) -> None:
    files = {"mp_rank_00_model_states.pt": model(8), **optims(8)}
    del files["zero_pp_rank_4_mp_rank_00_optim_states.pt"]
    found = read(write(tmp_path / "global_step7", files))
    assert (found.status, found.world_size) == (Status.INCOMPLETE, 8)
    assert alarms(found) == [("shard_missing", "zero_pp_rank_4_mp_rank_00_optim_states.pt")]
    assert "rank 4 of 8" in found.findings[0].detail
    absent = next(shard for shard in found.shards if shard.size_bytes is None)
    assert (absent.rank, absent.role) == (4, Role.OPTIMIZER)


def test_optimizer_files_that_are_all_gone_are_missing_not_stage_0(tmp_path: Path) -> None:
    found = read(write(tmp_path / "global_step7", {"mp_rank_00_model_states.pt": model(2)}))
    assert (found.status, len(alarms(found))) == (Status.INCOMPLETE, 2)


def test_files_of_the_model_that_are_all_gone_are_missed_by_their_own_names(tmp_path: Path) -> None:
    folder = copy_sample("deepspeed/zero3-bf16/global_step4", tmp_path)
    lost = sorted(path.name for path in folder.glob("*_model_states.pt"))
    for name in lost:
        (folder / name).unlink()
    assert alarms(read(folder)) == [("shard_missing", name) for name in lost]


def test_the_last_rank_is_missed_even_where_no_file_of_the_model_can_be_read(tmp_path: Path) -> None:
    files = {"mp_rank_00_model_states.pt": model(3), **optims(3)}
    del files["zero_pp_rank_2_mp_rank_00_optim_states.pt"]
    folder = write(tmp_path / "global_step7", files)
    damage(folder / "mp_rank_00_model_states.pt", "truncate")
    found = read(folder)
    assert ("shard_missing", "zero_pp_rank_2_mp_rank_00_optim_states.pt") in alarms(found)


def test_files_of_an_earlier_save_with_more_ranks_are_left_over_not_damage(tmp_path: Path) -> None:
    files = {"mp_rank_00_model_states.pt": model(2), **optims(4)}
    found = read(write(tmp_path / "global_step7", files))
    assert (found.status, found.resumable, found.world_size) == (Status.COMPLETE, True, 2)
    assert codes(found) == {"shard_orphaned"}


@pytest.mark.parametrize(
    "pattern",
    [
        "zero_pp_rank_{dp}_mp_rank_{mp:02d}optim_states.pt",
        "bf16_zero_pp_rank_{dp}_mp_rank_{mp:02d}_optim_states.pt",
        "fp16_zero_pp_rank_{dp}_mp_rank_{mp:02d}_optim_states.pt",
    ],
)
def test_names_of_other_versions_and_precisions_are_known(tmp_path: Path, pattern: str) -> None:
    found = read(write(tmp_path / "best", {"mp_rank_00_model_states.pt": model(2), **optims(2, pattern=pattern)}))
    assert (found.format, found.status, found.step) == ("deepspeed", Status.COMPLETE, 7)
    assert not alarms(found)


def test_model_parallel_ranks_count_too(tmp_path: Path) -> None:
    degrees = {"checkpoint_parallel_dimensions": {"tp_degree": 2, "pp_degree": 1}}
    files = {f"mp_rank_{mp:02d}_model_states.pt": model(2, 2, **degrees) for mp in range(2)} | optims(2, 2)
    folder = write(tmp_path / "global_step7", files)
    found = read(folder)
    assert (found.status, found.world_size, found.dp, found.tp, found.pp) == (Status.COMPLETE, 4, 2, 2, 1)
    assert found.must_match == ("dp", "tp", "pp")
    (folder / "mp_rank_01_model_states.pt").unlink()
    assert alarms(read(folder)) == [("shard_missing", "mp_rank_01_model_states.pt")]


def pipeline(tmp_path: Path) -> Path:
    """Two stages of two layers each (a third layer has no parameters), with two tensor-parallel ranks."""
    degrees = {"checkpoint_parallel_dimensions": {"tp_degree": 2, "pp_degree": 2}}
    files: dict[str, object] = {}
    for mp in range(4):
        shapes = {f"{layer}.w": (2,) for layer in ((0, 1) if mp < 2 else (3, 4))}
        named = [{name: Tensor("0", shape) for name, shape in shapes.items()}]
        files[f"mp_rank_{mp:02d}_model_states.pt"] = model(1, 4, module=None, param_shapes=_sizes(named), **degrees)
    files |= optims(1, 4)
    files |= {
        f"layer_{layer:02d}-model_{tp:02d}-model_states.pt": {"w": Tensor("0", (2,))}
        for layer in (0, 1, 3, 4)
        for tp in range(2)
    }
    return write(tmp_path / "global_step7", files)


def _sizes(groups: list[dict[str, Tensor]]) -> list[dict[str, tuple[int, ...]]]:
    return [{name: tensor.shape for name, tensor in group.items()} for group in groups]


def test_a_pipeline_whose_layers_are_not_numbered_through_is_complete(tmp_path: Path) -> None:
    found = read(pipeline(tmp_path))
    assert (found.status, found.world_size, found.tp, found.pp) == (Status.COMPLETE, 4, 2, 2)
    assert not alarms(found)


def test_a_lost_layer_of_a_pipeline_is_named(tmp_path: Path) -> None:
    folder = pipeline(tmp_path)
    (folder / "layer_03-model_01-model_states.pt").unlink()
    assert alarms(read(folder)) == [("shard_missing", "layer_03-model_01-model_states.pt")]
    (folder / "layer_03-model_00-model_states.pt").unlink()
    found = read(folder)
    assert {path for _, path in alarms(found)} == {f"layer_03-model_{tp:02d}-model_states.pt" for tp in range(2)}


def test_lost_experts_are_named_by_the_count_in_the_model(tmp_path: Path) -> None:
    experts = {
        f"layer_{layer}_expert_{one}_mp_rank_00_model_states.pt": {"w": Tensor("0", (2,))}
        for layer in range(2)
        for one in range(4)
    }
    groups = {f"expp_rank_{one}_mp_rank_00_optim_states.pt": {"optimizer": None} for one in range(2)}
    files = {"mp_rank_00_model_states.pt": model(2, num_experts=[4, 4]), **optims(2), **experts, **groups}
    folder = write(tmp_path / "global_step7", files)
    assert not alarms(read(folder))
    (folder / "layer_1_expert_3_mp_rank_00_model_states.pt").unlink()
    (folder / "expp_rank_0_mp_rank_00_optim_states.pt").unlink()
    found = read(folder)
    assert found.status is Status.INCOMPLETE
    assert {path for _, path in alarms(found)} == {
        "layer_1_expert_3_mp_rank_00_model_states.pt",
        "expp_rank_0_mp_rank_00_optim_states.pt",
    }


def test_offloaded_state_belongs_to_the_checkpoint_and_is_there_for_every_rank(tmp_path: Path) -> None:
    folder = write(tmp_path / "global_step7", {"mp_rank_00_model_states.pt": model(2), **optims(2)})
    for rank in range(2):
        place = folder / "offloaded_tensors" / f"rank{rank}" / "optimizer"
        place.mkdir(parents=True)
        (place / "0.tensor.swp").write_bytes(b"state")
    age(folder)
    found = read(folder)
    assert not alarms(found)
    assert "offloaded_tensors/rank1/optimizer/0.tensor.swp" in {shard.path for shard in found.shards}
    (folder / "offloaded_tensors/rank1/optimizer/0.tensor.swp").unlink()
    (folder / "offloaded_tensors/rank1/optimizer").rmdir()
    (folder / "offloaded_tensors/rank1").rmdir()
    (folder / "offloaded_tensors/rank0/optimizer/0.tensor.swp").write_bytes(b"")
    assert codes(read(folder)) == {"shard_missing", "shard_empty"}


def test_files_of_the_form_before_zip_are_whole_too(tmp_path: Path) -> None:
    folder = write(tmp_path / "global_step7", {"mp_rank_00_model_states.pt": model(1), **optims(1)})
    (folder / "zero_pp_rank_0_mp_rank_00_optim_states.pt").write_bytes(torch_legacy(optim(1)))
    assert read(folder).status is Status.COMPLETE


def test_a_rank_that_names_code_keeps_the_structure_readable_but_not_the_checkpoint_resumable(tmp_path: Path) -> None:
    hostile = {**model(1), "client": New(Global("os", "system"), {"a": 1})}
    found = read(write(tmp_path / "global_step7", {"mp_rank_00_model_states.pt": hostile, **optims(1)}))
    assert (found.status, found.resumable, found.step) == (Status.COMPLETE, False, 7)
    assert "metadata_unsafe" in codes(found)


def test_latest_that_names_a_broken_tag_does_not_make_it_whole(tmp_path: Path) -> None:
    run = copy_sample("deepspeed/zero1-bf16", tmp_path)
    damage(run / "global_step4" / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", "truncate")
    steps = {one.step: one.status for one in inventory(run).checkpoints if one.format == "deepspeed"}
    assert steps == {4: Status.CORRUPT, 2: Status.COMPLETE}


def test_a_tag_and_its_conversion_are_two_checkpoints(tmp_path: Path) -> None:
    run = copy_sample("deepspeed/zero1-bf16", tmp_path)
    found = {(one.format, one.step) for one in inventory(run).checkpoints}
    assert found == {("deepspeed", 2), ("deepspeed", 4), ("deepspeed_universal", 4)}
