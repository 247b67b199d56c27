"""The real server: Django's views and services on the test database, each request a fibre, waiting in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any

from django.db import OperationalError
from django.test import RequestFactory
from django.urls import resolve
from muster_agent.protocol.wire import PollRequest

from apps.fleet import polling, upkeep
from tests.simulation.network import Exchange, Response
from tests.simulation.world import Event, Fibre, World, current

SWEEP_SECONDS = 10.0
REREAD_SECONDS = 5.0
WITHOUT_REDIS_SECONDS = 5.0
_GATEWAY_ERROR = Response(502, {}, b"<html>bad gateway</html>")
"""A proxy's."""


class Server:
    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self._random = random
        self._requests = RequestFactory()
        self.is_up = True
        self.is_database_up = True
        self.is_redis_up = True
        self.is_swept = True
        self._serving: dict[Fibre, Exchange] = {}
        self._channels: dict[str, list[Event]] = {}
        self.after_sweep: Callable[[], None] = lambda: None
        self._rereading: dict[_Waiter, tuple[str, PollRequest]] = {}
        world.after(SWEEP_SECONDS, self._sweep)
        world.after(REREAD_SECONDS, self._reread)

    # -- requests ------------------------------------------------------------------------------------------------------
    def accept(self, exchange: Exchange, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> None:
        if not self.is_up:
            # A proxy in front answers for it half of the time.
            if self._random.random() < 0.5:
                exchange.answer(_GATEWAY_ERROR)
            else:
                exchange.break_off(ConnectionRefusedError("connection refused"))
            return
        fibre = self.world.spawn(
            lambda: self._serve(exchange, method, target, body, headers), self.world.server_process
        )
        self._serving[fibre] = exchange

    def _serve(self, exchange: Exchange, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> None:
        match = resolve(target)
        named = {"HTTP_" + name.upper().replace("-", "_"): value for name, value in headers.items()}
        request = self._requests.generic(method, target, body, content_type="application/json", **named)
        answer = self._drive(match.func(request, **match.kwargs))
        self._serving.pop(current(), None)
        exchange.answer(Response(answer.status_code, answer.headers, answer.content))

    @staticmethod
    def _drive(view: Coroutine[Any, Any, Any]) -> Any:
        """Run an async view in this fibre: what it awaits is a wait in virtual time."""
        try:
            waiting = view.send(None)
            while True:
                waiting = view.send(waiting.event.wait(waiting.seconds))
        except StopIteration as ended:
            return ended.value
        finally:
            view.close()

    def hang_up(self, host_name: str) -> None:
        """The host's process is gone, and its machine closes what that had open: held answers end."""
        for fibre, exchange in list(self._serving.items()):
            if exchange.host.name == host_name:
                del self._serving[fibre]
                fibre.kill()

    def kill(self) -> None:
        """What was committed stays; whoever waited for an answer gets none."""
        self.is_up = False
        for fibre, exchange in list(self._serving.items()):
            fibre.kill()
            exchange.break_off(ConnectionResetError("connection reset"))
        self._serving.clear()
        self._channels.clear()

    # -- what its views use --------------------------------------------------------------------------------------------
    async def in_database(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`apps.core.database.in_database` with a database that may be away before the call, or after its commit."""
        if self.is_database_up:
            return function(*args, **kwargs)
        if self._random.random() < 0.2:
            function(*args, **kwargs)
        raise OperationalError("the database system is shutting down")

    def waiter(self, *channels: str) -> _Waiter:
        return _Waiter(self, channels)

    def of_this_loop(self) -> Server:
        return self

    @contextmanager
    def watching(self, waiter: _Waiter, agent_id: str, request: PollRequest) -> Iterator[None]:
        """`apps.fleet.agent_api.rereading.Rereader` in virtual time."""
        self._rereading[waiter] = (agent_id, request)
        try:
            yield
        finally:
            del self._rereading[waiter]

    def _reread(self) -> None:
        self.world.after(REREAD_SECONDS, self._reread)
        if not self.is_up or not self.is_database_up or not self._rereading:
            return
        found = polling.with_news(list(self._rereading.values()))
        for waiter, (agent_id, request) in self._rereading.items():
            if (agent_id, request.seq) in found:
                waiter.wake()

    def publish(self, channel: str) -> None:
        if self.is_redis_up:
            for event in self._channels.get(channel, ()):
                event.set()

    # -- beat ----------------------------------------------------------------------------------------------------------
    def _sweep(self) -> None:
        self.world.after(SWEEP_SECONDS, self._sweep)
        if self.is_swept and self.is_database_up:
            upkeep.expire_leases()
            upkeep.mark_silent_agents()
        self.after_sweep()


class _Waiter:
    """`apps.core.wakeups.Waiter` with announcements in virtual time."""

    def __init__(self, server: Server, channels: tuple[str, ...]) -> None:
        self._server = server
        self._channels = channels
        self._event = Event(server.world)

    async def __aenter__(self) -> _Waiter:
        for channel in self._channels:
            self._server._channels.setdefault(channel, []).append(self._event)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        for channel in self._channels:
            waiting = self._server._channels.get(channel, [])
            if self._event in waiting:
                waiting.remove(self._event)

    def wake(self) -> None:
        self._event.set()

    async def wait(self, seconds: float, *, is_reread: bool = False) -> bool:
        most = seconds if is_reread or self._server.is_redis_up else min(seconds, WITHOUT_REDIS_SECONDS)
        was_announced = await _Wait(self._event, most)
        self._event.clear()
        return was_announced


class _Wait:
    def __init__(self, event: Event, seconds: float) -> None:
        self.event = event
        self.seconds = seconds

    def __await__(self) -> Generator[_Wait, bool, bool]:
        return (yield self)
