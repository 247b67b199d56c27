"""A small scheduler with one policy, requeue on failure: what Slurm or Kubernetes does for a real run.

    python -m deploy.demo.scheduler RUN_FOLDER --slots node-1,node-2 -- --require sealed -- --size demo

It starts one attempt through the launcher, waits for the process to end, and when it failed chooses another slot and
launches the next attempt, a bounded number of times. What follows the first `--` goes to the launcher, what follows
the second to the trainer. Attempts are named `<run>-<n>`. SIGTERM or SIGINT ends the attempt that runs, then this.

Exit codes: 0 the run finished or was asked to stop, 2 and 3 as the launcher's (a restart would not help), 1 the
restarts are used up.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from muster_agent.hooks import RunReporter
from muster_agent.hooks.paths import DIRECTORY_VARIABLE

REPOSITORY_ROOT = Path(__file__).resolve().parents[2]
EXIT_OK, EXIT_ERROR = 0, 1
FINAL_EXIT_CODES = frozenset({2, 3})
"""Usage errors and "nothing to resume from" stay as they are however often they are tried."""
STOP_GRACE_SECONDS = 20.0


def main() -> int:
    arguments, launcher_arguments = parse_arguments(sys.argv[1:])
    scheduler = Scheduler(
        run_path=arguments.run_path,
        run=arguments.run,
        slots=arguments.slots,
        max_restarts=arguments.max_restarts,
        first_attempt=arguments.first_attempt,
        backoff_seconds=arguments.backoff_seconds,
        hook_root=arguments.hook_root,
        launcher_arguments=launcher_arguments,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: scheduler.stop())
    return scheduler.run_to_the_end()


class Scheduler:
    """Keeps one run going. `run_to_the_end` blocks; `stop` may be called from a signal handler."""

    def __init__(
        self,
        *,
        run_path: Path,
        run: str,
        slots: Sequence[str],
        max_restarts: int,
        first_attempt: int,
        backoff_seconds: float,
        hook_root: Path | None,
        launcher_arguments: Sequence[str],
    ) -> None:
        self._run_path = run_path
        self._run = run
        self._slots = slots
        self._max_restarts = max_restarts
        self._first_attempt = first_attempt
        self._backoff_seconds = backoff_seconds
        self._hook_root = hook_root
        self._launcher_arguments = launcher_arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def run_to_the_end(self) -> int:
        """Launch, watch, relaunch; gives the exit code."""
        slot = self._slots[0]
        for number in range(self._first_attempt, self._first_attempt + self._max_restarts + 1):
            with RunReporter(run=self._run, attempt=f"{self._run}-{number}") as reporter:
                status = self._attempt(reporter, slot)
                if self._stopping or status == EXIT_OK:
                    return EXIT_OK
                reporter.failure_detected(**describe_exit(status), slot=slot)
            _say(f"attempt {reporter.attempt} on {slot} ended: {describe_exit(status)}")
            if status in FINAL_EXIT_CODES:
                return status
            slot = next_slot(self._slots, slot)
            self._pause()
            if self._stopping:
                return EXIT_OK
        _say(f"giving up after {self._max_restarts} restarts")
        return EXIT_ERROR

    def stop(self) -> None:
        """Ask the attempt that runs to end, and start no other. It gets STOP_GRACE_SECONDS to finish a save."""
        self._stopping = True
        self._signal_attempt(signal.SIGTERM)
        last_resort = threading.Timer(STOP_GRACE_SECONDS, self._signal_attempt, [signal.SIGKILL])
        last_resort.daemon = True
        last_resort.start()

    def _attempt(self, reporter: RunReporter, slot: str) -> int:
        """One attempt from launch to end; gives its status as subprocess does (negative: a signal's number)."""
        reporter.launch_started(slot=slot)
        reporter.phase_began("launch")
        command = [sys.executable, "-m", "deploy.demo.launcher", str(self._run_path)]
        command += ["--run", self._run, "--attempt", reporter.attempt, *self._launcher_arguments]
        environment = dict(os.environ)
        if self._hook_root is not None:
            environment[DIRECTORY_VARIABLE] = str(self._hook_root / slot)
        _say(f"attempt {reporter.attempt} starts on {slot}")
        # A session of its own, so that the whole attempt can be ended, and a Ctrl-C reaches it only through us.
        self._process = subprocess.Popen(command, cwd=REPOSITORY_ROOT, env=environment, start_new_session=True)
        if self._stopping:
            self._signal_attempt(signal.SIGTERM)
        # Blocks in waitpid: the failure is detected when the kernel reports it, not at some next poll.
        return self._process.wait()

    def _pause(self) -> None:
        deadline = time.monotonic() + self._backoff_seconds
        while not self._stopping and time.monotonic() < deadline:
            time.sleep(0.05)

    def _signal_attempt(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def next_slot(slots: Sequence[str], failed: str) -> str:
    """The slot after the one that failed: it may be the cause. With one slot there is no choice. Pure."""
    return slots[(slots.index(failed) + 1) % len(slots)]


def describe_exit(status: int) -> dict[str, int | str]:
    """A status of `subprocess` in words. Pure."""
    if status >= 0:
        return {"exit_code": status}
    return {"signal": signal.Signals(-status).name}


def parse_arguments(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The scheduler's own arguments, and the launcher's: what follows the first `--`."""
    split = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(
        prog="scheduler",
        description=(__doc__ or "").split("\n")[0],
        epilog="What follows the first -- goes to the launcher.",
    )
    parser.add_argument("run_path", type=lambda text: Path(text).absolute(), metavar="RUN_FOLDER")
    parser.add_argument("--run", default="demo", help="the training run's name (default %(default)s)")
    parser.add_argument("--slots", type=_names, default=["slot-1"], help="comma-separated names of places to run on")
    parser.add_argument("--max-restarts", type=int, default=5, help="(default %(default)s)")
    parser.add_argument("--first-attempt", type=int, default=1, metavar="N", help="number of the first attempt")
    parser.add_argument("--backoff-seconds", type=float, default=0.5, help="before a restart (default %(default)s)")
    parser.add_argument(
        "--hook-root",
        type=lambda text: Path(text).absolute(),
        metavar="FOLDER",
        help="an attempt's hook records go to FOLDER/SLOT, which must exist, as each node's agent reads its own folder",
    )
    return parser.parse_args(argv[:split]), argv[split + 1 :]


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or len(set(names)) != len(names):
        raise argparse.ArgumentTypeError("give at least one name, each once")
    return names


def _say(line: str) -> None:
    print(f"scheduler: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
