from __future__ import annotations

import os
import pickle
import struct
import time
import zipfile
from pathlib import Path

import pytest
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import inventory, read_checkpoint
from muster_agent.jobs.own_sums import check_own_sums
from muster_agent.jobs.seal import seal

from tests.agent.formats.damage import KINDS, age, copy_sample, damage, files_under, written
from tests.agent.torch_factory import Call, Global, New, Tensor, huge_zip, payload, torch_legacy, torch_zip

MODEL = {"w": Tensor("0", (4, 8)), "b": Tensor("1", (8,), "bfloat16")}
OPTIMIZER = {"state": {0: {"exp_avg": Tensor("2", (4, 8))}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
SCHEDULER = {"base_lrs": [0.1], "last_epoch": 7, "_step_count": 8}
FULL = {"model": MODEL, "optimizer": OPTIMIZER, "scheduler": SCHEDULER, "step": 7}


def of_file(place: Path, value: object, name: str = "model.pt") -> ShardMap:
    return read_checkpoint(written(place, {name: torch_zip(value)}) / name)


def codes(shard_map: ShardMap) -> set[str]:
    return {found.code for found in shard_map.findings if found.severity is not Severity.NOTE}


def damage_codes(shard_map: ShardMap) -> set[str]:
    return {found.code for found in shard_map.findings if found.severity is Severity.DAMAGE}


NOTES = ("metadata.pkl", "metadata_5.pkl", "dataset_5.pkl", "run-config.pkl", "hparams.pkl", "training_history.pkl")


# -- what is inside ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "step", "roles"),
    [
        (FULL, 7, {Role.MODEL, Role.OPTIMIZER, Role.SCHEDULER}),
        (MODEL, None, {Role.MODEL}),
        ({"state_dict": MODEL, "global_step": 3, "epoch": 1}, 3, {Role.MODEL}),
        ({"model": MODEL, "optimizer": None, "iteration": 9}, 9, {Role.MODEL}),
        ({"model": MODEL, "optimizer_states": [], "step": 1}, 1, {Role.MODEL}),
        ({"model_state_dict": MODEL, "optimizer_state_dict": OPTIMIZER}, None, {Role.MODEL, Role.OPTIMIZER}),
        ({"net": MODEL, "opt": OPTIMIZER, "epoch": 3}, 3, {Role.MODEL, Role.OPTIMIZER}),
        ({"net": MODEL, "opt": {"lr": 0.1, "optimizer": "adam"}}, None, {Role.MODEL}),
        ({"model": MODEL, "optimizer_config": {"lr": 1.0}, "optimizer_name": "adam"}, None, {Role.MODEL}),
        (
            {"app": {"model": MODEL, "optimizer": OPTIMIZER}, "rng_state": [1], "dataloader": {"position": 5}},
            None,
            {Role.MODEL, Role.OPTIMIZER, Role.RNG, Role.DATALOADER},
        ),
        ({"train_state": {"step": 12}, "model": MODEL}, 12, {Role.MODEL}),
    ],
)
def test_roles_and_step_come_from_the_values(tmp_path: Path, value: object, step: int | None, roles: set[Role]) -> None:
    shard_map = of_file(tmp_path, value)
    assert (shard_map.format, shard_map.status, shard_map.step) == ("torch_save", Status.COMPLETE, step)
    assert shard_map.resumable is (Role.OPTIMIZER in roles)
    missing = {"optimizer": "optimizer_missing", "rng": "rng_missing", "dataloader": "dataloader_missing"}
    if Role.OPTIMIZER in roles:
        assert codes(shard_map) == {missing[role] for role in missing if role not in roles}


@pytest.mark.parametrize(
    "counters",
    [
        {"iter_num": 5000},
        {"step_count": 5000, "epoch": 2},
        {"iter_num": 20000, "step_count": 5000},
        {"trainer_state": {"completed_steps": 5000}},
        {"extra_state": {"train_iterator": {"epoch": 2}}, "optimizer_history": [{"num_updates": 5000}]},
        {"last_optimizer_state": {"num_updates": 5000}},
        {"batch_idx_train": 5000},
        {"step": 5000.0},
        {"step": Tensor("7", (), "int64")},
        {"step": Tensor("7", (1,), "int64")},
    ],
)
def test_the_step_is_found_under_the_names_that_scripts_give_it(tmp_path: Path, counters: dict[str, object]) -> None:
    data = torch_zip({"model": MODEL, "optimizer": OPTIMIZER, **counters})
    written(tmp_path, {"ckpt.pt": data.replace(payload(Tensor("7", (), "int64")), (5000).to_bytes(8, "little"))})
    shard_map = read_checkpoint(tmp_path / "ckpt.pt")
    assert (shard_map.step, shard_map.resumable) == (5000, True)
    assert not any("epoch" in found.detail for found in shard_map.findings)


def test_a_step_that_is_no_whole_number_is_none(tmp_path: Path) -> None:
    assert of_file(tmp_path, {"model": MODEL, "optimizer": OPTIMIZER, "step": 0.5}).step is None


def test_an_epoch_keeps_the_order_where_nothing_else_does_and_says_so(tmp_path: Path) -> None:
    state = {"model": MODEL, "optimizer": OPTIMIZER}
    files = {"last.pt": torch_zip({**state, "epoch": 57}), "epoch10.pt": torch_zip({**state, "epoch": 10})}
    last, tenth = inventory(written(tmp_path, files)).checkpoints
    assert (last.step, tenth.step) == (57, 10)
    assert any("counts epochs" in found.detail and found.severity is Severity.NOTE for found in last.findings)


def test_epochs_beside_files_numbered_by_steps_are_no_steps(tmp_path: Path) -> None:
    state = {"model": MODEL, "optimizer": OPTIMIZER, "epoch": 2}
    files = {"checkpoint-4000.pt": torch_zip({**state, "step": 4000}), "epoch-2.pt": torch_zip(state)}
    found = {Path(one.path).name: one.step for one in inventory(written(tmp_path, files)).checkpoints}
    assert found == {"checkpoint-4000.pt": 4000, "epoch-2.pt": None}


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint_900.pth.tar", 900),
        ("model_best.pth.tar", None),
        ("state.tar", None),
        ("net.torch", None),
        ("ckpt-12.chkpt", 12),
        ("step_7.PT", 7),
        ("best.model", None),
        ("checkpoint_1000", 1000),
        ("best_model", None),
    ],
)
def test_files_of_torch_save_are_found_under_the_endings_that_scripts_give_them(
    tmp_path: Path, name: str, step: int | None
) -> None:
    big = {"model": {"w": Tensor("0", (64, 64))}, "optimizer": OPTIMIZER}
    (shard_map,) = inventory(written(tmp_path / "run", {name: torch_zip(big)})).checkpoints
    assert (shard_map.format, shard_map.status, shard_map.step) == ("torch_save", Status.COMPLETE, step)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("tokenizer.model", b"\n\x0e\n\x05<unk>" * 500),
        ("model.py", b"import torch\n" * 500),
        ("last_run", b"some words of a log\n" * 500),
        ("model.zip", b"PK\x03\x04" + bytes(3000)),
        ("best", b"x"),
        ("index", bytes(range(256)) * 9),
        ("train.bin", bytes(range(256)) * 9),
        ("tokens_003.npz", bytes(range(256)) * 9),
        *((name, pickle.dumps({"step": 5, "variant": {"lr": 0.1}})) for name in NOTES),
    ],
)
def test_files_that_only_lie_beside_checkpoints_are_not_taken_for_some(tmp_path: Path, name: str, data: bytes) -> None:
    found = inventory(written(tmp_path / "run", {name: data, "step_5.pt": torch_zip(FULL)})).checkpoints
    assert [Path(one.path).name for one in found] == ["step_5.pt"]


