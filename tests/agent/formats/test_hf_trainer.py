from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory

from tests.agent.checkpoint_factory import safetensors_bytes
from tests.agent.formats.damage import DATA, age, copy_sample, damage, files_under, swap
from tests.agent.torch_factory import Tensor, torch_zip

DDP = "huggingface/trainer-ddp2/checkpoint-9"
SINGLE = "huggingface/trainer-single/checkpoint-9"
MODEL_ONLY = "huggingface/trainer-save-only-model/checkpoint-3"
OPTIMIZER = {"state": {0: {"exp_avg": Tensor("0", (2,))}}, "param_groups": []}
UNINSPECTED = {"config.json", "generation_config.json"}


def read(path: Path, grace_seconds: float = 0) -> ShardMap:
    return read_checkpoint(path, grace_seconds=grace_seconds)


def alarms(found: ShardMap) -> list[tuple[str, str]]:
    return [(one.code, one.path) for one in found.findings if one.severity is not Severity.NOTE]


def write(folder: Path, files: dict[str, object]) -> Path:
    """Weights as bytes, JSON as text, anything else as a file of torch.save under its own name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        if not isinstance(value, (bytes, str)):
            value = torch_zip(value, name.rsplit(".", 1)[0])
        (folder / name).write_bytes(value.encode() if isinstance(value, str) else value)
    age(folder)
    return folder


def saved(step: int = 25, **more: object) -> dict[str, object]:
    return {
        "model.safetensors": safetensors_bytes({"w": b"1234"}),
        "config.json": "{}",
        "optimizer.pt": OPTIMIZER,
        "scheduler.pt": {"last_epoch": step},
        "rng_state.pth": {"python": 1},
        "training_args.bin": {"no": "object"},
        "trainer_state.json": json.dumps({"global_step": step, **more}),
    }


@pytest.mark.parametrize(("name", "world_size"), [(SINGLE, 1), (DDP, 2)])
def test_a_real_checkpoint_is_complete_and_resumable(name: str, world_size: int) -> None:
    found = read(DATA / name)
    assert (found.format, found.status, found.resumable) == ("hf_trainer", Status.COMPLETE, True)
    assert (found.step, found.world_size) == (9, world_size)
    assert not alarms(found)
    roles = {shard.path: shard.role for shard in found.shards}
    assert roles["optimizer.pt"] is Role.OPTIMIZER
    assert roles["model.safetensors"] is Role.MODEL
    assert {one.role for one in found.tensors} >= {Role.MODEL, Role.OPTIMIZER, Role.RNG}


def test_a_model_saved_alone_is_whole_and_no_point_to_resume_from() -> None:
    found = read(DATA / MODEL_ONLY)
    assert (found.status, found.resumable) == (Status.COMPLETE, False)
    assert {code for code, _ in alarms(found)} == {"optimizer_missing"}


@pytest.mark.parametrize("kind", ["truncate", "zero", "empty", "delete", "extend"])
@pytest.mark.parametrize(("name", "file"), [(one, file) for one in (DDP, SINGLE) for file in files_under(DATA / one)])
def test_damage_to_any_file_of_state_is_found_and_named(tmp_path: Path, name: str, file: str, kind: str) -> None:
    if file in UNINSPECTED and kind in ("delete", "extend"):
        pytest.skip("whether a model needs it is not known")
    if file == "model.safetensors" and kind == "zero":
        pytest.skip("zeros may be the trained values; only a digest tells")
    folder = copy_sample(name, tmp_path)
    damage(folder / file, kind, seed=5)
    found = read(folder)
    if file == "training_args.bin" and kind == "delete":
        assert (found.status, found.resumable) == (Status.COMPLETE, True)
        return
    assert file in {path for _, path in alarms(found)} or "rng_missing" in dict(alarms(found)), found.findings
    if kind != "delete" and file not in UNINSPECTED and file != "trainer_state.json":
        assert found.status is Status.CORRUPT


def test_swapped_states_are_both_named(tmp_path: Path) -> None:
    folder = copy_sample(DDP, tmp_path)
    swap(folder / "rng_state_0.pth", folder / "rng_state_1.pth")
    swap(folder / "optimizer.pt", folder / "scheduler.pt")
    found = read(folder)
    assert found.status is Status.CORRUPT
    assert {path for _, path in alarms(found)} == {"rng_state_0.pth", "rng_state_1.pth", "optimizer.pt", "scheduler.pt"}


def test_without_the_state_that_is_written_last_the_save_did_not_end(tmp_path: Path) -> None:
    write(tmp_path / "checkpoint-20", saved(20))
    files = {name: saved()[name] for name in ("model.safetensors", "config.json", "optimizer.pt")}
    write(tmp_path / "checkpoint-25", files)
    steps = {one.step: (one.status, one.resumable) for one in inventory(tmp_path, grace_seconds=0).checkpoints}
    assert steps == {25: (Status.INCOMPLETE, False), 20: (Status.COMPLETE, True)}


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_a_state_that_was_cut_means_that_the_save_did_not_end(tmp_path: Path, cut: int) -> None:
    folder = copy_sample(SINGLE, tmp_path)
    state = folder / "trainer_state.json"
    state.write_bytes(state.read_bytes()[:cut])
    found = read(folder)
    assert (found.status, found.resumable) == (Status.INCOMPLETE, False)
    assert ("metadata_missing", "trainer_state.json") in alarms(found)
    assert read(folder, grace_seconds=3600).status is Status.IN_PROGRESS


@pytest.mark.parametrize("content", [b"\0" * 900, b"[1]", b"<html>no</html>"])
def test_a_state_that_holds_something_else_is_damage(tmp_path: Path, content: bytes) -> None:
    folder = copy_sample(SINGLE, tmp_path)
    (folder / "trainer_state.json").write_bytes(content)
    assert read(folder).status is Status.CORRUPT


def test_a_folder_with_nothing_but_configuration_is_a_save_that_did_not_end(tmp_path: Path) -> None:
    folder = write(tmp_path / "checkpoint-25", {"config.json": "{}"})
    found = read(folder)
    assert (found.format, found.status, found.step) == ("hf_trainer", Status.INCOMPLETE, 25)
    os.utime(folder / "config.json")
    assert read(folder, grace_seconds=3600).status is Status.IN_PROGRESS


def test_weights_and_configuration_alone_are_a_whole_model(tmp_path: Path) -> None:
    files = {"adapter_model.safetensors": safetensors_bytes({"w": b"1234"}), "adapter_config.json": "{}"}
    found = read(write(tmp_path / "checkpoint-1000", files))
    assert (found.status, found.resumable, found.step) == (Status.COMPLETE, False, 1000)
    assert {code for code, _ in alarms(found)} == {"optimizer_missing"}


def test_a_step_inside_that_differs_from_the_name_is_told(tmp_path: Path) -> None:
    found = read(write(tmp_path / "checkpoint-30", saved(25)))
    assert (found.status, found.step) == (Status.COMPLETE, 25)
    assert [code for code, _ in alarms(found)] == ["step_mismatch"]


def test_without_its_scheduler_the_trainer_would_start_the_optimizer_anew(tmp_path: Path) -> None:
    files = saved()
    del files["scheduler.pt"]
    found = read(write(tmp_path / "checkpoint-25", files))
    assert (found.status, found.resumable) == (Status.COMPLETE, False)
    assert ("shard_missing", "scheduler.pt") in alarms(found)


def test_a_gap_among_the_random_states_is_a_warning(tmp_path: Path) -> None:
    files = saved()
    del files["rng_state.pth"]
    files |= {f"rng_state_{rank}.pth": {"python": rank} for rank in (0, 1, 3)}
    found = read(write(tmp_path / "checkpoint-25", files))
    assert (found.status, found.resumable, found.world_size) == (Status.COMPLETE, True, 4)
    assert alarms(found) == [("rng_missing", "rng_state_2.pth")]


def test_a_random_state_that_was_lost_at_the_end_is_missed_by_the_number_of_processes(tmp_path: Path) -> None:
    folder = copy_sample(DDP, tmp_path)
    (folder / "rng_state_1.pth").unlink()
    found = read(folder)
    assert (found.world_size, alarms(found)) == (2, [("rng_missing", "rng_state_1.pth")])


def test_old_saves_without_any_random_state_get_one_warning(tmp_path: Path) -> None:
    files = saved()
    del files["rng_state.pth"]
    found = read(write(tmp_path / "checkpoint-25", files))
    assert (found.status, found.resumable) == (Status.COMPLETE, True)
    assert [code for code, _ in alarms(found)] == ["rng_missing"]


def test_a_best_checkpoint_that_is_gone_is_a_warning(tmp_path: Path) -> None:
    found = read(write(tmp_path / "checkpoint-25", saved(best_model_checkpoint="/old/host/checkpoint-3")))
    assert (found.status, found.resumable) == (Status.COMPLETE, True)
    assert alarms(found) == [("pointer_dangling", "trainer_state.json")]


@pytest.mark.parametrize("best", ["/moved/since/checkpoint-20", "runs/checkpoint-20", "./checkpoint-25", None, ""])
def test_a_best_checkpoint_that_lies_beside_it_or_is_itself_is_no_alarm(tmp_path: Path, best: str | None) -> None:
    write(tmp_path / "checkpoint-20", saved(20))
    found = read(write(tmp_path / "checkpoint-25", saved(best_model_checkpoint=best)))
    assert not alarms(found)


def test_no_weights_at_all_is_incomplete(tmp_path: Path) -> None:
    files = saved()
    del files["model.safetensors"]
    found = read(write(tmp_path / "checkpoint-25", files))
    assert (found.status, alarms(found)) == (Status.INCOMPLETE, [("shard_missing", "model.safetensors")])


def test_the_folder_of_the_run_with_its_final_model_is_not_a_damaged_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    files = {
        name: saved()[name] for name in ("model.safetensors", "config.json", "training_args.bin", "trainer_state.json")
    }
    write(run, files)
    write(run / "checkpoint-20", saved(20))
    found = {os.path.basename(one.path): one.status for one in inventory(run, grace_seconds=0).checkpoints}
    assert found == {"run": Status.COMPLETE, "checkpoint-20": Status.COMPLETE}
    (run / "model.safetensors").unlink()
    assert [one.step for one in inventory(run, grace_seconds=0).checkpoints] == [20]


def test_steps_are_ordered_by_number_not_by_text(tmp_path: Path) -> None:
    for step in (9900, 10000, 500):
        write(tmp_path / f"checkpoint-{step}", saved(step))
    assert [one.step for one in inventory(tmp_path, grace_seconds=0).checkpoints] == [10000, 9900, 500]


# -- weights in other forms --------------------------------------------------------------------------------------------
def bins() -> dict[str, object]:
    """Weights in two torch files and their index."""
    names = [f"pytorch_model-{number:05d}-of-00002.bin" for number in (1, 2)]
    weight_map = {"a": names[0], "b": names[1]}
    return {
        names[0]: {"a": Tensor("0", (2,))},
        names[1]: {"b": Tensor("0", (2,))},
        "pytorch_model.bin.index.json": json.dumps({"metadata": {"total_size": 16}, "weight_map": weight_map}),
    }


def trained(weights: dict[str, object]) -> dict[str, object]:
    files = saved()
    del files["model.safetensors"]
    return {**files, **weights}


@pytest.mark.parametrize(
    "weights",
    [
        {"pytorch_model.bin": {"w": Tensor("0", (2,))}},
        {"pytorch_model_fsdp.bin": {"w": Tensor("0", (2,))}},
        {"adapter_model.bin": {"w": Tensor("0", (2,))}, "adapter_config.json": "{}"},
        bins(),
    ],
)
def test_weights_in_torch_files_count_too(tmp_path: Path, weights: dict[str, object]) -> None:
    found = read(write(tmp_path / "checkpoint-25", trained(weights)))
    assert (found.format, found.status, found.resumable) == ("hf_trainer", Status.COMPLETE, True)
    assert not alarms(found)
    assert any(one.role is Role.MODEL for one in found.tensors)


def test_indexed_torch_files_are_held_against_their_index(tmp_path: Path) -> None:
    first, second = "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"
    folder = write(tmp_path / "checkpoint-25", trained(bins()))
    swap(folder / first, folder / second)
    assert {path for _, path in alarms(read(folder))} == {first, second}
    (folder / first).unlink()
    found = read(folder)
    assert ("shard_missing", first) in alarms(found)


def test_the_same_weights_in_two_forms_are_counted_once(tmp_path: Path) -> None:
    files = {**saved(), "pytorch_model.bin": {"w": Tensor("0", (2,))}}
    found = read(write(tmp_path / "checkpoint-25", files))
    assert (found.status, alarms(found)) == (Status.COMPLETE, [("shard_orphaned", "pytorch_model.bin")])
    assert [shard.path for shard in found.shards if shard.role is Role.MODEL] == ["model.safetensors"]
    assert "pytorch_model.bin" not in {shard.path for shard in found.shards}


def test_sharded_state_of_fsdp_is_part_of_the_checkpoint(tmp_path: Path) -> None:
    folder = copy_sample("huggingface/accelerate-fsdp2/checkpoint-12", tmp_path)
    files = saved(12)
    for name in ("model.safetensors", "optimizer.pt", "training_args.bin", "rng_state.pth"):
        del files[name]
    write(folder, files)
    found = read(folder)
    assert (found.format, found.status, found.resumable) == ("hf_trainer", Status.COMPLETE, True)
    (folder / "optimizer_0" / ".metadata").unlink()
    found = read(folder)
    assert (found.status, found.resumable) == (Status.INCOMPLETE, False)


def test_the_tag_of_deepspeed_inside_decides_too(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-4"
    files = saved(4)
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        del files[name]
    files |= {f"rng_state_{rank}.pth": {"python": rank} for rank in range(2)}
    write(folder, files)
    shutil.copytree(DATA / "deepspeed/zero1-bf16/global_step4", folder / "global_step4")
    (folder / "latest").write_text("global_step4")
    found = read(folder)
    assert (found.format, found.status, found.resumable) == ("hf_trainer", Status.COMPLETE, True)
    assert (found.world_size, found.dp, "dp" in found.must_match) == (2, 2, True)
    assert not alarms(found)
    assert [one.step for one in inventory(tmp_path, grace_seconds=0).checkpoints] == [4]
    lost = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    (folder / "global_step4" / lost).unlink()
    found = read(folder)
    assert (found.status, alarms(found)) == (Status.INCOMPLETE, [("shard_missing", f"global_step4/{lost}")])


def with_deepspeed(root: Path) -> Path:
    files = {name: value for name, value in saved(4).items() if name in ("config.json", "trainer_state.json")}
    files |= {f"rng_state_{rank}.pth": {"python": rank} for rank in range(2)}
    folder = write(root / "checkpoint-4", files)
    shutil.copytree(DATA / "deepspeed/zero1-bf16/global_step4", folder / "global_step4")
    return folder


@pytest.mark.parametrize(
    ("text", "code"), [(None, "pointer_missing"), ("", "pointer_dangling"), ("global_step400", "pointer_dangling")]
)
def test_a_tag_of_deepspeed_that_latest_does_not_name_is_not_loaded(
    tmp_path: Path, text: str | None, code: str
) -> None:
    folder = with_deepspeed(tmp_path)
    if text is not None:
        (folder / "latest").write_text(text)
    found = read(folder)
    assert (found.status, found.resumable, [one for one, _ in alarms(found)]) == (Status.COMPLETE, False, [code])
    assert "latest" in found.not_resumable_reasons[0]


def test_a_damaged_single_file_beside_an_index_is_read_first_and_damages_the_checkpoint(tmp_path: Path) -> None:
    folder = copy_sample(SINGLE, tmp_path)
    single = (folder / "model.safetensors").read_bytes()
    for file in (DATA / "huggingface/save_pretrained-sharded").iterdir():
        shutil.copyfile(file, folder / file.name)
    (folder / "model.safetensors").write_bytes(single)
    assert read(folder).resumable
    (folder / "model.safetensors").write_bytes(single[:30])
    found = read(folder)
    assert (found.status, found.resumable) == (Status.CORRUPT, False)
    assert "model.safetensors" in {path for _, path in alarms(found)}


def test_adapters_with_names_of_their_own_are_weights(tmp_path: Path) -> None:
    folder = write(tmp_path / "checkpoint-20", saved(20))
    (folder / "model.safetensors").unlink()
    for name in ("policy", "reference"):
        adapter = {"adapter_model.safetensors": safetensors_bytes({"w": b"1234"}), "adapter_config.json": "{}"}
        write(folder / name, adapter)
    found = read(folder)
    assert (found.status, found.resumable) == (Status.COMPLETE, True) and not alarms(found)
    assert [one.step for one in inventory(tmp_path, grace_seconds=0).checkpoints] == [20]
    (folder / "reference" / "adapter_model.safetensors").unlink()
    found = read(folder)
    assert (found.status, found.resumable) == (Status.INCOMPLETE, False)
    assert alarms(found) == [("shard_missing", "reference/adapter_model.safetensors")]


def paddle_nlp(place: Path) -> Path:
    """What PaddleNLP's Trainer leaves: the Trainer's own files, with state that Paddle itself saved."""
    place.mkdir(parents=True)
    shutil.copy(DATA / "paddle" / "linear.pdparams", place / "model_state.pdparams")
    shutil.copy(DATA / "paddle" / "linear.pdopt", place / "optimizer.pdopt")
    (place / "scheduler.pdparams").write_bytes(b"\x80\x04}.")
    (place / "rng_state.pth").write_bytes(b"\x80\x04}.")
    (place / "trainer_state.json").write_text(json.dumps({"global_step": 10}))
    age(place)
    return place


def test_state_of_paddle_beside_the_trainers_files_is_read(tmp_path: Path) -> None:
    shard_map = read_checkpoint(paddle_nlp(tmp_path / "checkpoint-10"))
    assert (shard_map.step, shard_map.status, shard_map.resumable) == (10, Status.COMPLETE, True)


@pytest.mark.parametrize("name", ["model_state.pdparams", "optimizer.pdopt"])
def test_a_cut_file_of_paddle_is_damage(tmp_path: Path, name: str) -> None:
    place = paddle_nlp(tmp_path / "checkpoint-10")
    damage(place / name, "truncate")
    shard_map = read_checkpoint(place)
    assert shard_map.status is Status.CORRUPT and name in {found.path for found in shard_map.findings}


def test_a_number_that_counts_reports_is_no_other_step(tmp_path: Path) -> None:
    """Ray Train calls what a report brings `checkpoint_000001`, whatever lies in it."""
    place = copy_sample("huggingface/trainer-single/checkpoint-9", tmp_path)
    moved = tmp_path / "run" / "checkpoint_000001"
    moved.parent.mkdir()
    place.rename(moved)
    shard_map = read_checkpoint(moved)
    assert shard_map.step == 9 and "step_mismatch" not in {found.code for found in shard_map.findings}


def test_other_json_in_the_place_of_the_trainers_state_is_damage(tmp_path: Path) -> None:
    place = copy_sample("huggingface/trainer-single/checkpoint-9", tmp_path)
    swap(place / "config.json", place / "trainer_state.json")
    shard_map = read_checkpoint(place)
    assert shard_map.status is Status.CORRUPT
    assert "trainer_state.json" in {found.path for found in shard_map.findings if found.severity is Severity.DAMAGE}


@pytest.mark.parametrize("how", ["delete", "swap"])
def test_a_models_configuration_that_is_gone_or_exchanged_is_told(tmp_path: Path, how: str) -> None:
    place = copy_sample("huggingface/trainer-single/checkpoint-9", tmp_path)
    if how == "delete":
        (place / "config.json").unlink()
        age(place)
    else:
        swap(place / "config.json", place / "generation_config.json")
    shard_map = read_checkpoint(place)
    assert (shard_map.status, shard_map.resumable) == (Status.COMPLETE, True)
    assert "config.json" in {found.path for found in shard_map.findings if found.severity is Severity.WARNING}
