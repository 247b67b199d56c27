from __future__ import annotations

import io
import json
import os
import shutil
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from muster_agent.cli import main
from muster_agent.cli.colour import coloured, paint_for
from muster_agent.cli.inventory_text import inventory_lines
from muster_agent.cli.scan_line import ScanLine
from muster_agent.formats.walk import inventory as take_inventory

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.nobody import let_others_in, muster_as_nobody

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run-a"
    for step in (10, 20, 30):
        write_checkpoint(folder, step, rank_bytes=300, world_size=2)
    return folder


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["inventory", *map(str, arguments)], catch_exceptions=False)


def test_the_json_is_the_agreed_list(run: Path) -> None:
    done = muster(run, "--json")
    listed = json.loads(done.stdout)
    assert (done.exit_code, done.stderr) == (0, "")
    assert [one["step"] for one in listed] == [30, 20, 10]
    newest = listed[0]
    size_bytes = sum(path.stat().st_size for path in (run / "step-00000030").iterdir())
    assert newest.pop("newest_mtime_at").endswith("+00:00")
    assert newest == {
        "path": str(run / "step-00000030"),
        "run": "run-a",
        "step": 30,
        "format": "safetensors",
        "status": "complete",
        "resumable": True,
        "world_size": 2,
        "shard_count": 2,
        "total_bytes": size_bytes,
        "findings": [],
    }


def test_findings_in_the_json_have_the_agreed_fields(run: Path) -> None:
    (run / "step-00000030" / "rank-00001-of-00002.safetensors").unlink()
    (found,) = json.loads(muster(run, "--json").stdout)[0]["findings"]
    assert list(found) == ["code", "severity", "path", "detail", "cure"]
    assert (found["code"], found["severity"]) == ("shard_missing", "damage")


def test_the_table_names_each_step_what_is_wrong_and_what_to_do(run: Path) -> None:
    (run / "step-00000030" / "rank-00001-of-00002.safetensors").unlink()
    text = muster(run).stdout
    assert "3 checkpoints, 2 to resume from" in text
    assert "incomplete" in text
    assert "damage shard_missing: step-00000030" in text
    assert "what to do: Copy the file back" in text


def test_a_truncated_file_is_named_by_every_command_that_finds_it(run: Path) -> None:
    step = run / "step-00000030"
    shard = sorted(step.glob("*.safetensors"))[1]
    os.truncate(shard, shard.stat().st_size - 1)
    assert f"      {shard.name}: the header describes" in muster(run).stdout
    for command in ("seal", "verify", "reload"):
        done = CliRunner().invoke(main, [command, str(step)], catch_exceptions=False)
        assert f"damage: shard_truncated: {shard.name}: the header describes" in done.stderr, command
        assert done.exit_code == 7


def test_one_cure_is_said_once_for_many_checkpoints() -> None:
    text = muster(DATA / "dcp" / "torchtitan").stdout
    assert text.count("what to do") == 1
    assert "rng_missing: step-15, step-5" in text


def test_a_time_ahead_of_the_clock_is_not_shown_as_now(run: Path) -> None:
    ahead = time.time() + 400 * 86_400
    for path in (run / "step-00000030").iterdir():
        os.utime(path, (ahead, ahead))
    assert "in 400.0 d" in muster(run).stdout


def test_what_is_unknown_says_why(tmp_path: Path) -> None:
    (tmp_path / "step-7").mkdir()
    with (tmp_path / "step-7" / ".metadata").open("wb") as file:
        file.truncate(2 << 40)
    done = muster(tmp_path)
    assert "unknown" in done.stdout and ".metadata is larger than this version reads" in done.stdout


def test_an_empty_folder_says_so(tmp_path: Path) -> None:
    assert (muster(tmp_path).exit_code, muster(tmp_path).stdout) == (0, f"No checkpoints under {tmp_path}.\n")
    assert json.loads(muster(tmp_path, "--json").stdout) == []


def test_a_single_checkpoint_is_a_list_of_one(run: Path) -> None:
    assert [one["step"] for one in json.loads(muster(run / "step-00000020", "--json").stdout)] == [20]


def test_a_path_that_is_not_there_is_an_error_with_what_to_do(tmp_path: Path) -> None:
    done = muster(tmp_path / "nowhere")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "no such file or folder" in done.stderr
    assert "what to do:" in done.stderr


@pytest.mark.parametrize("place", ["gs://bucket/prefix", "s3://", "s3:///x", "s3://bucket/a//b", "s3://bucket/../x"])
def test_what_names_no_place_is_refused_with_what_to_do(place: str) -> None:
    done = muster(place)
    assert done.exit_code == 2
    assert "what to do:" in done.stderr


