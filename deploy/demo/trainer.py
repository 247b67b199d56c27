"""Train the demo model: `python -m deploy.demo.trainer RUN_FOLDER --attempt demo-1 [--resume RUN_FOLDER/step-40]`.

A real, if small, training process: an MLP with Adam on the CPU, four rank shards, bit-deterministic for a seed, so
that the losses after a resume can be compared with those of an unbroken run, figure by figure.

Exit codes: 0 reached --until-step or was asked to stop, 1 a save failed, 7 nothing sound to resume from.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from muster_agent.hooks import RunReporter

EXIT_ERROR, EXIT_DAMAGE = 1, 7
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def main() -> int:
    arguments = build_parser().parse_args()
    reporter = RunReporter(run=arguments.run, attempt=arguments.attempt, rank=0)
    reporter.process_started()
    # One thread makes sums come out the same every time; it has to be said before numpy is imported.
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    from deploy.demo.checkpointing import UnusableCheckpoint
    from deploy.demo.training import TrainingOptions, train

    options = TrainingOptions(
        run_path=arguments.run_path,
        seed=arguments.seed,
        size=arguments.size,
        until_step=arguments.until_step,
        save_every=arguments.save_every,
        keep=arguments.keep,
        resume_path=arguments.resume,
        min_step_seconds=arguments.min_step_seconds,
    )
    log = StepLog(arguments.log_file)
    reporter.phase_ended("launch")
    try:
        train(options, reporter, log.write)
    except UnusableCheckpoint as problem:
        print(f"trainer: cannot resume: {problem}", file=sys.stderr)
        return EXIT_DAMAGE
    except OSError as problem:
        print(f"trainer: {problem}. Free space or fix the folder, then launch again.", file=sys.stderr)
        return EXIT_ERROR
    finally:
        reporter.close()
    return 0


class StepLog:
    """Lines on stdout and, where a file was named, appended to it, each as soon as it is known."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def write(self, line: str) -> None:
        print(line, flush=True)
        if self._path:
            with open(self._path, "a", encoding="utf-8") as stream:
                stream.write(line + "\n")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainer", description=__doc__.split("\n")[0])
    parser.add_argument("run_path", type=_absolute, metavar="RUN_FOLDER", help="an existing folder for checkpoints")
    parser.add_argument("--run", default="demo", help="the training run's name (default %(default)s)")
    parser.add_argument("--attempt", required=True, help="the name of this launch of the run")
    parser.add_argument("--resume", type=_absolute, metavar="PATH", help="checkpoint to resume from; none: step 0")
    parser.add_argument("--seed", type=int, default=7, help="(default %(default)s)")
    parser.add_argument("--size", choices=("tiny", "demo"), default="demo", help="model size (default %(default)s)")
    parser.add_argument("--until-step", type=int, metavar="N", help="end after step N (default: train until stopped)")
    parser.add_argument("--save-every", type=int, default=20, metavar="K", help="0 saves nothing (default %(default)s)")
    parser.add_argument("--keep", type=int, default=5, metavar="N", help="newest steps kept (default %(default)s)")
    parser.add_argument("--min-step-seconds", type=float, default=0.0, help="slow steps down to this (default 0)")
    parser.add_argument("--log-file", type=_absolute, metavar="FILE", help="append the `step N loss X` lines here too")
    return parser


def _absolute(text: str) -> Path:
    return Path(text).absolute()


if __name__ == "__main__":
    sys.exit(main())
