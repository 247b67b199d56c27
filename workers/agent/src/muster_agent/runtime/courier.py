"""The one thread that delivers: event batches (which renew leases), then results, until they are accepted."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from muster_agent.protocol.wire import EventBatch, TaskResult
from muster_agent.runtime.client import Client
from muster_agent.runtime.clock import ServerClock
from muster_agent.runtime.holding import CANCELLED_BY_SERVER, LEASE_LOST, TASK_GONE, Holding, Stop
from muster_agent.runtime.retry import (
    Conflicted,
    CredentialRefused,
    Refused,
    ServerError,
    TaskGone,
    TryAgain,
    wait_seconds,
)
from muster_agent.runtime.spool import Attempt, Spool

log = logging.getLogger(__name__)
TICK_SECONDS = 0.5
BATCH_EVENTS = 200


class Courier(threading.Thread):
    """`held()` gives the tasks that run now; `wake()` makes it look at once; `stop()` ends it."""

    def __init__(self, client: Client, spool: Spool, clock: ServerClock, held: Callable[[], list[Holding]]) -> None:
        super().__init__(name="courier", daemon=True)
        self._client = client
        self._spool = spool
        self._clock = clock
        self._held = held
        self._woken = threading.Event()
        self._ended = threading.Event()
        self._failures = 0
        self._not_before = float("-inf")

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        self._ended.set()
        self._woken.set()

    def run(self) -> None:
        while not self._ended.is_set():
            self._woken.wait(TICK_SECONDS)
            self._woken.clear()
            self.deliver()

    def flush(self, seconds: float) -> bool:
        """Deliver all there is, for at most this long; True when nothing is left."""
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            self._not_before = float("-inf")
            self.deliver()
            if not self._spool.results() and not self._spool.attempts_with_events():
                return True
            time.sleep(0.2)
        return False

    def deliver(self) -> None:
        """One round: watch over what runs, then send what is due. Server trouble ends the round; the next retries."""
        held = {holding.attempt: holding for holding in self._held()}
        for holding in held.values():
            holding.watch()
            if self._spool.disk_error is not None:
                holding.stop(
                    Stop("failed", "agent_disk", f"the agent's spool cannot be written: {self._spool.disk_error}")
                )
        if time.monotonic() < self._not_before:
            return
        try:
            for attempt in dict.fromkeys([*held, *self._spool.attempts_with_events()]):
                self._send_events(attempt, held.get(attempt))
            for attempt, result in self._spool.results():
                # Events put since this round began: after the result the server would refuse them.
                self._send_events(attempt, held.get(attempt))
                self._send_result(attempt, result)
            self._failures = 0
        except (TryAgain, CredentialRefused) as error:
            self._failures += 1
            after = getattr(error, "after_seconds", 0.0)
            self._not_before = time.monotonic() + wait_seconds(self._failures, after)
            log.warning("cannot deliver yet: %s", error)

    def _send_events(self, attempt: Attempt, holding: Holding | None) -> None:
        """Every waiting event in batches; an empty batch where only the lease is due."""
        while True:
            events = self._spool.events(attempt, BATCH_EVENTS)
            if not events and (holding is None or not holding.lease.is_due):
                return
            dropped = self._spool.take_dropped(attempt)
            batch = EventBatch(attempt=attempt[1], events=tuple(events), dropped=dropped)
            sent = self._clock.mono()
            try:
                reply = self._client.events(attempt[0], batch)
            except TryAgain:
                self._spool.give_back_dropped(attempt, dropped)
                raise
            except (Conflicted, TaskGone, Refused) as error:
                self._events_refused(attempt, holding, batch, error)
                return
            if events:
                self._spool.forget_events(attempt, events[-1].seq)
            if holding is not None:
                holding.lease.renew(reply.lease_seconds, sent)
                if reply.cancel:
                    holding.stop(CANCELLED_BY_SERVER)
            if len(events) < BATCH_EVENTS:
                return

    def _events_refused(self, attempt: Attempt, holding: Holding | None, batch: EventBatch, error: ServerError) -> None:
        if isinstance(error, Refused):
            log.error("events of task %s were refused and are dropped: %s", attempt[0], error)
            self._spool.forget_events(attempt, batch.events[-1].seq if batch.events else None)
            return
        self._spool.forget_events(attempt)
        if holding is not None and holding.stopped is None:
            log.warning("task %s is stopped: %s", attempt[0], error)
            holding.stop(_stop_for(error))

    def _send_result(self, attempt: Attempt, result: TaskResult) -> None:
        try:
            reply = self._client.result(attempt[0], attempt[1], result)
        except (Conflicted, TaskGone, Refused) as error:
            log.warning("the result of task %s was not taken (%s); it is kept here for a day", attempt[0], error)
            self._spool.settle_result(attempt, refused=True)
            return
        if reply.late:
            log.warning("the result of task %s came late: it is shown, and does not count", attempt[0])
        self._spool.settle_result(attempt, refused=False)


def _stop_for(error: ServerError) -> Stop:
    return LEASE_LOST if isinstance(error, Conflicted) else TASK_GONE
