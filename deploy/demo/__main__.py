"""`make demo`: the main job on real input, on this machine, with nothing installed beforehand."""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import IO

from deploy.demo import folder as demo_folder
from deploy.demo.control_plane import ControlPlane, DemoFailure
from deploy.demo.nodes import Nodes
from deploy.demo.story import Story, summary_rows
from deploy.demo.terminal import Terminal
from deploy.demo.training_job import TrainingJob
from deploy.embedded import CHECKOUT, EmbeddedStack, StackError, clean_environment

OWN_FOLDER = CHECKOUT / ".demo"
USER = "demo"


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """Ctrl-C, SIGTERM or a closed terminal."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--once", action="store_true", help="end after the summary instead of staying up")
    parser.add_argument("--folder", type=Path, default=OWN_FOLDER, help="where everything is kept")
    options = parser.parse_args()
    for number in ENDING:
        signal.signal(number, _stop)
    demo = Demo(options.folder)
    try:
        return demo.run(once=options.once)
    except Stopped:
        print("\nStopped; every process that the demo started has ended.")
        return 0 if demo.is_told else 130
    except (DemoFailure, StackError, OSError) as error:
        logs = f"\nLogs are in {options.folder}." if demo.is_started else ""
        print(f"\nThe demo failed: {error}{logs}", file=sys.stderr)
        return 1


def _stop(_number: int, _frame: FrameType | None) -> None:
    # A second Ctrl-C must not interrupt the ending of the processes.
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    raise Stopped


class Demo:
    """Owns the folder and every process; `run` ends them all, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._terminal = Terminal()
        self._password = secrets.token_urlsafe(12)
        self._marker: IO[str] | None = None
        self.is_started = False
        """Whether there are logs to look at."""
        self.is_told = False
        """Whether the whole story was told: ending it after that is no failure."""

    def run(self, *, once: bool) -> int:
        self._terminal.step(f"Start the embedded stack and a training job in {self._folder}")
        self._marker = demo_folder.claim(self._folder, own=OWN_FOLDER)
        stack = EmbeddedStack(self._folder)
        self.is_started = True
        try:
            story = self._start(stack)
            self._tell(story)
            self._summarise(story, stack.url)
            self.is_told = True
            if not once:
                self._stay(stack, story)
            return 0
        finally:
            stack.stop()

    def _start(self, stack: EmbeddedStack) -> Story:
        job = TrainingJob(self._folder, stack.children)
        environment = clean_environment()
        nodes = Nodes(self._folder, stack.children, environment)
        token_file = self._folder / "token"
        client = {
            **environment,
            "MUSTER_SERVER": stack.url,
            "MUSTER_TOKEN_FILE": str(token_file),
            "MUSTER_HOOK_DIR": str(nodes.hook_folder),
        }
        job.start(client)
        job.start_reference(client)
        stack.start()
        stack.manage("create_user", USER, "--role", "admin", MUSTER_PASSWORD=self._password)
        token = stack.manage("create_token", USER, "--role", "admin", "--days", "1")
        token_file.touch(mode=0o600)
        token_file.write_text(token)
        story = Story(ControlPlane(stack.url, token), self._terminal, job, nodes)
        story.client_environment = client
        self._terminal.fact(f"web, worker, beat, Redis and SQLite are up; dashboard at {stack.url}")
        return story

    def _tell(self, story: Story) -> None:
        story.register()
        story.inventory(at_least=2)
        story.seal()
        story.audit()
        story.reload_drill()
        story.herd_drill()
        story.damage()
        story.decide()
        story.failover_drill()
        story.compare_losses()
        story.take_stock()

    def _summarise(self, story: Story, url: str) -> None:
        self._terminal.step(f"Summary: every step gave what it should, in {self._terminal.seconds:.0f} s")
        header = ["drill", "step", "bytes", "read at", "time", "cached before", "verdict", "measured phases"]
        self._terminal.table(header, summary_rows(story.drills))
        print("\n  Phases that are not listed were not measured; a storage-only drill is not an RTO.")
        print(f"\n  Dashboard  {url}\n  Sign in    {USER} / {self._password}", flush=True)

    def _stay(self, stack: EmbeddedStack, story: Story) -> None:
        """The training goes on, so what it saves is sealed and verified as before."""
        print("\n  Ctrl-C ends the demo and every process that it started.", flush=True)
        while True:
            stack.children.check()
            story.keep_proven()
            time.sleep(2)


if __name__ == "__main__":
    sys.exit(main())
