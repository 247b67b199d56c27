"""The demo scheduler restarts what failed, only through the launcher, a bounded number of times, and cleans up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from muster_agent.hooks.registry import RegisteredProcess, live_processes
from muster_agent.hooks.spool_reader import HookSpoolReader
from muster_agent.protocol.wire import HookRecord

from deploy.demo.scheduler import describe_exit, next_slot

REPOSITORY_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    return path


@pytest.fixture
def scheduler(run_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts schedulers; ends them, and so everything below them, when the test does."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, launcher: tuple[str, ...] = (), trainer: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "deploy.demo.scheduler", str(run_path), "--backoff-seconds", "0.1", *arguments]
        process = subprocess.Popen(
            [*command, "--", *launcher, "--", "--size", "tiny", "--min-step-seconds", "0.02", *trainer],
            cwd=REPOSITORY_ROOT,
            env={**os.environ, "MUSTER_HOOK_DIR": str(run_path.parent / "hooks")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=60)


def read_until(process: subprocess.Popen[str], start: str) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith(start):
            return lines
    raise AssertionError(f"ended without {start!r}: {lines[-3:]}")


def the_trainer(run_path: Path) -> RegisteredProcess:
    (found,) = live_processes(run_path.parent / "hooks", "demo")
    return found


def in_time(records: list[HookRecord]) -> list[HookRecord]:
    return sorted(records, key=lambda one: one.mono_seconds)


@pytest.mark.slow
def test_a_killed_trainer_is_restarted_and_every_phase_has_its_records(
    run_path: Path, scheduler: Callable[..., subprocess.Popen[str]]
) -> None:
    process = scheduler(
        "--slots", "node-1,node-2", launcher=("--fresh-if-empty",), trainer=("--save-every", "10", "--until-step", "80")
    )
    read_until(process, "step 25 ")
    killed = the_trainer(run_path)
    killed_at = time.monotonic()
    os.kill(killed.pid, signal.SIGKILL)
    lines, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "\nstep 80 " in lines
    assert "attempt demo-2 starts on node-2" in errors

    records = in_time(HookSpoolReader(run_path.parent / "hooks").read_new())
    (detected,) = [one for one in records if one.kind == "failure_detected"]
    after = [one for one in records if one.attempt == "demo-2"]
    assert (detected.attempt, detected.data) == ("demo-1", {"signal": "SIGKILL", "slot": "node-1"})
    assert killed_at < detected.mono_seconds < killed_at + 5
    assert (after[0].kind, after[0].data) == ("launch_started", {"slot": "node-2"})
    assert after[0].mono_seconds >= detected.mono_seconds + 0.1
    until_first_step = [
        one for one in after if one.mono_seconds <= next(a for a in after if a.kind == "step").mono_seconds
    ]
    assert [(one.kind, one.phase, one.edge) for one in until_first_step] == [
        ("launch_started", None, None),
        ("phase", "launch", "begin"),
        ("phase", "launch", "end"),
        ("phase", "resolve", "begin"),
        ("phase", "resolve", "end"),
        ("phase", "launch", "begin"),
        ("process_started", None, None),
        ("phase", "launch", "end"),
        ("phase", "allocate", "begin"),
        ("phase", "allocate", "end"),
        ("phase", "read", "begin"),
        ("phase", "read", "end"),
        ("phase", "verify", "begin"),
        ("phase", "verify", "end"),
        ("phase", "materialize", "begin"),
        ("phase", "materialize", "end"),
        ("resumed_from", None, None),
        ("phase", "first_step", "begin"),
        ("phase", "first_step", "end"),
        ("step", None, None),
    ]
    resumed = next(one for one in after if one.kind == "resumed_from")
    assert f"resumed from step {resumed.step} at {run_path}/step-{resumed.step}\n" in lines
    assert resumed.step in {one.step for one in records if one.kind == "save_finished" and one.attempt == "demo-1"}
    assert until_first_step[-1].step == (resumed.step or 0) + 1


def test_restarts_are_bounded(run_path: Path, scheduler: Callable[..., subprocess.Popen[str]]) -> None:
    process = scheduler("--max-restarts", "2", launcher=("--fresh-if-empty", "--muster", "/no/such/muster"))
    _lines, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.count("starts on") == 3
    assert "giving up after 2 restarts" in errors
    records = in_time(HookSpoolReader(run_path.parent / "hooks").read_new())
    assert [one.attempt for one in records if one.kind == "launch_started"] == ["demo-1", "demo-2", "demo-3"]
    assert [one.data["exit_code"] for one in records if one.kind == "failure_detected"] == [1, 1, 1]


def test_a_launch_that_has_nothing_to_resume_from_is_not_tried_again(
    run_path: Path, scheduler: Callable[..., subprocess.Popen[str]]
) -> None:
    process = scheduler()
    _lines, errors = process.communicate(timeout=60)
    assert process.returncode == 3
    assert errors.count("starts on") == 1


def test_attempts_go_on_from_the_number_given(run_path: Path, scheduler: Callable[..., subprocess.Popen[str]]) -> None:
    process = scheduler("--first-attempt", "7", launcher=("--fresh-if-empty",), trainer=("--until-step", "2"))
    _lines, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "attempt demo-7 starts" in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_being_stopped_ends_the_attempt_and_starts_no_other(
    run_path: Path, scheduler: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    process = scheduler(launcher=("--fresh-if-empty",))
    read_until(process, "step 5 ")
    trainer = the_trainer(run_path)
    process.send_signal(number)
    _lines, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert live_processes(run_path.parent / "hooks", "demo") == []
    assert not Path(f"/proc/{trainer.pid}").exists()
    assert errors.count("starts on") == 1
    assert "failure_detected" not in [one.kind for one in HookSpoolReader(run_path.parent / "hooks").read_new()]


def test_each_slot_has_its_own_hook_folder_where_asked(
    run_path: Path, scheduler: Callable[..., subprocess.Popen[str]]
) -> None:
    root = run_path.parent / "nodes"
    (root / "node-1").mkdir(parents=True)
    process = scheduler(
        *("--slots", "node-1", "--hook-root", str(root)), launcher=("--fresh-if-empty",), trainer=("--until-step", "2")
    )
    process.communicate(timeout=60)
    assert process.returncode == 0
    on_the_node = {one.kind for one in HookSpoolReader(root / "node-1").read_new()}
    beside_the_scheduler = {one.kind for one in HookSpoolReader(run_path.parent / "hooks").read_new()}
    assert on_the_node >= {"process_started", "step", "process_ended"}
    assert beside_the_scheduler == {"launch_started", "phase"}


def test_slots_are_taken_in_turn() -> None:
    assert next_slot(["a", "b", "c"], "a") == "b"
    assert next_slot(["a", "b", "c"], "c") == "a"
    assert next_slot(["a"], "a") == "a"


def test_an_exit_is_described_by_signal_or_code() -> None:
    assert describe_exit(-9) == {"signal": "SIGKILL"}
    assert describe_exit(7) == {"exit_code": 7}
