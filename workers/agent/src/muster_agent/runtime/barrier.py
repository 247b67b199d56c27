"""Waiting for the others: say ready, learn the start, begin on it."""

from __future__ import annotations

import time

from muster_agent.protocol.wire import ReadyRequest
from muster_agent.runtime.client import Client
from muster_agent.runtime.clock import ServerClock
from muster_agent.runtime.holding import LEASE_LOST, TASK_GONE, Holding
from muster_agent.runtime.retry import Conflicted, ServerError, TaskGone, TryAgain, wait_seconds
from muster_agent.tasks.context import TaskFailed

HELD_SECONDS = 25.0
_NAP_SECONDS = 0.05


def wait_for_start(client: Client, clock: ServerClock, holding: Holding) -> None:
    """Return at the common start. Raises TaskFailed `barrier_aborted`, or Cancelled when the task was stopped."""
    starts_at = clock.to_mono(_start_unix_seconds(client, holding))
    while (left := starts_at - clock.mono()) > 0:
        holding.control.check()
        time.sleep(min(left, _NAP_SECONDS))
    holding.control.check()


def _start_unix_seconds(client: Client, holding: Holding) -> float:
    failures = 0
    request = ReadyRequest(attempt=holding.order.attempt, wait_seconds=HELD_SECONDS)
    while True:
        holding.control.check()
        try:
            reply = client.ready(holding.order.task_id, request)
        except TryAgain as error:
            failures += 1
            _nap(holding, min(wait_seconds(failures, error.after_seconds), 2.0))
            continue
        except ServerError as error:
            raise _refused(error, holding) from error
        failures = 0
        if reply.abort is not None:
            holding.control.check()
            raise TaskFailed("barrier_aborted", reply.abort)
        if reply.start_unix_seconds is not None:
            return reply.start_unix_seconds


def _refused(error: ServerError, holding: Holding) -> Exception:
    if isinstance(error, Conflicted) and error.code == "lease_lost":
        holding.stop(LEASE_LOST)
    elif isinstance(error, TaskGone):
        holding.stop(TASK_GONE)
    return TaskFailed(error.code or "barrier_refused", str(error))


def _nap(holding: Holding, seconds: float) -> None:
    ends_at = time.monotonic() + seconds
    while (left := ends_at - time.monotonic()) > 0:
        holding.control.check()
        time.sleep(min(left, _NAP_SECONDS))
