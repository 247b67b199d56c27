"""Virtual time: threads as fibres on one heap, so that an hour of fifty agents is one deterministic program.

A fibre runs until it waits (`sleep`, `Event.wait`); then the earliest thing that is due goes on. Nothing else switches,
so code between two waits is atomic, as a short database transaction is.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import greenlet

EPOCH_UNIX_SECONDS = 1_760_000_000.0


@dataclass(slots=True)
class Host:
    """A machine's clocks: `mono_base_seconds` apart from other machines', the wall clock wrong by `skew_seconds`."""

    name: str
    mono_base_seconds: float = 0.0
    skew_seconds: float = 0.0


class Process:
    """The fibres that end together."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.fibres: list[Fibre] = []

    def end(self) -> None:
        """Nothing of it runs any more; what waits never goes on."""
        for fibre in self.fibres:
            fibre.is_killed = True

    def kill(self) -> None:
        """Called from the hub only."""
        self.end()
        for fibre in self.fibres:
            fibre.kill()


class Fibre(greenlet.greenlet):
    """One thread of a simulated process."""

    def __init__(self, world: World, function: Callable[[], Any], process: Process) -> None:
        super().__init__(function, world.hub)
        self.process = process
        self.ticket = 0
        self.is_killed = False

    def kill(self) -> None:
        """As a crash ends a thread; called from the hub only. Its `finally` blocks run, and cannot wait."""
        self.is_killed = True
        self.ticket += 1
        if not self.dead:
            self.throw(greenlet.GreenletExit)


class World:
    """The one clock and everything that is due, earliest first; of equal times, what was asked for first."""

    def __init__(self) -> None:
        self.now = 0.0
        self.hub = greenlet.getcurrent()
        self.server_process = Process(Host("server", mono_base_seconds=50_000.0))
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (max(time, self.now), self._count, action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now + seconds, action)

    def spawn(self, function: Callable[[], Any], process: Process) -> Fibre:
        fibre = Fibre(self, function, process)
        process.fibres = [*(one for one in process.fibres if not one.dead), fibre]
        self.at(self.now, lambda: self._resume(fibre, 0))
        return fibre

    def run_until(self, time: float, *, unless: Callable[[], bool] = lambda: False) -> None:
        """Let everything happen that is due by `time`; stops early at the first moment when `unless()` holds."""
        while self._due and self._due[0][0] <= time and not unless():
            self.now, _, action = heapq.heappop(self._due)
            action()
        self.now = max(self.now, time) if not unless() else self.now

    def wake(self, fibre: Fibre, ticket: int, time: float | None = None) -> None:
        self.at(self.now if time is None else time, lambda: self._resume(fibre, ticket))

    def park(self, fibre: Fibre) -> None:
        if fibre.is_killed:
            raise greenlet.GreenletExit
        self.hub.switch()

    def sleep(self, seconds: float) -> None:
        fibre = current()
        fibre.ticket += 1
        self.wake(fibre, fibre.ticket, self.now + max(seconds, 0.0))
        self.park(fibre)

    def host(self) -> Host:
        """Whose code runs: a fibre's host, else the server's."""
        fibre = greenlet.getcurrent()
        process = fibre.process if isinstance(fibre, Fibre) else self.server_process
        return process.host

    def unix_seconds(self) -> float:
        """The true time; the server's clock shows it."""
        return EPOCH_UNIX_SECONDS + self.now

    @staticmethod
    def _resume(fibre: Fibre, ticket: int) -> None:
        if fibre.ticket == ticket and not fibre.dead and not fibre.is_killed:
            fibre.switch()


def current() -> Fibre:
    fibre = greenlet.getcurrent()
    assert isinstance(fibre, Fibre), "only a fibre can wait"
    return fibre


class Event:
    """`threading.Event` in virtual time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_set = False
        self._waiting: dict[Fibre, int] = {}

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for fibre, ticket in self._waiting.items():
            self._world.wake(fibre, ticket)
        self._waiting.clear()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._is_set:
            return True
        fibre = current()
        fibre.ticket += 1
        self._waiting[fibre] = fibre.ticket
        if timeout is not None:
            self._world.wake(fibre, fibre.ticket, self._world.now + max(timeout, 0.0))
        try:
            self._world.park(fibre)
        finally:
            self._waiting.pop(fibre, None)
        return self._is_set


class Time:
    """What stands in for the module `time`: the clocks of whoever asks."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        return self._world.now + self._world.host().mono_base_seconds

    def time(self) -> float:
        return self._world.unix_seconds() + self._world.host().skew_seconds

    def sleep(self, seconds: float) -> None:
        self._world.sleep(seconds)


class Threading:
    """What stands in for the module `threading`. Locks are never contended: fibres switch only where they wait."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.Lock = threading.Lock
        self.RLock = threading.RLock

    def Event(self) -> Event:  # noqa: N802  (the module's own name)
        return Event(self._world)

    def Thread(self, *, target: Callable[..., Any], args: tuple[Any, ...] = (), **_named: Any) -> _Thread:  # noqa: N802
        return _Thread(self._world, lambda: target(*args))


class _Thread:
    """A thread of whichever process starts it."""

    def __init__(self, world: World, run: Callable[[], Any]) -> None:
        self._world = world
        self._run = run

    def start(self) -> None:
        self._world.spawn(self._run, current().process)
