"""The training job under its scheduler, and the unbroken reference that it is compared with."""

from __future__ import annotations

import sys
from pathlib import Path

from deploy.demo.losses import Comparison, compare, parse_attempts
from deploy.embedded import Children

RUN_NAME = "demo-mlp"
SAVE_EVERY_STEPS = 40
STEP_SECONDS = 0.4


class TrainingJob:
    """Starts the scheduler (which starts the trainer through the launcher) and the reference; reads their losses."""

    def __init__(self, folder: Path, children: Children) -> None:
        self._children = children
        self.run_folder = folder / "checkpoints" / RUN_NAME
        self.run_folder.mkdir(parents=True, exist_ok=True)
        self._losses_file = folder / "losses.log"
        self._reference_file = folder / "losses-reference.log"
        self._reference_folder = folder / "reference"
        self._reference_folder.mkdir(exist_ok=True)

    def start(self, environment: dict[str, str]) -> None:
        scheduler = ["-m", "deploy.demo.scheduler", str(self.run_folder), "--run", RUN_NAME, "--slots", "node-1"]
        launcher = ["--require", "sealed", "--fresh-if-empty"]
        trainer = ["--save-every", str(SAVE_EVERY_STEPS), "--keep", "5", "--min-step-seconds", str(STEP_SECONDS)]
        command = [*scheduler, "--", *launcher, "--", *trainer, "--log-file", str(self._losses_file)]
        self._children.start("scheduler", [sys.executable, *command], environment)

    def start_reference(self, environment: dict[str, str]) -> None:
        """The same seed from step 0, never broken, saving nothing; a process of its own."""
        trainer = ["-m", "deploy.demo.trainer", str(self._reference_folder), "--run", "reference", "--attempt", "1"]
        pace = ["--save-every", "0", "--min-step-seconds", str(STEP_SECONDS), "--log-file", str(self._reference_file)]
        own_hooks = {**environment, "MUSTER_HOOK_DIR": str(self._reference_folder / "hooks")}
        self._children.start("reference", [sys.executable, *trainer, *pace], own_hooks)

    def compare_with_reference(self, resumed_from: int) -> Comparison | None:
        """The newest attempt's steps against the reference's; None until it resumed from that step."""
        newest = parse_attempts(_text(self._losses_file))[-1]
        if newest.resumed_from != resumed_from:
            return None
        reference = parse_attempts(_text(self._reference_file))[0]
        return compare(newest.losses, reference.losses)

    def last_step(self) -> int:
        attempts = parse_attempts(_text(self._losses_file))
        return max(attempts[-1].losses) if attempts else 0


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
