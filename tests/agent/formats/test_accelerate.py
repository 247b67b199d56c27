from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory

from tests.agent.checkpoint_factory import safetensors_bytes
from tests.agent.formats.damage import DATA, age, copy_sample, damage, files_under, swap
from tests.agent.torch_factory import Tensor, torch_zip

SINGLE = "huggingface/accelerate-single/checkpoint_0"
FSDP = "huggingface/accelerate-fsdp2/checkpoint-12"
PER_RANK = "huggingface/accelerate-fsdp2-nodcp/checkpoint-12"


def read(path: Path) -> ShardMap:
    return read_checkpoint(path, grace_seconds=0)


def alarms(found: ShardMap) -> list[tuple[str, str]]:
    return [(one.code, one.path) for one in found.findings if one.severity is not Severity.NOTE]


def write(folder: Path, files: dict[str, object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        data = value if isinstance(value, bytes) else torch_zip(value, name.rsplit(".", 1)[0])
        (folder / name).write_bytes(data)
    age(folder)
    return folder


def saved(ranks: int = 1, step: int = 0) -> dict[str, object]:
    states = {f"random_states_{rank}.pkl": {"step": step, "random_state": 1} for rank in range(ranks)}
    return {
        "model.safetensors": safetensors_bytes({"w": b"1234"}),
        "optimizer.bin": {"state": {0: {"exp_avg": Tensor("0", (2,))}}, "param_groups": []},
        "scheduler.bin": {"last_epoch": 1},
        "sampler.bin": {"epoch": 0},
        **states,
    }


def test_a_real_single_process_save_is_complete_and_resumable() -> None:
    found = read(DATA / SINGLE)
    assert (found.format, found.status, found.resumable) == ("accelerate", Status.COMPLETE, True)
    assert (found.step, found.world_size) == (0, 1)
    assert [code for code, _ in alarms(found)] == ["dataloader_missing"]
    assert "counts the saves" in found.findings[0].detail


def test_real_sharded_state_of_fsdp_is_complete_and_resumable() -> None:
    found = read(DATA / FSDP)
    assert (found.format, found.status, found.resumable, found.step) == ("accelerate", Status.COMPLETE, True, 12)
    assert found.world_size == 2
    assert {one.role for one in found.tensors} == {Role.MODEL, Role.OPTIMIZER}


def test_a_real_file_per_rank_is_a_whole_model_of_two_ranks() -> None:
    found = read(DATA / PER_RANK)
    assert (found.format, found.status, found.resumable) == ("accelerate", Status.COMPLETE, False)
    assert (found.world_size, [shard.rank for shard in found.shards]) == (2, [0, 1])


@pytest.mark.parametrize("kind", ["truncate", "empty", "delete", "extend"])
@pytest.mark.parametrize(
    ("name", "file"), [(one, file) for one in (SINGLE, FSDP, PER_RANK) for file in files_under(DATA / one)]
)
def test_damage_to_any_file_is_found_and_named(tmp_path: Path, name: str, file: str, kind: str) -> None:
    if file == "scheduler.bin" and kind == "delete":
        pytest.skip("a script may save without a scheduler")
    if file.endswith(".metadata") and kind == "extend":
        pytest.skip("what follows a whole pickle is never read")
    folder = copy_sample(name, tmp_path)
    damage(folder / file, kind, seed=1)
    found = read(folder)
    expected = {"optimizer.bin": "optimizer_missing", "random_states_0.pkl": "rng_missing"}.get(file, "")
    named = any(
        file in path or (file.endswith(".metadata") and str(Path(file).parent) in path) for _, path in alarms(found)
    )
    assert named or (kind == "delete" and expected in dict(alarms(found))), found.findings


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        (PER_RANK, "pytorch_model_fsdp_0_rank0.bin", "pytorch_model_fsdp_0_rank1.bin"),
        (SINGLE, "optimizer.bin", "scheduler.bin"),
    ],
)
def test_swapped_files_are_both_named(tmp_path: Path, name: str, first: str, second: str) -> None:
    folder = copy_sample(name, tmp_path)
    swap(folder / first, folder / second)
    found = read(folder)
    assert found.status is Status.CORRUPT
    assert {path for code, path in alarms(found) if code == "ranges_gap"} == {first, second}