@pytest.mark.parametrize(
    "files",
    [
        {"weights.12.h5": b"something else" + bytes(900)},
        {"model_3.pdparams": b"\x01" * 900},
        {"checkpoint-30.tar.gz": b"\x1f\x8b" + bytes(900)},
        {"run_step_30.zip": b"PK\x03\x04" + bytes(900)},
    ],
)
def test_checkpoints_of_frameworks_that_are_not_read_are_listed_as_unknown(
    tmp_path: Path, files: dict[str, bytes]
) -> None:
    (shard_map,) = inventory(written(tmp_path / "run", files)).checkpoints
    assert (shard_map.format, shard_map.status, shard_map.resumable) == ("unknown", Status.UNKNOWN, False)


def test_a_counter_kept_as_text_beside_the_states_is_no_cut_file(tmp_path: Path) -> None:
    parts = {"model.ckpt": torch_zip(MODEL), "optimizer.ckpt": torch_zip(OPTIMIZER)}
    text = {"counter.ckpt": b"5", "brain.ckpt": b"avg_train_loss: 0.5\nstep: 9\n"}
    (shard_map,) = inventory(written(tmp_path / "CKPT+2024-01-01+00-00-00+00", {**parts, **text})).checkpoints
    assert (shard_map.status, shard_map.resumable, damage_codes(shard_map)) == (Status.COMPLETE, True, set())
    cut = read_checkpoint(written(tmp_path / "CKPT+2024-01-01+00-00-00+00", {"model.ckpt": b"5"}))
    assert cut.resumable is False


