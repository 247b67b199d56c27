"""The agent: joins the threads together and ends them in order.

main     signals, stop file, status file
poller   one long poll after another
slot-N   one per running task: acknowledge, prepare, barrier, run, spool the result
courier  events and results to the server; leases and limits
hooks    what training hooks wrote
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

import msgspec

from muster_agent import __version__
from muster_agent.hooks.log_follower import LogFollower
from muster_agent.hooks.nvrx_cycles import CycleReader
from muster_agent.protocol.wire import PollReply, RunningTask, TaskOrder, TaskResult
from muster_agent.runtime import holding as holdings
from muster_agent.runtime.barrier import wait_for_start
from muster_agent.runtime.client import Client
from muster_agent.runtime.clock import ServerClock
from muster_agent.runtime.config import AgentConfig, StateDirectory, load_credential
from muster_agent.runtime.courier import Courier
from muster_agent.runtime.execution import execute
from muster_agent.runtime.facts import read_facts
from muster_agent.runtime.holding import Holding
from muster_agent.runtime.hook_forwarder import HookForwarder, drain
from muster_agent.runtime.lease import Lease
from muster_agent.runtime.poller import Poller
from muster_agent.runtime.reporter import SpoolReporter
from muster_agent.runtime.retry import ServerError, TryAgain
from muster_agent.runtime.spool import Spool
from muster_agent.runtime.status import AgentStatus, write_status
from muster_agent.tasks.context import TaskContext
from muster_agent.tasks.limits import LimitGuard
from muster_agent.tasks.registry import load_all
from muster_agent.tasks.roots import Roots

log = logging.getLogger(__name__)
MAIN_TICK_SECONDS = 0.2
ACK_SECONDS = 12.0
"""Below the server's 15 s: an acknowledgement that comes later is for nothing."""
FLUSH_SECONDS = 5.0


