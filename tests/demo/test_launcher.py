"""The launcher starts only what `muster resume-point` names, and never starts over in silence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from muster_agent.hooks.spool_reader import HookSpoolReader

from deploy.demo.launcher import Refusal, Start, decide, parse_arguments

REPOSITORY_ROOT = Path(__file__).resolve().parents[2]


def answer(outcome: str, path: str | None = None, step: int | None = None) -> str:
    skipped = [{"path": "/run/step-30", "step": 30, "reasons": ["digest_mismatch in rank-00001", "not verified"]}]
    return json.dumps({"outcome": outcome, "path": path, "step": step, "skipped": skipped})


def test_a_named_point_is_started_from_and_what_was_passed_over_is_said() -> None:
    decision = decide(0, answer("found", "/run/step-20", 20), fresh_if_empty=False)
    assert isinstance(decision, Start)
    assert decision.path == "/run/step-20"
    assert "step 20" in decision.message
    assert "/run/step-30: digest_mismatch in rank-00001; not verified" in decision.message


def test_an_empty_run_starts_at_step_0_only_where_that_was_asked_for() -> None:
    assert decide(3, answer("no_checkpoints"), fresh_if_empty=True) == Start(
        path=None, message="no checkpoints yet: starting at step 0"
    )
    refused = decide(3, answer("no_checkpoints"), fresh_if_empty=False)
    assert isinstance(refused, Refusal)
    assert refused.exit_code == 3
    assert "--fresh-if-empty" in refused.message


@pytest.mark.parametrize("outcome", ["nothing_resumable", "step_absent"])
def test_checkpoints_that_cannot_be_used_never_mean_step_0(outcome: str) -> None:
    refused = decide(3, answer(outcome), fresh_if_empty=True)
    assert isinstance(refused, Refusal)
    assert refused.exit_code == 3
    assert "/run/step-30" in refused.message


@pytest.mark.parametrize("exit_code", [1, 2, 4, 9, -9])
def test_a_failure_of_the_question_is_no_answer(exit_code: int) -> None:
    refused = decide(exit_code, answer("found", "/run/step-20", 20), fresh_if_empty=True)
    assert isinstance(refused, Refusal)
    assert refused.exit_code == exit_code


@pytest.mark.parametrize("output", ["", "[]", "null", "{}", '{"outcome":"found"}', "\x00", answer("found")])
@pytest.mark.parametrize("exit_code", [0, 3])
def test_an_answer_that_cannot_be_understood_starts_nothing(exit_code: int, output: str) -> None:
    assert isinstance(decide(exit_code, output, fresh_if_empty=True), Refusal)


def test_an_exit_code_that_contradicts_the_answer_starts_nothing() -> None:
    assert isinstance(decide(3, answer("found", "/run/step-20", 20), fresh_if_empty=True), Refusal)


def test_what_follows_the_dashes_goes_to_the_trainer() -> None:
    arguments, rest = parse_arguments(["run", "--attempt", "a-1", "--", "--size", "tiny", "--", "x"])
    assert arguments.attempt == "a-1"
    assert arguments.run_path == Path("run").absolute()
    assert rest == ["--size", "tiny", "--", "x"]


def launch(run_path: Path, *arguments: str, trainer: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deploy.demo.launcher", str(run_path), "--attempt", "demo-1", *arguments]
    return subprocess.run(
        [*command, "--", "--size", "tiny", *trainer],
        cwd=REPOSITORY_ROOT,
        env={**os.environ, "MUSTER_HOOK_DIR": str(run_path.parent / "hooks")},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    return path


def test_a_run_is_started_fresh_then_resumed_from_what_muster_names(run_path: Path) -> None:
    """With the real command, end to end."""
    first = launch(run_path, "--fresh-if-empty", trainer=("--save-every", "10", "--until-step", "20"))
    assert first.returncode == 0, first.stderr
    assert "starting at step 0" in first.stderr
    second = launch(run_path, trainer=("--save-every", "0", "--until-step", "22"))
    assert second.returncode == 0, second.stderr
    assert second.stdout.splitlines()[0] == f"resumed from step 20 at {run_path / 'step-20'}"
    assert [line.split()[1] for line in second.stdout.splitlines()[1:]] == ["21", "22"]


def test_a_damaged_newest_step_is_passed_over_with_the_reason(run_path: Path) -> None:
    launch(run_path, "--fresh-if-empty", trainer=("--save-every", "10", "--until-step", "20"))
    file = run_path / "step-20" / "rank-00001-of-00004.safetensors"
    os.truncate(file, file.stat().st_size - 1)
    second = launch(run_path, trainer=("--save-every", "0", "--until-step", "12"))
    assert second.returncode == 0, second.stderr
    assert second.stdout.splitlines()[0] == f"resumed from step 10 at {run_path / 'step-10'}"
    assert f"passed over {run_path}/step-20: it is damaged" in second.stderr


def test_a_run_with_nothing_sound_is_refused_even_with_fresh_if_empty(run_path: Path) -> None:
    launch(run_path, "--fresh-if-empty", trainer=("--save-every", "10", "--until-step", "10"))
    (run_path / "step-10" / "checkpoint.json").unlink()
    refused = launch(run_path, "--fresh-if-empty", trainer=("--until-step", "12"))
    assert refused.returncode == 3
    assert refused.stdout == ""
    assert "nothing_resumable" in refused.stderr


def test_a_run_folder_that_is_not_there_is_refused_even_with_fresh_if_empty(run_path: Path) -> None:
    """A mount that is missing looks just like that."""
    refused = launch(run_path / "absent", "--fresh-if-empty")
    assert refused.returncode not in (0, None)
    assert refused.stdout == ""
    assert not (run_path / "absent").exists()


def test_a_muster_that_hangs_or_is_missing_is_said(run_path: Path) -> None:
    hangs = run_path.parent / "hangs"
    hangs.write_text("#!/bin/sh\nexec sleep 600\n")
    hangs.chmod(0o755)
    hung = launch(run_path, "--muster", str(hangs), "--timeout-seconds", "0.5")
    assert (hung.returncode, hung.stdout) == (6, "")
    assert "no answer in 0.5 s" in hung.stderr
    missing = launch(run_path, "--muster", "/no/such/muster")
    assert missing.returncode == 1
    assert "--muster" in missing.stderr
    assert "Traceback" not in hung.stderr + missing.stderr


def test_the_launchers_records_mark_its_phases(run_path: Path) -> None:
    launch(run_path, "--fresh-if-empty", trainer=("--save-every", "0", "--until-step", "1"))
    records = HookSpoolReader(run_path.parent / "hooks").read_new()
    ordered = sorted(records, key=lambda one: one.mono_seconds)
    assert [(one.kind, one.phase, one.edge) for one in ordered][:6] == [
        ("phase", "launch", "end"),
        ("phase", "resolve", "begin"),
        ("phase", "resolve", "end"),
        ("phase", "launch", "begin"),
        ("process_started", None, None),
        ("phase", "launch", "end"),
    ]
    assert len({one.pid for one in records}) == 1
    assert len({one.source for one in records}) == 2
