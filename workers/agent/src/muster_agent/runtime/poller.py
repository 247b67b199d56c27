"""The poll thread: heartbeat, hand-out and cancel channel in one long request after another."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from muster_agent.protocol.wire import PollReply, PollRequest, RunningTask
from muster_agent.runtime.client import Client
from muster_agent.runtime.clock import ServerClock
from muster_agent.runtime.retry import Conflicted, CredentialRefused, ServerError, TryAgain, wait_seconds

log = logging.getLogger(__name__)
POLL_SECONDS = 50.0
START_JITTER_SECONDS = 0.5
MAX_POLL_WAIT_SECONDS = 30.0
"""Between failed polls, so that agents are back within a minute of the server."""


class Work(Protocol):
    """What the poller needs of the agent."""

    @property
    def is_draining(self) -> bool: ...

    def free_slots(self) -> int: ...

    def running(self) -> tuple[RunningTask, ...]: ...

    def obey(self, reply: PollReply) -> None: ...

    def give_up(self, error: ServerError) -> None:
        """The server will never have this process again."""


class Poller(threading.Thread):
    """`poll_now()` ends a poll that is being held, so that what has changed here is said at once."""

    def __init__(
        self,
        work: Work,
        client: Client,
        clock: ServerClock,
        *,
        boot_id: str,
        agent_version: str,
        facts: dict[str, Any],
        reload_credential: Callable[[], bool],
    ) -> None:
        super().__init__(name="poller", daemon=True)
        self._work = work
        self._client = client
        self._clock = clock
        self._boot_id = boot_id
        self._agent_version = agent_version
        self._facts: dict[str, Any] | None = facts
        self._reload_credential = reload_credential
        self._ended = threading.Event()
        self._woken = threading.Event()
        self._seq = 0
        self._failures = 0
        self.last_reply: PollReply | None = None
        self.last_reply_at: float | None = None
        """Unix seconds on this node's clock."""

    def poll_now(self) -> None:
        self._woken.set()
        self._client.interrupt()

    def stop(self) -> None:
        self._ended.set()
        self.poll_now()

    def run(self) -> None:
        self._woken.wait(random.uniform(0.0, START_JITTER_SECONDS))
        while not self._ended.is_set():
            pause = self.poll_once()
            if pause > 0:
                self._woken.wait(pause)

    def poll_once(self) -> float:
        """One poll; gives the seconds until the next."""
        self._woken.clear()
        try:
            reply = self._client.poll(self._request())
        except TryAgain as error:
            return self._failed(error)
        except CredentialRefused as error:
            if self._reload_credential():
                return 0.0
            return self._refused(error)
        except Conflicted as error:
            return self._refused(error)
        except ServerError as error:
            log.error("the server refuses this agent's polls: %s", error)
            return self._failed(error)
        self._failures, self._facts = 0, None
        self.last_reply, self.last_reply_at = reply, time.time()
        self._work.obey(reply)
        return reply.next_poll_seconds

    def _failed(self, error: ServerError) -> float:
        if self._woken.is_set():  # it was ended from here
            return 0.0
        self._failures += 1
        log.warning("no poll: %s", error)
        after = getattr(error, "after_seconds", 0.0)
        return min(wait_seconds(self._failures, after), max(after, MAX_POLL_WAIT_SECONDS))

    def _refused(self, error: ServerError) -> float:
        self._ended.set()
        self._work.give_up(error)
        return 0.0

    def _request(self) -> PollRequest:
        self._seq += 1
        return PollRequest(
            boot_id=self._boot_id,
            seq=self._seq,
            free_slots=self._work.free_slots(),
            running=self._work.running(),
            draining=self._work.is_draining,
            agent_version=self._agent_version,
            wall_unix_seconds=time.time(),
            clock_offset_seconds=self._clock.offset_seconds(),
            facts=self._facts,
            wait_seconds=0.0 if self._clock.needs_sample else POLL_SECONDS,
        )