def test_a_file_that_holds_no_training_state_is_not_judged(tmp_path: Path) -> None:
    shard_map = of_file(tmp_path, {"best_score": Tensor("9", ()), "note": "x"})
    assert (shard_map.status, damage_codes(shard_map)) == (Status.UNKNOWN, set())


def test_a_model_saved_as_an_object_is_a_model_with_a_note(tmp_path: Path) -> None:
    shard_map = of_file(tmp_path, {"model": New(Global("models.yolo", "Model"), {"w": Tensor("0", (4,))}), "epoch": -1})
    assert (shard_map.status, shard_map.shards[0].role) == (Status.COMPLETE, Role.MODEL)
    assert "custom_globals" in {found.code for found in shard_map.findings}


def test_code_in_a_file_keeps_it_from_being_resumed_but_not_from_being_listed(tmp_path: Path) -> None:
    value = {**FULL, "hook": Call(Global("os", "system"), ("true",))}
    shard_map = of_file(tmp_path, value)
    assert (shard_map.status, shard_map.step, shard_map.resumable) == (Status.COMPLETE, 7, False)
    assert damage_codes(shard_map) == {"metadata_unsafe"}


def test_the_hostile_sample_is_named_and_its_step_is_readable() -> None:
    shard_map = read_checkpoint(Path(__file__).parents[2] / "data" / "hostile" / "reduce-eval.pt")
    assert (shard_map.step, shard_map.resumable, damage_codes(shard_map)) == (3, False, {"metadata_unsafe"})
    assert "builtins.eval" in shard_map.findings[0].detail


def test_tensors_lie_where_they_are_said_to(tmp_path: Path) -> None:
    shard_map = of_file(tmp_path, FULL)
    assert {(tensor.name, tensor.role) for tensor in shard_map.tensors} == {
        ("model.w", Role.MODEL),
        ("model.b", Role.MODEL),
        ("optimizer.state.0.exp_avg", Role.OPTIMIZER),
    }


def test_a_legacy_file_is_a_checkpoint_like_any_other(tmp_path: Path) -> None:
    shard_map = read_checkpoint(written(tmp_path, {"old.pth": torch_legacy(FULL)}) / "old.pth")
    assert (shard_map.status, shard_map.step, shard_map.resumable) == (Status.COMPLETE, 7, True)


def test_a_legacy_file_with_a_large_pickle_is_read_apart(tmp_path: Path) -> None:
    data = torch_legacy({**FULL, "log": ["x" * 1000] * 3000})
    (shard_map,) = inventory(written(tmp_path, {"old.bin": data})).checkpoints
    assert (shard_map.status, shard_map.step) == (Status.COMPLETE, 7)


