"""One thread of the engine: what it is at, what it did, and the moment from which nobody waits for it any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from muster_agent.protocol.phases import Phase
from muster_agent.reload.phase_clock import PhaseClock
from muster_agent.reload.plan import Extent


class Stopped(Exception):
    """Another reader failed, or this one was given up; it leaves quietly."""


class Meter:
    """Seconds, and CPU seconds of the one thread that uses it, spent inside `with`."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0
        self._began = self._cpu_before = 0.0

    def __enter__(self) -> None:
        self._began, self._cpu_before = time.monotonic(), time.thread_time()

    def __exit__(self, *_error: object) -> None:
        self.cpu_seconds += time.thread_time() - self._cpu_before
        self.seconds += time.monotonic() - self._began


class WatchedCall:
    """`with` around each call to the storage. One that was given up meanwhile ends with Stopped: its extent is lost."""

    def __init__(self, clock: PhaseClock) -> None:
        self.seconds = 0.0
        self.given_up = False
        self._clock = clock
        self._since: float | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._clock.enter(Phase.READ)
        self._since = time.monotonic()

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            since, self._since = self._since, None
        if self.given_up or since is None:
            raise Stopped
        self.seconds += time.monotonic() - since
        self._clock.leave(Phase.READ)

    def give_up(self, after_seconds: float) -> float | None:
        """For how long the call goes on, where that is longer than so much: then it is on its own."""
        with self._lock:
            waited_seconds = 0.0 if self._since is None else time.monotonic() - self._since
            if self.given_up or self._since is None or waited_seconds < after_seconds:
                return None
            self.given_up = True
        self._clock.leave(Phase.READ)
        return waited_seconds


class ReaderThread:
    """Its tallies are written by its own thread alone, and so without a lock; anybody may look at them."""

    def __init__(self, name: str, clock: PhaseClock) -> None:
        self.extent = Extent(0, 0, 0)
        """What it is at."""
        self.calling = WatchedCall(clock)
        self.placing, self.consuming = Meter(), Meter()
        self.cpu_seconds = 0.0
        self.read_bytes = 0
        self.read_by_shard: dict[int, int] = {}
        self._work: Callable[[], None] = lambda: None
        # a daemon: a thread that hangs in a dead mount must not keep the process from ending
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, work: Callable[[], None]) -> None:
        self._work = work
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        finally:
            self.cpu_seconds = time.thread_time()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def is_busy(self) -> bool:
        """At work, and not given up."""
        return not self.calling.given_up and self._thread.is_alive()

    def count(self, read_bytes: int) -> None:
        """So much of its extent has come."""
        self.read_bytes += read_bytes
        shard = self.extent.shard
        self.read_by_shard[shard] = self.read_by_shard.get(shard, 0) + read_bytes