def test_a_negative_grace_period_is_a_usage_error(run: Path) -> None:
    assert muster(run, "--grace", "-1").exit_code == 2


def test_what_is_about_the_folder_is_said_on_stderr_beside_the_json(run: Path) -> None:
    (run / "latest").write_text("99")
    done = muster(run, "--json")
    assert len(json.loads(done.stdout)) == 3
    assert "pointer_dangling" in done.stderr


@pytest.mark.parametrize("place", ["hostile", "safetensors/bad", "dcp/crash"])
def test_hostile_and_broken_files_are_listed_without_a_traceback(place: str) -> None:
    done = muster(DATA / place, "--json", "--grace", "0")
    assert done.exit_code == 0
    assert all(one["status"] for one in json.loads(done.stdout))


def test_terminal_commands_in_a_name_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "run\x1b[2J\nevil", 10, rank_bytes=300, world_size=2)
    text = muster(tmp_path).stdout
    assert "\x1b" not in text
    assert "\nevil" not in text
    assert "\\x1b[2J" in text


def test_a_folder_that_may_not_be_read_is_an_error_of_its_own(run: Path) -> None:
    let_others_in(run).chmod(0)
    done = muster_as_nobody("inventory", run)
    run.chmod(0o755)
    assert (done.returncode, done.stdout) == (1, "")
    assert "may not read it" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_may_not_be_read_inside_is_listed_as_unreadable_never_as_missing_or_empty(run: Path) -> None:
    let_others_in(run)
    closed = [run / "step-00000020", run / "step-00000030" / "rank-00001-of-00002.safetensors"]
    for place in closed:
        place.chmod(0)
    done = muster_as_nobody("inventory", run.parent, "--json", "--grace", 0)
    run.chmod(0)
    outside = muster_as_nobody("inventory", run.parent, "--json")
    for place in (run, *closed):
        place.chmod(0o755)
    listed = {one["step"]: one for one in json.loads(done.stdout)}
    assert {step: one["status"] for step, one in listed.items()} == {
        10: "complete",
        20: "unreadable",
        30: "unreadable",
    }
    for step in (20, 30):
        assert {found["code"] for found in listed[step]["findings"]} == {"permission_denied"}
        assert not listed[step]["resumable"]
    # The run's folder itself: nothing is known of what is in it, and that is said.
    assert [(one["status"], one["path"]) for one in json.loads(outside.stdout)] == [("unreadable", str(run))]
    assert "permission_denied" in outside.stdout


def test_what_lies_on_the_storage_is_counted_once_and_summed_up(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "step-00000030", run / "step-30", copy_function=os.link)
    write_checkpoint(tmp_path / "run-b", 5, rank_bytes=300, world_size=2)
    lines = muster(tmp_path).stdout.splitlines()
    head = next(line for line in lines if line.startswith("Run run-a"))
    assert "4 checkpoints, 4 to resume from, the newest at step 30" in head and "hard links counted once" in head
    assert next(line for line in lines if line.startswith("In all")).startswith("In all 5 checkpoints in 2 folders")
    assert lines[-1].endswith("5 complete.")


def test_a_pointer_is_named_as_seen_from_the_folder_that_was_asked_for(run: Path, tmp_path: Path) -> None:
    (run / "latest").write_text("99")
    assert "damage pointer_dangling: run-a/latest" in muster(tmp_path).stdout


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_a_terminal_that_wants_colour_gets_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert paint_for(io.StringIO())("complete", "good") == "complete"
    assert paint_for(Terminal())("complete", "good") == "\x1b[32mcomplete\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert paint_for(Terminal())("complete", "good") == "complete"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert paint_for(Terminal())("complete", "good") == "complete"


def test_colours_change_no_word_and_no_width(run: Path) -> None:
    (run / "step-00000030" / "rank-00001-of-00002.safetensors").unlink()
    found = take_inventory(run)
    bare = list(inventory_lines(found, str(run), 0.0))
    assert [click.unstyle(line) for line in inventory_lines(found, str(run), 0.0, coloured)] == bare


def test_on_a_terminal_a_line_says_how_far_it_is_and_is_gone_at_the_end() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        with ScanLine(stream) as line:
            control = line.control()
            control.progress("inventory", 3, 40)
            control.tell({"entries": 12_345, "entries_per_second": 40_000, "folders_left": 1})
    assert "12,345 entries, 40,000 a second; 1 folder left; 3 of 40 checkpoints read" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K") and pipe.getvalue() == ""
