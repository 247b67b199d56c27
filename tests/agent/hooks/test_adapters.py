"""What trainers use around the reporter: saves, the resume point of all ranks, and the callbacks of two frameworks."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from muster_agent.hooks import RunReporter
from muster_agent.hooks.injection import InjectedFault
from muster_agent.hooks.lightning import LightningReports
from muster_agent.hooks.quietly import quietly
from muster_agent.hooks.resuming import CannotResume, ResumePoint, interpreted, resume_point
from muster_agent.hooks.saving import report_async_save, reported_save
from muster_agent.hooks.transformers import TrainerReports
from muster_agent.protocol.wire import HookRecord


@pytest.fixture
def reporter(tmp_path: Path) -> RunReporter:
    return RunReporter("llama", "llama-1", rank=0, directory=tmp_path)


def told(reporter: RunReporter, directory: Path) -> list[tuple[str, int | None]]:
    reporter.close()
    lines = [line for file in directory.glob("*.jsonl") for line in file.read_bytes().splitlines()]
    return [(one.kind, one.step) for one in (msgspec.json.decode(line, type=HookRecord) for line in lines)]


# -- saves -------------------------------------------------------------------------------------------------------------


def test_a_save_is_reported_from_its_beginning_to_its_end(reporter: RunReporter, tmp_path: Path) -> None:
    with reported_save(reporter, 20, "/ckpt/step-20"):
        pass
    assert told(reporter, tmp_path) == [("save_started", 20), ("save_finished", 20)]


def test_a_save_that_fails_is_never_reported_as_finished(reporter: RunReporter, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), reported_save(reporter, 20, "/ckpt/step-20"):
        raise OSError("the disk is full")
    assert told(reporter, tmp_path) == [("save_started", 20)]


@pytest.mark.parametrize("fails", [False, True])
def test_an_asynchronous_save_is_finished_when_its_future_is(
    reporter: RunReporter, tmp_path: Path, fails: bool
) -> None:
    future: Future[None] = Future()
    report_async_save(reporter, 20, "/ckpt/step-20", future)
    complete = (lambda: future.set_exception(OSError("full"))) if fails else (lambda: future.set_result(None))
    thread = threading.Thread(target=complete)
    thread.start()
    thread.join()
    assert told(reporter, tmp_path) == ([] if fails else [("save_finished", 20)])


# -- never in the way --------------------------------------------------------------------------------------------------


def test_what_goes_wrong_in_a_callback_is_said_once_and_training_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    @quietly
    def on_step_end() -> None:
        raise AttributeError("another version of the framework")

    assert [on_step_end() for _step in range(3)] == [None, None, None]
    assert caplog.text.count("another version of the framework") == 1


def test_a_fault_that_a_drill_asked_for_passes() -> None:
    @quietly
    def step() -> None:
        raise InjectedFault("asked for")

    with pytest.raises(InjectedFault):
        step()


# -- the resume point of all ranks -------------------------------------------------------------------------------------

ANSWER = {"outcome": "found", "path": "/ckpt/step-40", "step": 40}


@pytest.mark.parametrize(
    ("exit_code", "answer", "expected"),
    [
        (0, ANSWER, ("/ckpt/step-40", 40, "")),
        (3, {"outcome": "no_checkpoints", "path": None, "step": None}, (None, None, "")),
    ],
)
def test_an_answer_is_followed(exit_code: int, answer: dict[str, Any], expected: tuple[Any, ...]) -> None:
    found = interpreted(exit_code, json.dumps(answer), "")
    assert (found["path"], found["step"], found["refused"]) == expected


@pytest.mark.parametrize(
    ("exit_code", "output"),
    [
        (3, json.dumps({"outcome": "nothing_resumable", "path": None, "step": None})),
        (3, json.dumps({"outcome": "step_absent", "path": None, "step": None})),
        (1, json.dumps({"outcome": "unknown", "path": None, "step": None})),
        (1, json.dumps(ANSWER)),
        (2, ""),
        (0, "no json"),
        (-9, ""),
    ],
)
def test_training_never_starts_afresh_where_checkpoints_may_be(exit_code: int, output: str) -> None:
    assert interpreted(exit_code, output, "said")["refused"]


def test_every_rank_gets_the_answer_of_rank_0_also_a_refusal(tmp_path: Path) -> None:
    """The real command, on an empty folder and on one that is not there."""
    sent: list[Any] = []

    def broadcast_from_0(told: list[Any]) -> None:
        sent[:] = told

    def broadcast_to_1(told: list[Any]) -> None:
        told[:] = sent

    assert resume_point(tmp_path, rank=0, broadcast=broadcast_from_0) == ResumePoint(path=None, step=None)
    assert resume_point(tmp_path / "gone", rank=1, broadcast=broadcast_to_1) == ResumePoint(path=None, step=None)
    with pytest.raises(CannotResume):
        resume_point(tmp_path / "gone", rank=0, broadcast=broadcast_from_0)
    with pytest.raises(CannotResume):
        resume_point(tmp_path, rank=1, broadcast=broadcast_to_1)


# -- callbacks ---------------------------------------------------------------------------------------------------------


def test_the_trainer_s_events_become_reports(reporter: RunReporter, tmp_path: Path) -> None:
    reports = TrainerReports(reporter)
    args = SimpleNamespace(output_dir=str(tmp_path / "out"))
    state = SimpleNamespace(global_step=10, is_world_process_zero=True)
    control = SimpleNamespace(should_save=False)
    reports.on_train_begin(args, state, control, model=None)
    for step in (11, 12):
        state.global_step, control.should_save = step, step == 12
        reports.on_step_end(args, state, control, optimizer=None)
    reports.on_save(args, state, control)
    reports.on_train_end(args, state, control)
    assert told(reporter, tmp_path) == [
        ("process_started", None), ("resumed_from", 10), ("step", 11), ("save_started", 12), ("step", 12),
        ("save_finished", 12), ("process_ended", None),
    ]  # fmt: skip


def test_lightning_s_batches_of_one_step_are_one_report_and_saves_are_followed(
    reporter: RunReporter, tmp_path: Path
) -> None:
    saved: list[tuple[str, bool]] = []
    trainer = SimpleNamespace(
        global_step=0, ckpt_path=None, is_global_zero=True,
        save_checkpoint=lambda path, weights_only=False: saved.append((path, weights_only)),
    )  # fmt: skip
    reports = LightningReports(reporter)
    reports.setup(trainer, None, "fit")
    reports.setup(trainer, None, "fit")
    reports.on_train_start(trainer, None)
    for batch in range(4):
        trainer.global_step = (batch + 1) // 2
        reports.on_train_batch_end(trainer, None, None, None, batch)
    trainer.save_checkpoint("a.ckpt")
    trainer.save_checkpoint("weights.ckpt", True)
    reports.on_fit_end(trainer, None)
    assert saved == [("a.ckpt", False), ("weights.ckpt", True)]
    kinds = [one for one in told(reporter, tmp_path) if one[0] != "process_started"]
    assert kinds == [("step", 1), ("step", 2), ("save_started", 2), ("save_finished", 2), ("process_ended", None)]


def test_the_callbacks_import_no_framework() -> None:
    script = (
        "import sys, muster_agent.hooks.lightning, muster_agent.hooks.transformers, muster_agent.hooks.resuming;"
        "print([name for name in ('torch', 'lightning', 'transformers', 'django') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
