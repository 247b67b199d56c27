"""A trainer that was killed at any moment resumes to the very losses of an unbroken run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from muster_agent.formats.base import Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.hooks.spool_reader import HookSpoolReader
from muster_agent.protocol.wire import HookRecord

from deploy.demo.checkpointing import CheckpointReader, committed_steps
from deploy.demo.model import WORLD_SIZE
from deploy.demo.training import Trainer

REPOSITORY_ROOT = Path(__file__).resolve().parents[2]
STEP_LINE = re.compile(r"step (\d+) loss (\S+)")


def trainer_command(run_path: Path, *arguments: str) -> list[str]:
    base = [sys.executable, "-m", "deploy.demo.trainer", str(run_path), "--attempt", "demo-1", "--size", "tiny"]
    return [*base, *arguments]


def start_trainer(run_path: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "MUSTER_HOOK_DIR": str(run_path.parent / "hooks")}
    return subprocess.Popen(
        trainer_command(run_path, *arguments),
        cwd=REPOSITORY_ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def train(run_path: Path, *arguments: str) -> str:
    process = start_trainer(run_path, *arguments)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return output


def losses(output: str) -> dict[int, str]:
    """Step -> loss exactly as printed: equal texts are equal floats, bit for bit."""
    return {int(step): loss for step, loss in STEP_LINE.findall(output)}


def records(run_path: Path) -> list[HookRecord]:
    return HookSpoolReader(run_path.parent / "hooks").read_new()


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    return path


def kill_after_step(process: subprocess.Popen[str], step: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        match = STEP_LINE.match(line)
        if match and int(match[1]) >= step:
            break
    process.kill()
    process.communicate()


def test_losses_after_kill_and_resume_equal_those_of_an_unbroken_run(run_path: Path) -> None:
    process = start_trainer(run_path, "--save-every", "10")
    kill_after_step(process, 25)
    newest = run_path / f"step-{committed_steps(run_path)[0]}"
    first = int(newest.name.partition("-")[2])
    resumed = losses(train(run_path, "--resume", str(newest), "--until-step", str(first + 300)))
    unbroken = losses(train(run_path, "--save-every", "0", "--until-step", str(first + 300)))
    assert list(resumed) == list(range(first + 1, first + 301))
    assert resumed == {step: unbroken[step] for step in resumed}
    assert len(set(resumed.values())) > 250


@pytest.mark.parametrize(
    "part",
    ["model.", "optimizer.exp_avg.", "optimizer.exp_avg_sq.", "optimizer.step", "rng.state", "dataloader.position"],
)
def test_a_state_that_lacks_any_part_gives_other_losses(part: str) -> None:
    """So the comparison above proves that every part was saved and restored."""
    saved, fresh, whole = (Trainer("tiny", 7) for _ in range(3))
    saved.model.initialize(7)
    fresh.model.initialize(7)
    for _ in range(10):
        saved.train_step()
    for rank in range(WORLD_SIZE):
        state = {name: array.copy() for name, array in saved.rank_state(rank).items()}
        whole.load_rank_state(rank, state)
        lacking = {name: array for name, array in fresh.rank_state(rank).items() if name.startswith(part)}
        assert lacking
        fresh.load_rank_state(rank, {**state, **{name: array.copy() for name, array in lacking.items()}})
    expected = [saved.train_step() for _ in range(5)]
    assert [whole.train_step() for _ in range(5)] == expected
    assert [fresh.train_step() for _ in range(5)] != expected


def test_a_reference_run_saves_nothing(run_path: Path) -> None:
    train(run_path, "--until-step", "30", "--save-every", "0")
    assert list(run_path.iterdir()) == []


@pytest.mark.parametrize("delay_seconds", [0.004 * number for number in range(1, 6)])
def test_a_kill_during_a_save_leaves_the_step_before_resumable(run_path: Path, delay_seconds: float) -> None:
    """Saving after every step, so that a kill at any moment falls into a save; each delay falls elsewhere in it."""
    process = start_trainer(run_path, "--save-every", "1", "--keep", "3")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("saved step 4"):
            break
    time.sleep(delay_seconds)
    process.kill()
    process.communicate()
    steps = committed_steps(run_path)
    assert steps[0] >= 4
    assert len(steps) in (3, 4)
    for step in steps:
        reader = CheckpointReader(run_path / f"step-{step}", world_size=4)
        reader.allocate()
        reader.read()
        reader.verify()
        assert read_checkpoint(run_path / f"step-{step}").status == Status.COMPLETE
    for left in {path.name for path in run_path.iterdir()} - {f"step-{step}" for step in steps}:
        assert read_checkpoint(run_path / left).status != Status.COMPLETE, left
    output = train(run_path, "--resume", str(run_path / f"step-{steps[0]}"), "--until-step", str(steps[0] + 5))
    assert list(losses(output)) == list(range(steps[0] + 1, steps[0] + 6))


def test_five_steps_are_kept_and_the_loaded_one(run_path: Path) -> None:
    train(run_path, "--save-every", "2", "--until-step", "20")
    assert committed_steps(run_path) == [20, 18, 16, 14, 12]
    train(run_path, "--save-every", "2", "--until-step", "30", "--resume", str(run_path / "step-12"))
    assert committed_steps(run_path) == [30, 28, 26, 24, 22, 12]


def test_a_damaged_checkpoint_is_refused_with_a_clear_message(run_path: Path) -> None:
    train(run_path, "--save-every", "10", "--until-step", "10")
    file = run_path / "step-10" / "rank-00002-of-00004.safetensors"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x10
    file.write_bytes(data)
    process = start_trainer(run_path, "--resume", str(run_path / "step-10"))
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 7
    assert losses(output) == {}
    assert "rank-00002-of-00004.safetensors" in errors
    assert "muster resume-point" in errors
    assert "Traceback" not in errors
    assert [(one.edge, one.data) for one in records(run_path) if one.phase == "verify"][-1] == (
        "end",
        {"failed": "UnusableCheckpoint"},
    )


@pytest.mark.parametrize("arguments", [("--seed", "8"), ("--size", "demo")])
def test_another_seed_or_size_than_the_saved_is_refused(run_path: Path, arguments: tuple[str, str]) -> None:
    train(run_path, "--save-every", "10", "--until-step", "10")
    process = start_trainer(run_path, "--resume", str(run_path / "step-10"), *arguments)
    _output, errors = process.communicate(timeout=60)
    assert process.returncode == 7
    assert "same seed and size" in errors


def test_a_run_folder_that_does_not_exist_gives_a_clear_error(tmp_path: Path) -> None:
    process = start_trainer(tmp_path / "missing", "--save-every", "1", "--until-step", "1")
    _output, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "missing" in errors
    assert "Traceback" not in errors


def test_sigterm_ends_after_the_step_at_hand(run_path: Path) -> None:
    process = start_trainer(run_path, "--save-every", "5", "--min-step-seconds", "0.01")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step 7 "):
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    kinds = [one.kind for one in records(run_path)]
    assert kinds[-1] == "process_ended"
    assert kinds.count("save_started") == kinds.count("save_finished")


def test_the_lines_go_to_the_log_file_too(run_path: Path) -> None:
    log = run_path.parent / "train.log"
    output = train(run_path, "--until-step", "5", "--save-every", "0", "--log-file", str(log))
    assert log.read_text() == output
    assert list(losses(output)) == [1, 2, 3, 4, 5]


def test_the_records_of_a_resumed_attempt_are_complete_and_in_order(run_path: Path) -> None:
    train(run_path, "--save-every", "10", "--until-step", "10")
    reader = HookSpoolReader(run_path.parent / "hooks")
    reader.read_new()
    reader.commit()
    output = train(run_path, "--save-every", "2", "--until-step", "12", "--resume", str(run_path / "step-10"))
    found = reader.read_new()
    assert [(one.kind, one.phase, one.edge, one.step) for one in found] == [
        ("process_started", None, None, None),
        ("phase", "launch", "end", None),
        ("phase", "allocate", "begin", None),
        ("phase", "allocate", "end", None),
        ("phase", "read", "begin", None),
        ("phase", "read", "end", None),
        ("phase", "verify", "begin", None),
        ("phase", "verify", "end", None),
        ("phase", "materialize", "begin", None),
        ("phase", "materialize", "end", None),
        ("resumed_from", None, None, 10),
        ("phase", "first_step", "begin", None),
        ("phase", "first_step", "end", None),
        ("step", None, None, 11),
        ("step", None, None, 12),
        ("save_started", None, None, 12),
        ("save_finished", None, None, 12),
        ("process_ended", None, None, None),
    ]
    assert [one.seq for one in found] == list(range(1, len(found) + 1))
    assert {one.step: repr(one.loss) for one in found if one.kind == "step"} == losses(output)
    assert found[10].data == {"path": str(run_path / "step-10")}