def test_an_archive_beyond_four_gib_is_complete(tmp_path: Path) -> None:
    state = {"model": Tensor("0", (5, 1 << 30), "bfloat16"), "step": 3}
    huge_zip(tmp_path / "big.pt", state, lambda tensor: tensor.size_bytes)
    age(tmp_path)
    shard_map = read_checkpoint(tmp_path / "big.pt")
    assert (shard_map.status, shard_map.step) == (Status.COMPLETE, 3)
    assert shard_map.tensors == () or shard_map.tensors[0].length_bytes == 5 << 31


# -- files that are none -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.pt", b"\x93NUMPY\x01\x00v\x00 and more"),
        ("x.bin", b"anything"),
        ("tar.pt", b"n" * 257 + b"ustar" + bytes(250)),
    ],
)
def test_what_is_not_torch_stays_unknown(tmp_path: Path, name: str, data: bytes) -> None:
    shard_map = read_checkpoint(written(tmp_path, {name: data}) / name)
    assert (shard_map.format, shard_map.status, damage_codes(shard_map)) == ("unknown", Status.UNKNOWN, set())


@pytest.mark.parametrize(
    "data",
    [b"version https://git-lfs.github.com/spec/v1\n", b"<html>404</html>", b'{"error": "x"}', bytes(5000), b"PK"],
)
def test_what_stands_in_for_a_file_is_damage(tmp_path: Path, data: bytes) -> None:
    shard_map = read_checkpoint(written(tmp_path, {"model.pt": data}) / "model.pt")
    assert (shard_map.status, len(damage_codes(shard_map))) == (Status.CORRUPT, 1)


# -- unfinished and damaged --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("data", [b"", torch_zip(FULL)[:900], torch_zip(FULL)[:900] + bytes(500)])
def test_a_file_without_its_end_is_in_progress_while_it_is_young(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "last.pt").write_bytes(data)
    young = read_checkpoint(tmp_path / "last.pt")
    later = read_checkpoint(tmp_path / "last.pt", now_unix_seconds=time.time() + 10_000)
    assert (young.status, damage_codes(young)) == (Status.IN_PROGRESS, set())
    assert (later.status, later.resumable) == (Status.CORRUPT, False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["zip.pt", "legacy.pt", "custom-class.pt"])
@pytest.mark.parametrize("seed", range(3))
def test_damage_to_a_real_file_is_found(tmp_path: Path, name: str, kind: str, seed: int) -> None:
    place = copy_sample("torch", tmp_path)
    done = damage(place / name, kind, seed)
    shard_map = next((one for one in inventory(place).checkpoints if one.path.endswith(name)), None)
    if kind == "delete":
        assert shard_map is None
    elif kind != "flip_head" and (name, kind) != ("legacy.pt", "zero"):
        assert shard_map is not None and shard_map.status is Status.CORRUPT, done
        assert all(found.path == name for found in shard_map.findings if found.severity is Severity.DAMAGE)


# -- folders -----------------------------------------------------------------------------------------------------------
def test_a_step_folder_is_the_sum_of_its_files(tmp_path: Path) -> None:
    place = written(
        tmp_path / "run" / "step-7",
        {
            "model.pt": torch_zip(MODEL),
            "optimizer.pt": torch_zip(OPTIMIZER),
            "rng.pt": torch_zip([1]),
            "notes.txt": b"x",
        },
    )
    shard_map = read_checkpoint(place)
    assert (shard_map.format, shard_map.status, shard_map.step, shard_map.resumable) == (
        "torch_save",
        Status.COMPLETE,
        7,
        True,
    )
    assert {shard.path: shard.role for shard in shard_map.shards} == {
        "model.pt": Role.MODEL,
        "optimizer.pt": Role.OPTIMIZER,
        "rng.pt": Role.RNG,
        "notes.txt": Role.OTHER,
    }


