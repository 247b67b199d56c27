"""Lightning: a mix-in for its callback class, so that nothing here imports lightning.

from lightning.pytorch import Callback, Trainer
from muster_agent.hooks.lightning import LightningReports

class Muster(LightningReports, Callback):
    pass

Trainer(..., callbacks=[Muster(RunReporter(run="llama-7b", attempt=attempt, rank=rank))])
"""

from __future__ import annotations

import os
from typing import Any

from muster_agent.hooks.quietly import quietly
from muster_agent.hooks.reporter import RunReporter
from muster_agent.hooks.saving import reported_save


class LightningReports:
    """Optimizer steps, saves through the Trainer (`ModelCheckpoint` uses it too), and where training resumed.

    A save ends when `trainer.save_checkpoint` returns: with an asynchronous checkpoint plug-in that is before the
    commit. Saves of weights alone are no points to resume from and are not reported.
    """

    def __init__(self, reporter: RunReporter) -> None:
        self.reporter = reporter
        self._step = 0

    @quietly
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            self.reporter.process_started()
            self._report_saves_of(trainer)

    @quietly
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._step = trainer.global_step
        if self._step > 0 and trainer.ckpt_path:
            self.reporter.resumed_from(self._step, os.path.abspath(trainer.ckpt_path))

    @quietly
    def on_train_batch_end(self, trainer: Any, *_given: Any, **_more: Any) -> None:
        """With accumulated gradients several batches are one step."""
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            self.reporter.step(self._step)

    @quietly
    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self.reporter.close()

    def _report_saves_of(self, trainer: Any) -> None:
        """Callbacks learn of a save before it and not after it, so the Trainer's own method is followed."""
        save = trainer.save_checkpoint
        if getattr(save, "reported_by_muster", False):
            return

        def save_checkpoint(filepath: Any, weights_only: Any = False, *args: Any, **kwargs: Any) -> Any:
            if weights_only or not trainer.is_global_zero:
                return save(filepath, weights_only, *args, **kwargs)
            with reported_save(self.reporter, trainer.global_step, os.path.abspath(filepath)):
                return save(filepath, weights_only, *args, **kwargs)

        save_checkpoint.reported_by_muster = True  # type: ignore[attr-defined]
        trainer.save_checkpoint = save_checkpoint
