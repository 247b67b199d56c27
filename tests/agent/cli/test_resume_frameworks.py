"""Restarts of jobs of several frameworks, each from a state on storage that people really met, end to end."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.agent.cli.asking import alarms, ask, inventory, muster, reasons, said
from tests.agent.dcp_factory import Piece, write_dcp
from tests.agent.formats.damage import DATA, age, copy_sample
from tests.agent.formats.test_megatron_dist import build, loaders, train_state
from tests.agent.formats.test_rank_named import composer_state, fairseq, verl, written
from tests.agent.torch_factory import torch_zip

DAY_SECONDS = 86_400


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MUSTER_SERVER", "MUSTER_TOKEN", "MUSTER_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


# -- files of several steps in one folder ------------------------------------------------------------------------------
def test_composer_without_one_ranks_file_goes_back_to_the_batch_before(tmp_path: Path) -> None:
    files = {f"ep0-ba{batch}-rank{rank}.pt": composer_state(batch) for batch in (10, 20) for rank in range(4)}
    del files["ep0-ba20-rank2.pt"]
    run = written(tmp_path / "run", files)
    for rank in (0, 1, 3):
        (run / f"latest-rank{rank}.pt").symlink_to(f"ep0-ba20-rank{rank}.pt")
    answer = ask(run)
    assert (answer["step"], os.path.basename(answer["path"])) == (10, "ep0-ba10-rank{rank}.pt")
    assert inventory(run)["ep0-ba20-rank{rank}.pt"]["status"] == "incomplete"
    assert muster("resume-point", run, "--format", "path").stdout == f"{run}/ep0-ba10-rank{{rank}}.pt\n"


def test_fairseq_with_a_failed_save_and_an_emptied_last_one_goes_back_to_the_whole_one(tmp_path: Path) -> None:
    run = tmp_path / "run"
    files = fairseq(run, "checkpoint_22_22000") | fairseq(run, "checkpoint_23_22750") | fairseq(run, "checkpoint_last")
    lost = "checkpoint_23_22750-model_part-1-shard2.pt"
    files[f"{lost}.tmp"] = files.pop(lost)[:50]
    files["checkpoint_last-model_part-0-shard0.pt"] = b""
    written(run, files)
    answer = ask(run)
    assert os.path.basename(answer["path"]).startswith("checkpoint_22_22000")
    assert {one["status"] for one in inventory(run).values()} == {"complete", "incomplete", "corrupt"}


def test_verl_whose_tracker_names_a_step_without_all_ranks_goes_back(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for step in (6, 8):
        verl(run / f"global_step_{step}")
    (run / "global_step_8" / "actor" / "optim_world_size_3_rank_1.pt").unlink()
    (run / "latest_checkpointed_iteration.txt").write_text("8")
    age(run)
    answer = ask(run, "--world-size", 3)
    assert (answer["step"], answer["pointer_choice"]["step"]) == (6, 8)
    assert ("shard_missing", "actor/optim_world_size_3_rank_1.pt") in alarms(inventory(run)["global_step_8"])


def test_verl_saved_by_other_ranks_is_whole_and_not_for_this_job(tmp_path: Path) -> None:
    verl(tmp_path / "run" / "global_step_8")
    done = muster("resume-point", tmp_path / "run", "--world-size", 4)
    assert done.exit_code == 3 and inventory(tmp_path / "run")["global_step_8"]["status"] == "complete"


# -- markers -----------------------------------------------------------------------------------------------------------
def nemo(run: Path, step: int) -> Path:
    folder = run / f"llama--val_loss=2.34-epoch=0-step={step - 1}-consumed_samples=800.0"
    folder.mkdir(parents=True)
    shutil.copytree(DATA / f"megatron/torch_dist/iter_{step:07}", folder / "weights")
    (folder / "context").mkdir()
    (folder / "context" / "io.json").write_text("{}")
    return folder


def test_nemo_with_a_stale_marker_is_whole_but_not_taken_unasked(tmp_path: Path) -> None:
    run = tmp_path / "run"
    nemo(run, 100)
    newest = nemo(run, 200)
    newest.with_name(f"{newest.name}-unfinished").touch()
    age(run)
    assert ask(run)["step"] == 99
    found = inventory(run)[newest.name]
    assert (found["status"], found["resumable"]) == ("uncommitted", False)
    assert "temporary_left" in {code for code, _ in alarms(found)}
    newest.with_name(f"{newest.name}-unfinished").unlink()
    assert ask(run)["step"] == 199


def test_a_step_that_a_lost_slice_never_committed_gives_way_to_the_one_before(tmp_path: Path) -> None:
    run = copy_sample("orbax/manager-ocdbt", tmp_path)
    (run / "200").rename(run / "1800")
    (run / "300").rename(run / "1820")
    record = json.loads((run / "1820" / "_CHECKPOINT_METADATA").read_text())
    (run / "1820" / "_CHECKPOINT_METADATA").write_text(json.dumps({**record, "commit_timestamp_nsecs": None}))
    (run / "1820" / "commit_success.txt").unlink()
    age(run)
    answer = ask(run)
    assert answer["step"] == 1800 and answer["skipped"][0]["step"] == 1820
    assert inventory(run)["1820"]["status"] == "incomplete"


def test_a_temporary_folder_beside_the_final_one_is_no_second_step(tmp_path: Path) -> None:
    run = copy_sample("orbax/manager-ocdbt", tmp_path)
    shutil.copytree(run / "300", run / "300.orbax-checkpoint-tmp-17")
    age(run)
    found = inventory(run)
    assert ask(run)["path"] == str(run / "300")
    assert "duplicate_step" not in {code for one in found.values() for code, _ in alarms(one)}


def test_a_tag_and_its_conversion_are_no_second_step(tmp_path: Path) -> None:
    run = copy_sample("deepspeed/zero1-bf16", tmp_path)
    codes = {code for one in inventory(run).values() for code, _ in alarms(one)}
    assert "duplicate_step" not in codes and "global_step4_universal" in inventory(run)


# -- ranks -------------------------------------------------------------------------------------------------------------
def trainer(to: Path, ranks: tuple[int, ...]) -> Path:
    """A real Trainer checkpoint with the random states of these ranks."""
    run = copy_sample("huggingface/trainer-ddp2", to)
    shutil.rmtree(run / "checkpoint-6")
    for rank in range(4):
        (run / "checkpoint-9" / f"rng_state_{rank}.pth").unlink(missing_ok=True)
    for rank in ranks:
        (run / "checkpoint-9" / f"rng_state_{rank}.pth").write_bytes(torch_zip({"python": 1}, f"rng_state_{rank}"))
    age(run)
    return run


def test_random_states_of_more_ranks_than_the_job_has_do_not_stop_it(tmp_path: Path) -> None:
    run = trainer(tmp_path, (0, 1, 2, 3))
    answer = ask(run, "--world-size", 2)
    assert (answer["step"], answer["status"]) == (9, "complete")
    assert inventory(run)["checkpoint-9"]["world_size"] == 4


def test_a_gap_among_the_random_states_is_a_warning_and_no_obstacle(tmp_path: Path) -> None:
    run = trainer(tmp_path, (0, 1, 3))
    assert ask(run)["step"] == 9
    found = inventory(run)["checkpoint-9"]
    assert (found["status"], found["world_size"]) == ("complete", 4)
    assert ("rng_missing", "rng_state_2.pth") in alarms(found)


def test_loader_state_of_an_older_save_in_the_same_folder_is_told(tmp_path: Path) -> None:
    run = tmp_path / "run"
    folder = build(run / "iter_0000010")
    loaders(folder, {0: 10, 1: 7})
    (run / "latest_checkpointed_iteration.txt").write_text("10")
    age(run)
    assert ask(run)["step"] == 10
    found = inventory(run)["iter_0000010"]
    assert found["status"] == "complete"
    assert "train_dataloader_dprank001.pt" in {path for _, path in alarms(found)}


def torchtitan(run: Path, loader_ranks: tuple[int, ...]) -> Path:
    """Step 10 of four writers, with the loader state of some."""
    files = {}
    for rank in range(4):
        pieces = [
            Piece("model.w", (2 * rank,), (2,), (8,)),
            Piece("optimizer.w.exp_avg", (2 * rank,), (2,), (8,)),
        ]
        if rank == 0:
            pieces.append(Piece("train_state", value={"step": 10}))
        if rank in loader_ranks:
            pieces.append(Piece(f"dataloader.dp_rank_{rank}", value={"position": 3}))
        files[f"__{rank}_0.distcp"] = pieces
    write_dcp(run / "step-10", files)
    age(run)
    return run


def test_loader_state_of_one_of_four_ranks_is_a_warning(tmp_path: Path) -> None:
    found = inventory(torchtitan(tmp_path / "run", (0,)))["step-10"]
    assert (found["format"], found["status"]) == ("torchtitan", "complete")
    detail = next(one["detail"] for one in found["findings"] if one["code"] == "dataloader_missing")
    assert "1 of 4" in detail


def test_a_job_of_more_data_parallel_ranks_than_loader_states_is_told_so(tmp_path: Path) -> None:
    run = torchtitan(tmp_path / "run", (0, 1, 2, 3))
    assert ask(run, "--dp", 4)["step"] == 10
    assert "data-loader state is for 4 data-parallel ranks, not for 8" in reasons(ask(run, "--dp", 8))


# -- what is inside ----------------------------------------------------------------------------------------------------
def test_parameters_that_never_trained_have_no_optimizer_state_and_that_is_no_damage(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for step in (10, 20, 30):
        pieces = [Piece(f"model.p{index}", (0,), (4,), (4,)) for index in range(4)]
        pieces += [Piece(f"optimizer.p{index}.exp_avg", (0,), (4,), (4,)) for index in range(3)]
        write_dcp(run / f"step-{step}", {"__0_0.distcp": pieces})
    age(run)
    assert ask(run)["step"] == 30
    codes = {code for one in inventory(run).values() for code, _ in alarms(one)}
    assert codes <= {"rng_missing", "dataloader_missing"}


def test_a_folder_whose_train_state_and_tracker_say_another_iteration_is_not_taken_for_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    folder = build(run / "iter_0000025")
    (folder / "train_state.pt").write_bytes(train_state(28))
    (run / "latest_checkpointed_iteration.txt").write_text("28")
    age(run)
    found = inventory(run)["iter_0000025"]
    assert "step_mismatch" in {code for code, _ in alarms(found)}
    answer = ask(run)
    assert answer["path"] == str(folder) and "step_mismatch" in said(run)
    assert answer["pointer_choice"]["is_same"] is False
    assert "names step 28, and no checkpoint of that step" in said(run) and "pass step 25 to the launcher" in said(run)


def test_a_copy_that_differs_from_its_seal_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for step in (10, 20):
        shutil.copytree(DATA / "dcp/w2/step-10", run / f"step-{step}")
    age(run)
    assert muster("seal", run / "step-20").exit_code == 0
    shard = run / "step-20" / "__1_0.distcp"
    seen, data = shard.stat(), bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    os.utime(shard, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert muster("verify", run / "step-20").exit_code == 7
    answer = ask(run)
    assert answer["path"] == str(run / "step-10")
    assert "damage" in reasons(answer)


# -- names and links ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["模型 🚀", "two\nlines", "e\u0301"])
def test_names_of_any_kind_are_kept_through_a_family_of_files(tmp_path: Path, name: str) -> None:
    run = written(tmp_path / name, {f"ep0-ba10-rank{rank}.pt": composer_state(10) for rank in range(2)})
    assert ask(run)["path"] == f"{run}/ep0-ba10-rank{{rank}}.pt"
    assert list(inventory(run)) == ["ep0-ba10-rank{rank}.pt"]


def test_a_hard_linked_twin_is_named_as_such_and_its_bytes_counted_once(tmp_path: Path) -> None:
    run = copy_sample("huggingface/trainer-single", tmp_path)
    first = next(iter(sorted(run.iterdir())))
    for other in run.iterdir():
        if other != first:
            shutil.rmtree(other)
    step = first.name.removeprefix("checkpoint-")
    shutil.copytree(first, run / f"checkpoint-{int(step):07}", copy_function=os.link)
    age(run)
    details = [one["detail"] for each in inventory(run).values() for one in each["findings"]]
    assert any("hard links" in detail for detail in details)
    assert ask(run)["step"] == int(step) and "duplicate_step" in said(run)


def test_a_last_file_that_is_only_another_name_is_no_second_step(tmp_path: Path) -> None:
    run = written(tmp_path / "run", {"epoch=0-step=6.ckpt": torch_zip({"global_step": 6})})
    os.link(run / "epoch=0-step=6.ckpt", run / "last.ckpt")
    age(run)
    codes = {code for one in inventory(run).values() for code, _ in alarms(one)}
    assert "duplicate_step" not in codes
