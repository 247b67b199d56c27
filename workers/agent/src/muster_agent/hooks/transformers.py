"""Hugging Face's Trainer: a mix-in for its callback class, so that nothing here imports transformers.

from transformers import Trainer, TrainerCallback
from muster_agent.hooks.transformers import TrainerReports

class Muster(TrainerReports, TrainerCallback):
    pass

Trainer(..., callbacks=[Muster(RunReporter(run="llama-7b", attempt=attempt, rank=rank))])
"""

from __future__ import annotations

import os
from typing import Any

from muster_agent.hooks.quietly import quietly
from muster_agent.hooks.reporter import RunReporter


class TrainerReports:
    """Steps (with the loss on the steps where the Trainer logs it), saves, and where training resumed.

    A save begins when the Trainer has decided on it and ends when it calls `on_save`, which is after every file of
    rank 0 was written.
    """

    def __init__(self, reporter: RunReporter) -> None:
        self.reporter = reporter
        self._loss: float | None = None

    @quietly
    def on_train_begin(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        self.reporter.process_started()
        if state.global_step > 0:
            self.reporter.resumed_from(state.global_step, checkpoint_path(args, state.global_step))

    @quietly
    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_more: Any) -> None:
        loss = (logs or {}).get("loss")
        self._loss = float(loss) if loss is not None else None

    @quietly
    def on_step_end(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        """The Trainer logs after this, so a loss goes along with the step behind it."""
        loss, self._loss = self._loss, None
        if control.should_save and state.is_world_process_zero:
            self.reporter.save_started(state.global_step)
        self.reporter.step(state.global_step, loss=loss)

    @quietly
    def on_save(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        if state.is_world_process_zero:
            self.reporter.save_finished(state.global_step, checkpoint_path(args, state.global_step))

    @quietly
    def on_train_end(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        self.reporter.close()


def checkpoint_path(args: Any, step: int) -> str:
    """As the Trainer names it."""
    return os.path.join(os.path.abspath(args.output_dir), f"checkpoint-{step}")