def test_weights_and_scheduler_without_the_optimizer_are_no_point_to_resume_from(tmp_path: Path) -> None:
    place = written(tmp_path / "checkpoint-40", {"backbone.pt": torch_zip(MODEL), "scheduler.pt": torch_zip(SCHEDULER)})
    shard_map = read_checkpoint(place)
    assert (shard_map.status, shard_map.resumable, damage_codes(shard_map)) == (Status.COMPLETE, False, set())
    assert "optimizer_missing" in codes(shard_map)


def test_parts_that_lie_in_folders_of_their_own_are_read_too(tmp_path: Path) -> None:
    files = {"trainer/model.pt": torch_zip(MODEL), "trainer/optimizer.pt": torch_zip(OPTIMIZER), "data/loader.pt": b""}
    shard_map = read_checkpoint(written(tmp_path / "step_8", files))
    assert (shard_map.step, shard_map.status) == (8, Status.CORRUPT)
    assert [found.path for found in shard_map.findings if found.severity is Severity.DAMAGE] == ["data/loader.pt"]


def test_files_of_two_saves_in_one_folder_are_told(tmp_path: Path) -> None:
    files = {
        "model.pt": torch_zip({"model": MODEL, "step": 7}),
        "state.pt": torch_zip({"optimizer": OPTIMIZER, "step": 6}),
    }
    shard_map = read_checkpoint(written(tmp_path / "step-7", files))
    assert "step_mismatch" in codes(shard_map)


def test_epoch_folders_of_empty_files_are_corrupt_and_the_older_one_is_whole(tmp_path: Path) -> None:
    whole = {"model.pt": torch_zip(MODEL), "optimizer.pt": torch_zip(OPTIMIZER)}
    for epoch, files in {418: whole, 420: dict.fromkeys(whole, b""), 422: dict.fromkeys(whole, b"")}.items():
        written(tmp_path / "run" / f"epoch{epoch}", files)
    found = {one.path.rsplit("/", 1)[1]: one for one in inventory(tmp_path / "run").checkpoints}
    assert {name: one.status for name, one in found.items()} == {
        "epoch422": Status.CORRUPT,
        "epoch420": Status.CORRUPT,
        "epoch418": Status.COMPLETE,
    }
    assert damage_codes(found["epoch422"]) == {"shard_empty"}
    assert found["epoch418"].resumable


def test_a_gap_in_the_ranks_is_named(tmp_path: Path) -> None:
    files = {f"model_rank{rank}.pt": torch_zip(MODEL) for rank in (0, 1, 3)}
    shard_map = read_checkpoint(written(tmp_path / "step-7", files))
    assert (shard_map.status, shard_map.world_size) == (Status.INCOMPLETE, 4)
    assert [(found.code, found.path) for found in shard_map.findings if found.severity is Severity.DAMAGE] == [
        ("shard_missing", "model_rank2.pt")
    ]


def test_ranks_of_different_parts_may_differ(tmp_path: Path) -> None:
    files = {f"model_tp_rank{rank}.pt": torch_zip(MODEL) for rank in range(2)}
    files |= {f"optimizer_rank{rank:02d}.pt": torch_zip(OPTIMIZER) for rank in range(4)}
    shard_map = read_checkpoint(written(tmp_path / "step-7", files))
    assert (shard_map.status, damage_codes(shard_map)) == (Status.COMPLETE, set())


def test_a_rank_that_left_one_part_and_not_the_other_is_missed(tmp_path: Path) -> None:
    files = {f"model_rank_{rank}.pt": torch_zip(MODEL) for rank in range(4)}
    files |= {f"optimizer_rank_{rank}.pt": torch_zip(OPTIMIZER) for rank in range(3)}
    shard_map = read_checkpoint(written(tmp_path / "step-7", files))
    assert shard_map.status is Status.INCOMPLETE
    assert {one.path for one in shard_map.findings if one.code == "shard_missing"} == {"optimizer_rank_3.pt"}


def test_a_part_that_every_second_rank_writes_is_whole(tmp_path: Path) -> None:
    files = {f"model_rank_{rank}.pt": torch_zip(MODEL) for rank in range(2)}
    files |= {f"optimizer_rank_{rank}.pt": torch_zip(OPTIMIZER) for rank in range(4)}
    shard_map = read_checkpoint(written(tmp_path / "step-7", files))
    assert (shard_map.status, damage_codes(shard_map)) == (Status.COMPLETE, set())


