"""Launch one attempt: ask Muster which checkpoint to resume from, then become the trainer.

    python -m deploy.demo.launcher RUN_FOLDER --attempt demo-2 [--require sealed] -- --size demo --save-every 20

What follows `--` goes to the trainer as it stands. MUSTER_SERVER and MUSTER_TOKEN reach `muster resume-point` through
the environment. The trainer replaces this process (exec), so whoever watches the launcher's pid watches the trainer.

Exit codes, until the trainer takes over: 1 no usable answer, 2 usage, 3 nothing to resume from (a launcher that then
started at step 0 would quietly throw the run away), 6 no answer in time; any other is `muster resume-point`'s own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from muster_agent.hooks import RunReporter

EXIT_OK, EXIT_ERROR, EXIT_NOT_FOUND, EXIT_TIMEOUT = 0, 1, 3, 6


@dataclass(frozen=True, kw_only=True)
class Start:
    """Start the trainer: from `path`, or at step 0 where it is None."""

    path: str | None
    message: str


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Do not start; `exit_code` and `message` say why and what to do."""

    exit_code: int
    message: str


def main() -> int:
    arguments, trainer_arguments = parse_arguments(sys.argv[1:])
    with RunReporter(run=arguments.run, attempt=arguments.attempt) as reporter:
        reporter.phase_ended("launch")
        with reporter.phase("resolve"):
            decision = _resolve(arguments)
        print(f"launcher: {decision.message}", file=sys.stderr, flush=True)
        if isinstance(decision, Refusal):
            return decision.exit_code
        reporter.phase_began("launch")
    return become_trainer(arguments, decision, trainer_arguments)


def _resolve(arguments: argparse.Namespace) -> Start | Refusal:
    command = [find_muster(arguments.muster), "resume-point", str(arguments.run_path), "--json"]
    if arguments.require:
        command += ["--require", arguments.require]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=arguments.timeout_seconds)
    except subprocess.TimeoutExpired:
        return Refusal(
            exit_code=EXIT_TIMEOUT,
            message=f"`muster resume-point` gave no answer in {arguments.timeout_seconds:g} s; check that "
            f"{arguments.run_path} answers, then launch again",
        )
    except OSError as problem:
        return Refusal(exit_code=EXIT_ERROR, message=f"cannot run {command[0]}: {problem}; name it with --muster")
    sys.stderr.write(answer.stderr)
    return decide(answer.returncode, answer.stdout, fresh_if_empty=arguments.fresh_if_empty)


def decide(exit_code: int, output: str, *, fresh_if_empty: bool) -> Start | Refusal:
    """What `muster resume-point --json` answered, as a launcher acts on it. Pure.

    Only `no_checkpoints`, together with `fresh_if_empty`, starts at step 0. Checkpoints that exist and cannot be used
    never do.
    """
    if exit_code not in (EXIT_OK, EXIT_NOT_FOUND):
        return Refusal(exit_code=exit_code, message=f"`muster resume-point` failed with exit code {exit_code}")
    try:
        answer = json.loads(output)
        outcome, path, step = answer["outcome"], answer["path"], answer["step"]
        skipped = [f"{one['path']}: {'; '.join(one['reasons'])}" for one in answer["skipped"]]
    except (ValueError, KeyError, TypeError) as problem:
        return Refusal(exit_code=EXIT_ERROR, message=f"`muster resume-point` gave no usable answer ({problem!r})")
    passed_over = "".join(f"\n  passed over {line}" for line in skipped)
    if exit_code == EXIT_OK and outcome == "found" and path:
        return Start(path=path, message=f"resuming from step {step} at {path}{passed_over}")
    if outcome == "no_checkpoints" and fresh_if_empty:
        return Start(path=None, message="no checkpoints yet: starting at step 0")
    hint = (
        "start a new run with --fresh-if-empty"
        if outcome == "no_checkpoints"
        else "repair or restore a checkpoint, or relax --require"
    )
    return Refusal(exit_code=EXIT_NOT_FOUND, message=f"not starting: {outcome}; {hint}{passed_over}")


def become_trainer(arguments: argparse.Namespace, start: Start, trainer_arguments: list[str]) -> NoReturn:
    """Replace this process by the trainer."""
    command = [sys.executable, "-m", "deploy.demo.trainer", str(arguments.run_path)]
    command += ["--run", arguments.run, "--attempt", arguments.attempt]
    if start.path:
        command += ["--resume", start.path]
    os.execv(sys.executable, command + trainer_arguments)


def find_muster(given: str | None) -> str:
    """The `muster` command: the one named, else the one beside this Python, else the one on PATH."""
    beside = Path(sys.executable).parent / "muster"
    return given or (str(beside) if beside.exists() else shutil.which("muster") or "muster")


def parse_arguments(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The launcher's own arguments, and the trainer's: what follows the first `--`."""
    split = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(
        prog="launcher", description=(__doc__ or "").split("\n")[0], epilog="What follows -- goes to the trainer."
    )
    parser.add_argument("run_path", type=lambda text: Path(text).absolute(), metavar="RUN_FOLDER")
    parser.add_argument("--run", default="demo", help="the training run's name (default %(default)s)")
    parser.add_argument("--attempt", required=True, help="the name of this launch of the run")
    parser.add_argument("--require", help="the trust a checkpoint needs, as for `muster resume-point`")
    parser.add_argument("--fresh-if-empty", action="store_true", help="start at step 0 where no checkpoint exists yet")
    parser.add_argument("--muster", help="path of the muster command (default: beside this Python, else on PATH)")
    parser.add_argument("--timeout-seconds", type=float, default=60.0, help="for the answer (default %(default)s)")
    return parser.parse_args(argv[:split]), argv[split + 1 :]


if __name__ == "__main__":
    sys.exit(main())