def test_a_rank_that_left_no_random_state_is_named(tmp_path: Path) -> None:
    files = saved(4)
    del files["random_states_1.pkl"]
    found = read(write(tmp_path / "checkpoint_3", files))
    assert (found.status, found.resumable, found.world_size) == (Status.COMPLETE, True, 4)
    assert alarms(found) == [("rng_missing", "random_states_1.pkl")]


def test_the_number_of_the_save_orders_the_checkpoints_whatever_the_counter_inside_says(tmp_path: Path) -> None:
    for number, counter in ((2, 700), (10, 30), (9, 0)):
        write(tmp_path / "checkpoints" / f"checkpoint_{number}", saved(step=counter))
    found = inventory(tmp_path, grace_seconds=0).checkpoints
    assert [one.step for one in found] == [10, 9, 2]
    assert not any(
        one.code == "step_mismatch" and one.severity is not Severity.NOTE for item in found for one in item.findings
    )


def test_weights_in_a_folder_of_their_own_belong_to_the_save(tmp_path: Path) -> None:
    files = saved()
    weights = files.pop("model.safetensors")
    folder = write(tmp_path / "checkpoint-500", files)
    write(folder / "unet", {"diffusion_pytorch_model.safetensors": weights})
    found = read(folder)
    assert (found.format, found.status, found.resumable, found.step) == ("accelerate", Status.COMPLETE, True, 500)
    assert [one.step for one in inventory(tmp_path, grace_seconds=0).checkpoints] == [500]
    damage(folder / "unet" / "diffusion_pytorch_model.safetensors", "truncate")
    assert ("shard_truncated", "unet/diffusion_pytorch_model.safetensors") in alarms(read(folder))


def test_state_without_any_weights_is_incomplete(tmp_path: Path) -> None:
    files = saved()
    del files["model.safetensors"]
    found = read(write(tmp_path / "checkpoint_1", files))
    assert (found.status, found.resumable) == (Status.INCOMPLETE, False)


def test_the_tag_of_deepspeed_inside_decides_too(tmp_path: Path) -> None:
    files = saved(2)
    for name in ("model.safetensors", "optimizer.bin"):
        del files[name]
    folder = write(tmp_path / "checkpoint_0", files)
    shutil.copytree(DATA / "deepspeed/zero1-bf16/global_step4", folder / "pytorch_model")
    (folder / "latest").write_text("pytorch_model")
    found = read(folder)
    assert (found.format, found.status, found.resumable, found.dp) == ("accelerate", Status.COMPLETE, True, 2)
    (folder / "pytorch_model" / "mp_rank_00_model_states.pt").unlink()
    assert read(folder).status is Status.INCOMPLETE


def test_another_tag_than_accelerates_own_is_only_found_by_latest(tmp_path: Path) -> None:
    files = {name: value for name, value in saved(2).items() if name not in ("model.safetensors", "optimizer.bin")}
    folder = write(tmp_path / "checkpoint_0", files)
    shutil.copytree(DATA / "deepspeed/zero1-bf16/global_step4", folder / "global_step4")
    (folder / "latest").write_text("global_step40")
    found = read(folder)
    assert not found.resumable and "pointer_dangling" in {code for code, _ in alarms(found)}
    (folder / "latest").unlink()
    assert not read(folder).resumable
    (folder / "global_step4").rename(folder / "pytorch_model")
    assert read(folder).resumable


@pytest.mark.parametrize(
    ("name", "note", "step"),
    [
        ("lora-step00000200-state", b'{"current_epoch": 1, "current_step": 200}', 200),
        ("lora-step00000200-state", None, 200),
        ("lora-000002-state", b'{"current_epoch": 2, "current_step": 640}', 640),
        ("lora-state", b'{"current_step": 900}', 900),
        ("lora-000002-state", b"[]", None),
    ],
)
def test_the_step_of_a_state_folder_is_what_its_note_says_or_its_name(
    tmp_path: Path, name: str, note: bytes | None, step: int | None
) -> None:
    files = saved() if note is None else {**saved(), "train_state.json": note}
    found = read(write(tmp_path / name, files))
    assert (found.step, found.status, found.resumable) == (step, Status.COMPLETE, True)
    assert "step_mismatch" not in {code for code, _ in alarms(found)}


def test_a_state_folder_whose_name_and_note_differ_says_so(tmp_path: Path) -> None:
    files = {**saved(), "train_state.json": b'{"current_step": 150}'}
    found = read(write(tmp_path / "lora-step00000200-state", files))
    assert (found.step, "step_mismatch" in {code for code, _ in alarms(found)}) == (150, True)