def test_an_epochs_number_in_fairseqs_file_name_is_no_step(tmp_path: Path) -> None:
    state = {"args": None, "model": MODEL, "last_optimizer_state": OPTIMIZER, "extra_state": {"epoch": 2}}
    state["optimizer_history"] = [{"num_updates": 200}]
    shard_map = read_checkpoint(written(tmp_path, {"checkpoint2.pt": torch_zip(state)}) / "checkpoint2.pt")
    assert shard_map.step == 200 and "step_mismatch" not in codes(shard_map)


def test_a_folder_of_single_files_is_not_taken_for_one_checkpoint(tmp_path: Path) -> None:
    place = written(tmp_path / "run", {f"epoch_{epoch}.pt": torch_zip({**FULL, "step": epoch}) for epoch in (1, 2, 3)})
    assert [one.step for one in inventory(place).checkpoints] == [3, 2, 1]


def test_state_under_an_ending_of_its_own_is_looked_into(tmp_path: Path) -> None:
    parts = {"net_g.pth": torch_zip(MODEL), "training_state.state": torch_zip({"optimizers": [OPTIMIZER], "iter": 200})}
    shard_map = read_checkpoint(written(tmp_path / "200", parts))
    assert (shard_map.status, shard_map.step, shard_map.resumable) == (Status.COMPLETE, 200, True)
    other = read_checkpoint(written(tmp_path / "300", {**parts, "notes.state": b"some words\n" * 300}))
    assert (other.status, other.resumable) == (Status.COMPLETE, True)


def test_a_folder_that_holds_nothing_of_torch_stays_unknown(tmp_path: Path) -> None:
    shard_map = read_checkpoint(written(tmp_path / "step-3", {"weights.npz": b"x"}))
    assert (shard_map.format, shard_map.status) == ("unknown", Status.UNKNOWN)


def test_files_that_could_not_be_looked_at_are_not_missing(tmp_path: Path) -> None:
    place = written(tmp_path / "step-7", {"optimizer.pt": torch_zip(OPTIMIZER)})
    (place / "model.pt").symlink_to("/proc/1/environ")
    shard_map = read_checkpoint(place)
    assert (shard_map.status, "shard_missing" in codes(shard_map)) == (Status.UNREADABLE, False)


def test_every_file_of_the_samples_is_read() -> None:
    assert files_under(Path(__file__).parents[2] / "data" / "torch") == [
        "README.md",
        "custom-class.pt",
        "legacy.pt",
        "torchscript.pt",
        "zip.pt",
    ]


def test_a_changed_payload_is_whole_to_a_scan_and_damage_to_whoever_reads_every_byte(tmp_path: Path) -> None:
    """The end record and all sizes are right; only the member's CRC-32 tells, so a scan proves no more than that."""
    place = copy_sample("torch", tmp_path)
    file = place / "zip.pt"
    with zipfile.ZipFile(file) as archive:
        member = next(one for one in archive.infolist() if one.filename.endswith("/data/0"))
    data, seen = bytearray(file.read_bytes()), file.stat()
    begin = payload_of(data, member)
    data[begin : begin + member.file_size] = bytes(member.file_size)
    file.write_bytes(data)
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    listed = next(one for one in inventory(place).checkpoints if one.path == str(file))
    assert listed.status is Status.COMPLETE and not any(one.code == "digest_mismatch" for one in listed.findings)
    (found,) = check_own_sums(str(file)).findings
    assert (found.code, found.begin_byte, found.end_byte) == ("digest_mismatch", begin, begin + member.file_size)
    assert seal(str(file), write_beside=False).manifest is None


def payload_of(data: bytes | bytearray, member: zipfile.ZipInfo) -> int:
    """Where a stored member's bytes begin."""
    names, extra = struct.unpack_from("<HH", data, member.header_offset + 26)
    return member.header_offset + 30 + names + extra
