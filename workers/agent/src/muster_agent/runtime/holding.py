"""One task that this agent holds: its lease, its way to be stopped, and why it was."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from muster_agent.jobs.control import JobControl
from muster_agent.protocol.wire import TaskOrder
from muster_agent.runtime.lease import Lease
from muster_agent.runtime.reporter import SpoolReporter
from muster_agent.runtime.spool import Attempt
from muster_agent.tasks.limits import LimitExceeded, LimitGuard


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a task was stopped. `outcome` is what will be reported; None: nothing, somebody else shall run it."""

    outcome: str | None
    code: str
    message: str


CANCELLED_BY_SERVER = Stop("cancelled", "cancelled", "cancelled by the control plane")
STOPPED_ON_NODE = Stop("cancelled", "stopped_on_node", "stopped on the node (`muster agent stop-all`)")
LEASE_OVER = Stop(None, "lease_over", "the lease could not be renewed in time, so the work was given up")
LEASE_LOST = Stop("failed", "lease_lost", "the control plane gave the task to another attempt")
TASK_GONE = Stop("failed", "task_gone", "the control plane no longer knows this task")
HANDED_BACK = Stop(None, "handed_back", "the agent is shutting down")


class Holding:
    """Thread-safe. The first `stop` wins."""

    def __init__(self, order: TaskOrder, lease: Lease, reporter: SpoolReporter, guard: LimitGuard) -> None:
        self.order = order
        self.lease = lease
        self.reporter = reporter
        self._guard = guard
        self._lock = threading.Lock()
        self._event = threading.Event()
        self.stopped: Stop | None = None
        self.control = JobControl(progress=self._progress, cancel=self._event, tell=reporter.tell)

    @property
    def attempt(self) -> Attempt:
        return self.order.task_id, self.order.attempt

    def stop(self, why: Stop) -> None:
        with self._lock:
            if self.stopped is None:
                self.stopped = why
        self._event.set()

    def watch(self) -> None:
        """Called often: stop what has outlived its lease or the node's limit."""
        if self.lease.is_over:
            self.stop(LEASE_OVER)
        try:
            self._guard.check_time()
        except LimitExceeded as error:
            self.stop(Stop("failed", error.code, str(error)))

    def _progress(self, phase: str, done_bytes: int, total_bytes: int) -> None:
        self.reporter.progress(phase, done_bytes, total_bytes)
        try:
            self._guard.moved(phase, done_bytes, self._event.is_set)
        except LimitExceeded as error:
            self.stop(Stop("failed", error.code, str(error)))
