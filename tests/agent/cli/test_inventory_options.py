from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from muster_agent.cli import main
from muster_agent.formats.folder import look
from muster_agent.formats.scan_reading import Reading

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.formats.damage import age


def test_a_second_inventory_with_a_cache_says_the_same(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "run", 10, rank_bytes=300, world_size=2)
    command = ["inventory", str(tmp_path / "run"), "--json", "--grace", "0", "--cache", str(tmp_path / "cache")]
    first, second = (CliRunner().invoke(main, command) for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert json.loads(first.stdout) == json.loads(second.stdout) != []
    assert (tmp_path / "cache").exists()


def test_a_cache_that_is_something_else_is_said_and_left_alone(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "run", 10, rank_bytes=300, world_size=2)
    (tmp_path / "notes").write_text("mine")
    result = CliRunner().invoke(main, ["inventory", str(tmp_path / "run"), "--cache", str(tmp_path / "notes")])
    assert result.exit_code == 0
    assert "cache was not used" in result.stderr
    assert (tmp_path / "notes").read_text() == "mine"


def test_a_young_unfinished_save_is_looked_at_twice_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run" / "step-10").mkdir(parents=True)
    waits: list[float] = []
    monkeypatch.setattr(Reading, "_wait", lambda _self, until: waits.append(until))
    assert CliRunner().invoke(main, ["inventory", str(tmp_path / "run"), "--settle", "0"]).exit_code == 0
    assert waits == []
    assert CliRunner().invoke(main, ["inventory", str(tmp_path / "run")]).exit_code == 0
    assert len(waits) == 1


RULES = '{"rules": [{"match": "step-*", "requires": ["%s"]}]}'


@pytest.fixture
def two_steps(tmp_path: Path) -> Path:
    """Step 20 lacks the folder `orchestrator` that step 10 has. Both are old."""
    for step in (10, 20):
        write_checkpoint(tmp_path / "run", step, rank_bytes=300, world_size=2)
    (tmp_path / "run" / "step-00000010" / "orchestrator").mkdir()
    age(tmp_path / "run")
    return tmp_path / "run"


def rules_file(at: Path, required: str = "orchestrator") -> Path:
    at.write_text(RULES % required)
    return at


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


def statuses(*arguments: object) -> dict[int, str]:
    return {one["step"]: one["status"] for one in json.loads(invoke("inventory", *arguments, "--json").stdout)}


def test_rules_given_in_a_file_judge_the_steps_and_the_resume_point(two_steps: Path, tmp_path: Path) -> None:
    file = rules_file(tmp_path / "rules.json")
    assert statuses(two_steps) == {20: "complete", 10: "complete"}
    assert statuses(two_steps, "--rules", file) == {20: "incomplete", 10: "complete"}
    answer = json.loads(invoke("resume-point", two_steps, "--rules", file, "--json").stdout)
    assert answer["step"] == 10
    assert "a path rule requires parts that are not there" in answer["skipped"][0]["reasons"]


@pytest.mark.parametrize("at_root", [False, True])
def test_a_scan_that_remembers_judges_by_the_rules_of_today(two_steps: Path, tmp_path: Path, at_root: bool) -> None:
    at = two_steps / ".muster-rules.json" if at_root else tmp_path / "rules.json"
    options = [two_steps, "--cache", tmp_path / "cache", *([] if at_root else ["--rules", at])]
    assert statuses(two_steps, "--cache", tmp_path / "cache") == {20: "complete", 10: "complete"}
    rules_file(at)
    assert statuses(*options) == {20: "incomplete", 10: "complete"}
    rules_file(at, "nothing-has-this")
    assert statuses(*options) == {20: "incomplete", 10: "incomplete"}
    at.write_text('{"rules": []}')
    assert statuses(*options) == {20: "complete", 10: "complete"}


@pytest.mark.parametrize("text", ["", "{", '{"rules": [{"match": "a", "requires": ["../up"]}]}', '{"rules": 3}'])
@pytest.mark.parametrize("command", ["inventory", "resume-point"])
def test_a_file_of_rules_that_cannot_be_used_stops_with_a_reason(
    two_steps: Path, tmp_path: Path, text: str, command: str
) -> None:
    (tmp_path / "rules.json").write_text(text)
    done = invoke(command, two_steps, "--rules", tmp_path / "rules.json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "rules.json" in done.stderr and "docs/formats.md" in done.stderr


def test_rules_that_are_not_there_stop_with_a_reason(two_steps: Path, tmp_path: Path) -> None:
    done = invoke("inventory", two_steps, "--rules", tmp_path / "none.json")
    assert done.exit_code == 2 and "could not be read" in done.stderr


def listed(*arguments: object) -> tuple[int, list[dict[str, Any]]]:
    done = CliRunner().invoke(main, ["inventory", *map(str, arguments), "--json"], catch_exceptions=False)
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return done.exit_code, found


@pytest.fixture
def three_runs(tmp_path: Path) -> Path:
    """Run a is whole, run b lost a shard of its newest step, run c has a pointer to nothing."""
    for name in "abc":
        for step in (10, 20):
            write_checkpoint(tmp_path / f"run-{name}", step, rank_bytes=300, world_size=2)
    (tmp_path / "run-b" / "step-00000020" / "rank-00001-of-00002.safetensors").unlink()
    (tmp_path / "run-c" / "latest").write_text("99")
    age(tmp_path)
    return tmp_path


def test_the_broken_ones_of_many_runs_are_listed_alone(three_runs: Path) -> None:
    code, found = listed(three_runs, "--only", "broken")
    assert (code, [(one["run"], one["step"]) for one in found]) == (0, [("run-b", 20)])
    assert len(listed(three_runs, "--only", "resumable")[1]) == 5
    assert listed(three_runs / "run-a", "--only", "broken")[1] == []
    text = CliRunner().invoke(main, ["inventory", str(three_runs / "run-a"), "--only", "broken"]).stdout
    assert text == f"No broken checkpoints under {three_runs / 'run-a'}.\n"


def test_a_script_can_be_failed_by_damage(three_runs: Path) -> None:
    assert listed(three_runs, "--fail-on", "damage")[0] == 7
    assert listed(three_runs / "run-a", "--fail-on", "damage")[0] == 0
    assert listed(three_runs, "--only", "resumable", "--fail-on", "damage")[0] == 7


def test_a_summary_has_one_line_per_run(three_runs: Path) -> None:
    done = CliRunner().invoke(main, ["inventory", str(three_runs), "--summary"])
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and done.exit_code == 0
    assert lines[0].startswith(f"{three_runs}/run-a: 2 checkpoints, 2 to resume from, the newest at step 20")
    assert lines[1].endswith("1 to resume from, the newest at step 10, 1 broken")
    assert CliRunner().invoke(main, ["inventory", str(three_runs), "--summary", "--json"]).exit_code == 2


def test_what_is_about_a_folder_is_told_with_the_newest_checkpoint_of_that_folder(three_runs: Path) -> None:
    _, found = listed(three_runs)
    told = [
        (one["run"], one["step"], each["path"])
        for one in found
        for each in one["findings"]
        if "pointer" in each["code"]
    ]
    assert told == [("run-c", 20, str(three_runs / "run-c" / "latest"))]


def test_a_place_beside_the_runs_goes_to_the_nearest_one(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a" / "run", 10, rank_bytes=300, world_size=1)
    write_checkpoint(tmp_path / "b" / "run", 20, rank_bytes=300, world_size=1)
    (tmp_path / "a" / "tmp-checkpoint-30").mkdir()
    age(tmp_path)
    found = {one["run"] + str(one["step"]): one["findings"] for one in listed(tmp_path)[1]}
    assert [each["path"] for each in found["run10"]] == [str(tmp_path / "a" / "tmp-checkpoint-30")]
    assert found["run20"] == []


@pytest.mark.parametrize(("place", "kind"), [("/proc", "proc"), ("/sys", "sysfs"), ("/proc/self", "proc")])
def test_what_the_kernel_makes_up_is_refused_in_plain_words(place: str, kind: str) -> None:
    done = CliRunner().invoke(main, ["inventory", place])
    assert done.exit_code == 1 and done.stdout == ""
    assert f"it is a {kind} file system, which the kernel makes up" in done.stderr
    assert "name the folder that checkpoints are saved to" in done.stderr


def test_a_scan_of_the_whole_machine_does_not_go_into_what_the_kernel_makes_up() -> None:
    assert not {"proc", "sys"} & set(look("/", "/").folders)