class Agent:
    """`run()` blocks until `shut_down()` was called (from a signal handler, say) or the server has refused the agent;
    `refusal` says why then."""

    def __init__(self, config: AgentConfig, state: StateDirectory) -> None:
        self.config = config
        self._state = state
        self._credential = load_credential(state)
        self.clock = ServerClock()
        self.spool = Spool(state.spool)
        self._roots = Roots(config.roots)
        self._copy_roots = Roots(config.copy_roots)
        self._hook_directory = Path(config.hook_directory) if config.hook_directory else None
        self._lock = threading.Lock()
        self._held: dict[str, Holding] = {}
        self._reserved: set[str] = set()
        self._leaving = threading.Event()
        self.refusal: ServerError | None = None
        self._server_drains = False
        self._stop_file_seen = False
        self._status: AgentStatus | None = None
        self.client = Client(
            config.server,
            credential=lambda: self._credential,
            clock=self.clock,
            agent_version=__version__,
            ca_file=config.ca_file,
        )
        self.poller = Poller(
            self,
            self.client,
            self.clock,
            boot_id=uuid.uuid4().hex,
            agent_version=__version__,
            facts=read_facts(config),
            reload_credential=self._reload_credential,
        )
        self.courier = Courier(self.client, self.spool, self.clock, self.holdings)
        self._hooks = HookForwarder(
            self.client,
            self.clock,
            self._hook_directory,
            state.hook_offsets,
            CycleReader(config.nvrx_cycles),
            LogFollower(config.step_logs, state.step_logs),
        )

    # -- life ----------------------------------------------------------------------------------------------------------
    def run(self) -> None:
        self.courier.deliver()  # what the boot before could not deliver, before this boot's first poll fences it
        for thread in (self.courier, self._hooks, self.poller):
            thread.start()
        load_all()  # now, while nobody waits for it: four agents that import at once would delay a drill's start
        while not self._leaving.wait(MAIN_TICK_SECONDS):
            self.look_at_stop_file()
            self._tell_status()
        if self.refusal is None:
            self._drain()
        self._end()

    def shut_down(self) -> None:
        """Finish or hand back what runs, then end `run`."""
        self._leaving.set()

    def give_up(self, error: ServerError) -> None:
        """See `poller.Work`."""
        self.refusal = error
        for holding in self.holdings():
            holding.stop(holdings.LEASE_LOST)
        self._leaving.set()

    def look_at_stop_file(self) -> None:
        """While it exists nothing runs here, whatever the server says."""
        exists = self._state.stop.exists()
        if exists:
            for holding in self.holdings():
                holding.stop(holdings.STOPPED_ON_NODE)
        if exists != self._stop_file_seen:
            log.warning("%s: %s", self._state.stop, "all work is stopped" if exists else "gone, work goes on")
            self._stop_file_seen = exists
            self.poller.poll_now()

    def _tell_status(self) -> None:
        reply = self.poller.last_reply
        status = AgentStatus(
            pid=os.getpid(),
            state=reply.state if reply else "starting",
            server=self.config.server,
            last_poll_at=self.poller.last_reply_at,
            running=tuple(task.task_id for task in self.running()),
            spool_bytes=self.spool.held_bytes,
            undelivered_results=len(self.spool.results()),
            disk_error=self.spool.disk_error,
            clock_offset_seconds=None,
        )
        if status != self._status:
            self._status = status
            with suppress(OSError):  # the status is a convenience; a full disk shows elsewhere
                write_status(
                    self._state.status,
                    msgspec.structs.replace(status, clock_offset_seconds=self.clock.offset_seconds()),
                )

    def _drain(self) -> None:
        """Heartbeats go on; what has not finished when the grace is over is handed back."""
        self.poller.poll_now()
        self._wait_until_idle(self.config.grace_seconds)
        for holding in self.holdings():
            holding.stop(holdings.HANDED_BACK)
        self._wait_until_idle(self.config.grace_seconds)

    def _wait_until_idle(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at and (self._held or self._reserved):
            time.sleep(0.05)

    def _end(self) -> None:
        self.poller.stop()
        self._hooks.stop()
        self.courier.stop()
        if self.refusal is not None:
            log.error("the server refuses this agent: %s", self.refusal)
            return
        self._hooks.join(2.0)
        drain(self._hooks, 1.0)
        self.courier.join(FLUSH_SECONDS)
        if not self.courier.flush(FLUSH_SECONDS):
            log.warning("not everything could be delivered; it waits in %s", self._state.spool)
        self.spool.close()

    def _reload_credential(self) -> bool:
        """True when `join` has written another credential since."""
        before, self._credential = self._credential, load_credential(self._state)
        return before != self._credential

    # -- what the poller asks ------------------------------------------------------------------------------------------
    @property
    def is_draining(self) -> bool:
        return self._leaving.is_set() or self._server_drains

    def free_slots(self) -> int:
        if self.is_draining or self._stop_file_seen:
            return 0
        with self._lock:
            return max(0, self.config.slots - len(self._held) - len(self._reserved))

    def running(self) -> tuple[RunningTask, ...]:
        return tuple(
            RunningTask(
                task_id=holding.order.task_id, attempt=holding.order.attempt, cancelling=holding.stopped is not None
            )
            for holding in self.holdings()
        )

    def holdings(self) -> list[Holding]:
        with self._lock:
            return list(self._held.values())

    def obey(self, reply: PollReply) -> None:
        """See `poller.Work`."""
        if reply.drain != self._server_drains:
            log.warning("the control plane %s this agent", "drains" if reply.drain else "resumes")
            self._server_drains = reply.drain
        for holding in self.holdings():
            if holding.order.task_id in reply.cancel:
                holding.stop(holdings.CANCELLED_BY_SERVER)
        for order in reply.tasks:
            self._take(order)

    # -- work ----------------------------------------------------------------------------------------------------------
    def _take(self, order: TaskOrder) -> None:
        with self._lock:
            if order.task_id in self._reserved or order.task_id in self._held:
                return
            self._reserved.add(order.task_id)
        threading.Thread(target=self._work, args=(order,), name=f"slot-{order.task_id[-6:]}", daemon=True).start()

    def _work(self, order: TaskOrder) -> None:
        try:
            holding = self._acknowledged(order)
            if holding is not None:
                self._settle(holding, self._result_of(holding))
        finally:
            with self._lock:
                self._held.pop(order.task_id, None)
                self._reserved.discard(order.task_id)
            self.courier.wake()
            self.poller.poll_now()  # a slot is free

    def _acknowledged(self, order: TaskOrder) -> Holding | None:
        """None when the server does not want it any more, or could not be told in time: then nothing was done."""
        ends_at = self.clock.mono() + ACK_SECONDS
        while self.clock.mono() < ends_at:
            sent = self.clock.mono()
            try:
                reply = self.client.ack(order.task_id, order.attempt)
            except TryAgain as error:
                log.warning("cannot acknowledge task %s yet: %s", order.task_id, error)
                time.sleep(min(max(error.after_seconds, 0.5), 2.0))
                continue
            except ServerError as error:
                log.warning("task %s is not taken up: %s", order.task_id, error)
                return None
            return self._hold(order, Lease(reply.lease_seconds, sent))
        return None

    def _hold(self, order: TaskOrder, lease: Lease) -> Holding:
        attempt = (order.task_id, order.attempt)
        reporter = SpoolReporter(attempt, self.spool, self.clock, self.courier.wake)
        holding = Holding(order, lease, reporter, LimitGuard(self.config.limits))
        with self._lock:
            self._held[order.task_id] = holding
            self._reserved.discard(order.task_id)
        return holding

    def _result_of(self, holding: Holding) -> TaskResult:
        context = TaskContext(
            roots=self._roots,
            copy_roots=self._copy_roots,
            limits=self.config.limits,
            control=holding.control,
            reporter=holding.reporter,
            clock_offset_seconds=lambda: self.clock.offset_seconds() or 0.0,
            hook_directory=self._hook_directory,
            allow_disrupt=self.config.allow_disrupt,
            loaders=self.config.loaders,
            links=self.config.links,
            scan_cache=self._state.scan_cache,
        )
        log.info("task %s (%s), attempt %d", holding.order.task_id, holding.order.kind, holding.order.attempt)
        result = execute(holding.order, context, holding, lambda: wait_for_start(self.client, self.clock, holding))
        log.info("task %s: %s %s", holding.order.task_id, result.outcome, result.error or "")
        return result

    def _settle(self, holding: Holding, result: TaskResult) -> None:
        why = holding.stopped
        if why is not None and why.outcome is None and result.outcome == "cancelled":
            self._hand_back(holding, why.message)
        else:
            self.spool.put_result(holding.attempt, result)

    def _hand_back(self, holding: Holding, reason: str) -> None:
        """A result would end the task; it shall be run again. If the server cannot be told, the lease's end tells."""
        self.spool.forget_events(holding.attempt)  # they would renew the lease
        try:
            self.client.release(holding.order.task_id, holding.order.attempt, reason)
        except ServerError as error:
            log.warning("task %s could not be handed back: %s", holding.order.task_id, error)
