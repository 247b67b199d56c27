"""A node: its state directory, and the real agent (`muster_agent.runtime`) that is started and killed on it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from muster_agent.jobs.control import Cancelled
from muster_agent.protocol.wire import SUPPORTED_PROTOCOLS, EnrolRequest, InventoryParams, TaskEvent
from muster_agent.runtime import loop
from muster_agent.runtime.config import AgentConfig, StateDirectory
from muster_agent.runtime.retry import ServerError, TryAgain
from muster_agent.runtime.spool import Attempt, Spool
from muster_agent.tasks.context import Run, TaskContext
from muster_agent.tasks.registry import Handler

from tests.simulation.history import History, Work
from tests.simulation.world import Fibre, Host, Process, World, current

SERVER_URL = "http://127.0.0.1"
PROGRESS_SECONDS = 8


class WorkDone(msgspec.Struct):
    task_id: str
    attempt: int


class Machine:
    """`start()` joins where there is no credential, then runs the agent; `join_token()` gives a fresh token."""

    def __init__(self, world: World, host: Host, folder: Path, history: History, join_token: Callable[[], str]) -> None:
        self.world = world
        self.host = host
        self.history = history
        self._join_token = join_token
        self.state = StateDirectory(folder / host.name)
        self.process: Process | None = None
        self.agent: Any = None
        self.agent_id = ""
        self._joins = 0

    def start(self) -> None:
        if self.process is None:
            self.process = Process(self.host)
            self.world.spawn(self._run, self.process)

    def kill(self) -> None:
        """As a power cut: nothing is written after it. What it held open on the network is the caller's to end."""
        process, agent, self.process, self.agent = self.process, self.agent, None, None
        if agent is not None:
            agent.spool.close()
        if process is not None:
            process.kill()

    def wipe(self) -> None:
        """Its disk is new: no credential, no spool."""
        shutil.rmtree(self.state.path, ignore_errors=True)

    def shut_down(self) -> None:
        """As SIGTERM."""
        if self.agent is not None:
            self.agent.shut_down()

    def _run(self) -> None:
        self.state.path.mkdir(parents=True, exist_ok=True)
        if not self.state.credential.exists():
            self._join()
        config = AgentConfig(
            server=SERVER_URL, agent_id=self.agent_id, node_name=self.host.name, roots=("/work",), slots=2
        )
        agent = self.agent = loop.Agent(config, self.state)
        process = current().process
        for thread in (agent.courier, agent.poller):
            self._as_fibre(thread, process)
        self._without_hooks(agent)
        agent.run()
        if self.process is process:
            self.process = self.agent = None
        process.end()

    def _as_fibre(self, thread: Any, process: Process) -> None:
        fibres: list[Fibre] = []
        thread.start = lambda: fibres.append(self.world.spawn(thread.run, process))
        thread.join = lambda seconds: self._wait(seconds, lambda: fibres[0].dead)

    def _wait(self, seconds: float, has_ended: Callable[[], bool]) -> None:
        ends_at = self.world.now + seconds
        while self.world.now < ends_at and not has_ended():
            self.world.sleep(0.25)

    @staticmethod
    def _without_hooks(agent: Any) -> None:
        """What trainers wrote is no part of a task's life."""
        agent._hooks.start = lambda: None
        agent._hooks.join = lambda _seconds: None
        agent._hooks.forward = lambda: 1.0

    def _join(self) -> None:
        """`muster agent join`, again and again until it is answered."""
        self._joins += 1
        name = self.host.name
        request = EnrolRequest(
            join_token=self._join_token(), node_name=name, machine_id=f"machine-{name}", nonce=f"nonce-{self._joins}",
            agent_version="0", protocols=SUPPORTED_PROTOCOLS,
        )  # fmt: skip
        client = loop.Client(SERVER_URL, credential=lambda: "", clock=loop.ServerClock(), agent_version="0")
        while True:
            try:
                reply = client.enrol(request)
                break
            except TryAgain:
                self.world.sleep(2.0)
            except ServerError as error:
                if error.code != "enrolment_races":
                    raise
                self.world.sleep(2.0)
        self.agent_id = reply.agent_id
        self.state.credential.write_text(reply.credential)

    def handler(self) -> Handler:
        """Work that takes as many virtual seconds as the last part of its root says, and tells the history."""
        return Handler(InventoryParams, self._prepare)

    def _prepare(self, params: InventoryParams, context: TaskContext) -> Run:
        task_id, attempt = context.reporter._attempt  # type: ignore[attr-defined]
        seconds = float(params.root.rsplit("/", 1)[1])

        def run() -> WorkDone:
            work = Work((task_id, attempt), self.world.now)
            self.history.works.append(work)
            work.ended = "killed"
            try:
                self._steps(seconds, context)
                work.ended = "done"
            except Cancelled:
                work.ended = "stopped"
                raise
            finally:
                work.ended_at = self.world.now
            return WorkDone(task_id, attempt)

        return run

    def _steps(self, seconds: float, context: TaskContext) -> None:
        for second in range(1, int(seconds) + 1):
            self.world.sleep(1.0)
            context.control.check()
            if second % PROGRESS_SECONDS == 0:
                context.control.progress("read", second, int(seconds) + 1)


def recording_spool(history: History) -> type[Spool]:
    """The real spool, which also tells the history what was put into it."""

    class RecordingSpool(Spool):
        def put_event(self, attempt: Attempt, event: TaskEvent) -> None:
            history.emitted[attempt].append(event.seq)
            super().put_event(attempt, event)

    return RecordingSpool
