"""What people who train really met at a restart, each as the small state on storage that shows it, end to end."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.names import step_of_name
from muster_agent.formats.scan_reading import Reading

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.cli.asking import ask, inventory, muster, reasons, said
from tests.agent.formats.damage import DATA, age
from tests.agent.nobody import let_others_in, muster_as_nobody

HOUR_SECONDS = 3600


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MUSTER_SERVER", "MUSTER_TOKEN", "MUSTER_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run-a").mkdir()
    return tmp_path / "run-a"


def save(run: Path, name: str, *, hours_ago: float = 24.0) -> Path:
    """A real PyTorch DCP checkpoint under another name, with the step of that name inside."""
    place = run / name
    shutil.copytree(DATA / "dcp/w2/step-10", place)
    step = next(one for one in read_checkpoint(place).tensors if one.name == "train_state.step")
    metadata = place / ".metadata"
    metadata.write_bytes(metadata.read_bytes().replace(b"step-10", b"the-run"))  # where it was saved: no step at all
    named = step_of_name(name)
    if named is not None:
        with open(place / step.shard, "r+b") as stream:
            stream.seek(step.offset_bytes)
            stream.write(named.to_bytes(8, "little"))
    age(place, hours_ago * HOUR_SECONDS)
    return place


def cut(run: Path, name: str, *, hours_ago: float = 24.0) -> Path:
    """A DCP save that never wrote its metadata."""
    place = save(run, name)
    (place / ".metadata").unlink()
    age(place, hours_ago * HOUR_SECONDS)
    return place


# -- the framework's pointer -------------------------------------------------------------------------------------------
def test_a_link_with_a_path_from_elsewhere_dangles_and_its_target_is_found_by_name(run: Path) -> None:
    save(run, "step-299")
    (run / "last").symlink_to("work_dirs/run/ckpts/step-299")
    answer = ask(run)
    assert (answer["step"], answer["pointer_choice"]["path"]) == (299, None)
    assert "step-299 lies beside the link" in said(run) and "pointer_dangling" in said(run)


def test_a_last_link_that_stayed_behind_is_stale(run: Path) -> None:
    save(run, "step-4", hours_ago=25)
    save(run, "step-6")
    (run / "last").symlink_to("step-4")
    answer = ask(run)
    assert (answer["step"], answer["pointer"]["step"]) == (6, 4)
    assert answer["pointer_choice"]["is_same"] is False and "pointer_stale" in said(run)


def test_a_link_whose_step_retention_removed_dangles_and_the_newest_left_is_named(run: Path) -> None:
    save(run, "step_0400")
    (run / "step_latest").symlink_to("step_0500")
    assert ask(run)["step"] == 400
    assert "pointer_dangling" in said(run) and "step_0500" in said(run)


def test_a_link_in_a_circle_is_said_and_ends(run: Path) -> None:
    save(run, "step-4")
    (run / "last.ckpt").symlink_to("last.ckpt")
    assert ask(run)["step"] == 4 and "in a circle" in said(run)


def test_a_link_out_of_the_run_is_never_followed(run: Path, tmp_path: Path) -> None:
    save(run, "step-4")
    save(tmp_path, "step-9")
    (run / "latest").symlink_to(tmp_path / "step-9")
    answer = ask(run)
    assert answer["step"] == 4 and "out of this folder" in answer["pointer_choice"]["reason"]


def test_a_tracker_that_was_never_written_is_loud_and_not_taken_for_no_checkpoints(run: Path) -> None:
    save(run, "iter_0000050")
    done = muster("resume-point", run)
    assert done.exit_code == 0 and "Resume from step 50" in done.stdout
    assert "WARNING" in done.stderr and "random weights" in done.stderr and "pass step 50" in done.stderr
    assert "pointer_missing" in muster("inventory", run).stdout


def test_a_tracker_beside_an_empty_folder_gives_way_to_dlrovers(run: Path) -> None:
    save(run, "iter_0000050", hours_ago=25)
    (run / "iter_0000100").mkdir()
    age(run / "iter_0000100")
    (run / "latest_checkpointed_iteration.txt").write_text("100")
    (run / "dlrover_latest.txt").write_text("50")
    answer = ask(run)
    assert (answer["step"], answer["pointer"]["path"]) == (50, str(run / "dlrover_latest.txt"))
    assert answer["pointer_choice"]["is_same"] is True
    assert "latest_checkpointed_iteration.txt names iter_0000100, which is incomplete" in said(run)


def test_the_same_tracker_without_dlrover_names_an_incomplete_checkpoint(run: Path) -> None:
    save(run, "iter_0000050", hours_ago=25)
    (run / "iter_0000100").mkdir()
    age(run / "iter_0000100")
    (run / "latest_checkpointed_iteration.txt").write_text("100")
    answer = ask(run)
    assert (answer["step"], answer["pointer_choice"]["step"]) == (50, 100)
    assert "parts of it are not there" in answer["pointer_choice"]["reason"]


def test_a_step_beyond_a_binding_tracker_is_no_candidate_even_where_it_is_whole(run: Path) -> None:
    save(run, "iter_0000010", hours_ago=25)
    save(run, "iter_0000020")
    (run / "latest_checkpointed_iteration.txt").write_text("10\n")
    answer = ask(run)
    assert answer["step"] == 10 and "only after all ranks have finished" in reasons(answer)
    assert ask(run, "--step", 20)["step"] == 20


def test_a_tracker_with_garbage_from_disagreeing_ranks_is_named_as_such(run: Path) -> None:
    save(run, "iter_0000015")
    (run / "latest_checkpointed_iteration.txt").write_text("4160813071")
    answer = ask(run)
    assert (answer["step"], answer["pointer_choice"]["path"]) == (15, None)
    assert "looks like garbage" in said(run)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"soon", "is no step"),
        (b"-5", "is no step"),
        ("١٥".encode(), "is no step"),
        (b"9" * 19, "is no step"),
        (b"\xff\xfe", "not plain text"),
        (b"15\n20", "is no step"),
        (b"x" * 5000, "too long"),
    ],
)
def test_a_tracker_that_names_no_step_is_unreadable_and_the_files_decide(run: Path, text: bytes, found: str) -> None:
    save(run, "iter_0000015")
    (run / "latest_checkpointed_iteration.txt").write_bytes(text)
    answer = ask(run)
    assert answer["step"] == 15 and answer["pointer_choice"]["path"] is None
    assert "pointer_unreadable" in said(run) and found in said(run)


@pytest.mark.parametrize("text", ["15", " 15\n", "0000015"])
def test_white_space_and_padding_in_a_tracker_are_no_trouble(run: Path, text: str) -> None:
    save(run, "iter_0000015")
    (run / "latest_checkpointed_iteration.txt").write_text(text)
    assert (ask(run)["pointer_choice"]["is_same"], said(run)) == (True, "")


def test_a_tracker_that_names_a_release_is_no_damage(run: Path) -> None:
    save(run, "release")
    (run / "latest_checkpointed_iteration.txt").write_text("release")
    assert "pointer_" not in said(run)


def test_a_tracker_follows_names_so_a_step_that_only_lies_inside_is_not_found(run: Path) -> None:
    write_checkpoint(run, 28, rank_bytes=300, world_size=2).rename(run / "iter_0000025")
    age(run)
    (run / "latest_checkpointed_iteration.txt").write_text("28")
    answer = ask(run)
    assert answer["step"] == 28 and answer["pointer_choice"]["path"] is None
    assert "step_mismatch" in said(run) and "iter_0000025 holds the state of that step" in said(run)


def test_deepspeeds_latest_is_a_hint_and_a_broken_tag_is_passed_over(run: Path) -> None:
    shutil.copytree(DATA / "deepspeed/zero1-bf16", run, dirs_exist_ok=True)
    broken = next((run / "global_step4").glob("*zero_pp_rank_1_mp_rank_00_optim_states.pt"))
    broken.unlink()
    shutil.rmtree(run / "global_step4_universal", ignore_errors=True)
    age(run)
    answer = ask(run)
    assert (answer["step"], answer["pointer_choice"]["step"]) == (2, 4)
    assert broken.name in reasons(answer) and "latest names global_step4, which is incomplete" in said(run)


def test_a_text_object_in_place_of_a_link_is_read(run: Path) -> None:
    save(run, "step-10")
    (run / "latest.symlink").write_text("some/prefix/step-10")
    assert ask(run)["pointer"] == {"path": str(run / "latest.symlink"), "step": 10}


@pytest.mark.parametrize(("hours_ago", "status"), [(0.0, "in_progress"), (24.0, "corrupt")])
def test_an_empty_last_file_is_a_running_save_while_it_is_young(run: Path, hours_ago: float, status: str) -> None:
    shutil.copytree(DATA / "lightning/save_last-copy", run, dirs_exist_ok=True)
    age(run, 2 * 24 * HOUR_SECONDS)
    (run / "last.ckpt").write_bytes(b"")
    age_of_file = time.time() - hours_ago * HOUR_SECONDS
    os.utime(run / "last.ckpt", (age_of_file, age_of_file))
    assert inventory(run)["last.ckpt"]["status"] == status
    assert ask(run)["step"] == 6


# -- which step is asked for -------------------------------------------------------------------------------------------
def test_a_step_that_does_not_exist_is_an_error_that_names_the_nearest(run: Path) -> None:
    save(run, "step-100", hours_ago=25)
    save(run, "step-200")
    done = muster("resume-point", run, "--step", 160)
    assert done.exit_code == 3 and "there is no step 160" in done.stderr and "200, 100" in done.stderr
    assert (ask(run, "--step", 160)["outcome"], ask(run, "--step", 160)["nearest_steps"]) == ("step_absent", [200, 100])


def test_no_outcome_without_a_point_can_be_taken_for_another(run: Path, tmp_path: Path) -> None:
    empty = muster("resume-point", run)
    cut(run, "step-10")
    nothing = muster("resume-point", run)
    absent = muster("resume-point", tmp_path / "nowhere")
    assert (empty.exit_code, nothing.exit_code, absent.exit_code) == (3, 3, 1)
    assert "no checkpoints here" in empty.stderr and "nothing resumable" in nothing.stderr
    assert "no such file or folder" in absent.stderr


def test_numbers_are_compared_as_numbers(run: Path) -> None:
    save(run, "checkpoint-9900", hours_ago=25)
    save(run, "checkpoint-10000")
    assert ask(run)["step"] == 10000


def test_the_step_is_the_last_name_and_no_parents(run: Path) -> None:
    place = run / "global_step_900" / "archive"
    place.mkdir(parents=True)
    save(place, "global_step_12")
    assert ask(place)["step"] == 12
    assert [one["step"] for one in inventory(place).values()] == [12]


def test_a_backup_copy_is_no_step(run: Path) -> None:
    save(run, "step-50", hours_ago=25)
    save(run, "step-100", hours_ago=24).rename(run / "step-100.backup")
    assert ask(run)["step"] == 50 and "set aside" in reasons(ask(run))


def test_a_copy_made_later_begins_no_second_history(run: Path) -> None:
    save(run, "step-50", hours_ago=25)
    save(run, "step-100", hours_ago=24)
    save(run, "copy-of-the-good-one", hours_ago=1)
    answer = ask(run)
    assert (answer["step"], answer["skipped"]) == (100, []) and said(run) == ""


def test_saves_without_their_metadata_are_abandoned_and_passed_over(run: Path) -> None:
    save(run, "step-10", hours_ago=30)
    cut(run, "step-20", hours_ago=29)
    cut(run, "step-30", hours_ago=28)
    answer = ask(run)
    assert (answer["step"], [one["step"] for one in answer["skipped"]]) == (10, [30, 20])
    assert "abandoned" in reasons(answer)


def test_a_save_that_still_runs_is_no_damage_and_the_one_before_is_named(run: Path) -> None:
    save(run, "step-100", hours_ago=2)
    cut(run, "step-200", hours_ago=0)
    (run / "dlrover_latest.txt").write_text("100")
    assert inventory(run)["step-200"]["status"] == "in_progress"
    assert ask(run)["step"] == 100


def test_an_empty_folder_beyond_the_tracker_changes_nothing(run: Path) -> None:
    save(run, "iter_0000010")
    (run / "iter_0000020").mkdir()
    (run / "latest_checkpointed_iteration.txt").write_text("10")
    answer = ask(run)
    assert (answer["step"], answer["pointer_choice"]["is_same"]) == (10, True)


def test_a_trainer_checkpoint_without_its_state_file_is_passed_over(run: Path) -> None:
    newest = run / "checkpoint-9"
    shutil.copytree(DATA / "huggingface/trainer-single/checkpoint-9", newest)
    shutil.copytree(newest, run / "checkpoint-6")
    state = (newest / "trainer_state.json").read_text()
    (newest / "trainer_state.json").unlink()
    (run / "checkpoint-6" / "trainer_state.json").write_text(state.replace('"global_step": 9', '"global_step": 6'))
    age(run)
    answer = ask(run)
    assert (answer["step"], answer["pointer_choice"]["step"]) == (6, 9)
    assert "highest number" in answer["pointer_choice"]["rule"] and "trainer_state.json" in reasons(answer)


# -- two trainings in one folder, and one step twice -------------------------------------------------------------------
def test_a_second_run_in_the_folder_is_told_apart_and_never_crossed_silently(run: Path) -> None:
    for step, hours in ((500, 30), (600, 29), (700, 28), (100, 3), (200, 2), (300, 1)):
        save(run, f"checkpoint-{step}", hours_ago=hours)
    answer = ask(run)
    assert (answer["step"], [one["step"] for one in answer["skipped"]]) == (300, [700, 600, 500])
    assert "two histories of training" in said(run) and "--step" in said(run)
    assert ask(run, "--step", 700)["step"] == 700
    told = {name for name, one in inventory(run).items() if one["findings"][-1]["code"] == "second_lineage"}
    assert told == {"checkpoint-500", "checkpoint-600", "checkpoint-700", "checkpoint-100"}


def test_one_old_step_put_back_in_place_takes_nothing_from_the_highest(run: Path) -> None:
    for step, hours in ((100, 50), (200, 40), (300, 30)):
        save(run, f"checkpoint-{step}", hours_ago=hours)
    later = time.time() - 3600
    for file in (run / "checkpoint-100").iterdir():
        os.utime(file, (later, later))
    assert ask(run)["step"] == 300 and "second_lineage" in said(run) and "--step" in said(run)
    assert {one["findings"][-1]["code"] for one in inventory(run).values()} == {"second_lineage"}


def test_twins_by_padding_are_listed_and_named(run: Path) -> None:
    shutil.copytree(save(run, "step-100"), run / "step-0000100", copy_function=os.link)
    found = inventory(run)
    assert {one["step"] for one in found.values()} == {100} and len(found) == 2
    assert all("duplicate_step" in {each["code"] for each in one["findings"]} for one in found.values())
    assert ask(run)["step"] == 100 and "duplicate_step" in said(run)


def test_a_folder_renamed_to_a_lower_number_than_its_state_is_not_missed(run: Path) -> None:
    for step in (10, 20, 30, 40):
        write_checkpoint(run, step, rank_bytes=300, world_size=2)
    (run / "step-00000040").rename(run / "step-5")
    answer = ask(run)
    assert (answer["step"], answer["path"]) == (40, str(run / "step-5"))
    assert "step_mismatch" in said(run)


def test_a_newer_step_that_may_not_be_read_is_loud(run: Path) -> None:
    save(run, "step-10", hours_ago=25)
    save(run, "step-20").chmod(0)
    done = muster_as_nobody("resume-point", let_others_in(run))
    (run / "step-20").chmod(0o755)
    assert "Resume from step 10" in done.stdout and "not readable here, so perhaps better: step 20" in done.stderr


# -- ranks -------------------------------------------------------------------------------------------------------------
def test_another_data_parallel_size_needs_a_universal_checkpoint(run: Path) -> None:
    shutil.copytree(DATA / "deepspeed/zero1-bf16", run, dirs_exist_ok=True)
    shutil.rmtree(run / "global_step4_universal", ignore_errors=True)
    (run / "latest_universal").unlink(missing_ok=True)
    age(run)
    assert ask(run, "--dp", 2)["step"] == 4
    done = muster("resume-point", run, "--dp", 3)
    assert done.exit_code == 3 and "universal" in done.stdout and "complete" not in done.stderr


def test_loader_state_of_other_ranks_is_named(run: Path) -> None:
    shutil.copytree(DATA / "dcp/torchtitan", run, dirs_exist_ok=True)
    assert ask(run, "--dp", 2)["outcome"] == "found"
    assert "data-loader state is for 2 data-parallel ranks, not for 4" in reasons(ask(run, "--dp", 4))


def test_formats_that_reshard_take_any_number_of_ranks(run: Path) -> None:
    save(run, "step-10")
    assert ask(run, "--world-size", 64)["step"] == 10


# -- names -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["run 模型 🚀", "two\nlines", "quote'\"$(id)", "e\u0301", "\u00e9"])
def test_any_name_is_kept_to_the_byte_and_escaped_in_json(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    place.mkdir()
    save(place, "checkpoint-5")
    done = muster("inventory", tmp_path, "--json")
    assert json.loads(done.stdout)[0]["path"] == str(place / "checkpoint-5")
    assert done.stdout.isascii() and ask(place)["path"] == str(place / "checkpoint-5")
    assert all("\n" not in line for line in muster("inventory", tmp_path).stdout.splitlines())


def test_twins_in_two_unicode_forms_are_both_listed(tmp_path: Path) -> None:
    for name in ("e\u0301", "\u00e9"):
        (tmp_path / name).mkdir()
        save(tmp_path / name, "checkpoint-5")
    assert len(json.loads(muster("inventory", tmp_path, "--json").stdout)) == 2


# -- sub-folders -------------------------------------------------------------------------------------------------------
def test_the_folder_asked_for_is_the_run_and_others_below_are_left_aside(run: Path) -> None:
    save(run, "step-10")
    (run / "old").mkdir()
    save(run / "old", "step-90")
    assert ask(run)["step"] == 10 and "left aside" in said(run)


def test_non_persistent_copies_belong_to_their_run(run: Path) -> None:
    save(run, "iter_0000010", hours_ago=3)
    (run / "latest_checkpointed_iteration.txt").write_text("10")
    (run / "non_persistent").mkdir()
    save(run / "non_persistent", "iter_0000015", hours_ago=2)
    assert ask(run)["step"] == 15


# -- files that show late ----------------------------------------------------------------------------------------------
def test_a_save_that_ends_between_two_looks_is_resumed_from(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(run, "step-10")
    late = cut(run, "step-20", hours_ago=0)

    def ends(_reading: Reading, _until: float) -> None:
        shutil.copy(save(run.parent, "step-20", hours_ago=0) / ".metadata", late)

    monkeypatch.setattr(Reading, "_wait", ends)
    assert ask(run)["step"] == 20


def test_looking_twice_costs_a_second_at_most_and_nothing_for_old_leftovers(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(Reading, "_wait", lambda _self, until: waits.append(until - time.monotonic()))
    save(run, "step-10")
    cut(run, "step-20", hours_ago=0)
    assert ask(run)["step"] == 10
    assert len(waits) == 1 and waits[0] <= 1
    age(run)
    assert ask(run)["step"] == 10 and len(waits) == 1


# -- steps that several writers make -----------------------------------------------------------------------------------
def test_a_step_whose_orchestrator_never_saved_gives_way_to_the_one_before(run: Path) -> None:
    for step in (6, 7, 8):
        (run / f"step_{step}").mkdir()
        shutil.move(save(run.parent, f"step_{step}"), run / f"step_{step}" / "trainer")
        if step != 8:
            (run / f"step_{step}" / "orchestrator").mkdir()
            (run / f"step_{step}" / "orchestrator" / "progress.json").write_text('{"step": 1}')
    age(run)
    answer = ask(run)
    assert answer["step"] == 7 and "it lacks orchestrator" in reasons(answer)
    assert inventory(run)["step_8"]["status"] == "incomplete"


def test_a_counter_of_saves_is_no_doubt_about_the_choice(run: Path) -> None:
    shutil.copytree(DATA / "huggingface/accelerate-single", run, dirs_exist_ok=True)
    age(run)
    assert ask(run)["step"] == 0 and "step_mismatch" not in said(run)
