"""Redis pub/sub: how a committed change reaches those who wait for it (agent polls, barriers, live pages).

One subscription per process serves every waiter in it, so a thousand waiting agents cost one connection.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
from django.conf import settings
from django.db import transaction

log = logging.getLogger(__name__)
_PREFIX = "muster:"
_CONNECT_SECONDS = 2.0
_RECONNECT_SECONDS = 1.0
_WITHOUT_REDIS_SECONDS = 1.0
"""How often waiters re-read while Redis is away."""


def announce(channel: str) -> None:
    """Tell the waiters on `channel`, after commit. They re-read their row; the message carries nothing."""
    transaction.on_commit(lambda: _publish(channel))


def _publish(channel: str) -> None:
    try:
        _client().publish(_PREFIX + channel, b"")
    except redis.RedisError as error:
        log.warning("could not announce %s (%s); waiters re-read every few seconds", channel, error)


def _client() -> redis.Redis:
    global _shared  # one connection pool per process
    if _shared is None:
        _shared = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
    return _shared


_shared: redis.Redis | None = None


class Waiter:
    """Subscribe first, then read the row, then `wait`: no announcement falls between. Async context manager.

    Without Redis it only sleeps, so that waiting degrades to re-reading and nothing is lost.
    """

    def __init__(self, *channels: str) -> None:
        self._channels = [_PREFIX + channel for channel in channels]
        self._announced = asyncio.Event()
        self._hub = _hub_of_this_loop()

    async def __aenter__(self) -> Waiter:
        for channel in self._channels:
            self._hub.waiters.setdefault(channel, set()).add(self._announced)
        await self._hub.listen()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        for channel in self._channels:
            events = self._hub.waiters.get(channel, set())
            events.discard(self._announced)
            if not events:
                self._hub.waiters.pop(channel, None)

    @property
    def is_announced_to(self) -> bool:
        """False while Redis is away: who waits has to read its row again by itself."""
        return self._hub.is_connected

    def wake(self) -> None:
        """As an announcement does, by somebody in this event loop who knows of news."""
        self._announced.set()

    async def wait(self, seconds: float, *, is_reread: bool = False) -> bool:
        """True when something was announced within `seconds`; False early while Redis is away: read the row again.
        `is_reread`: somebody else reads it meanwhile, so that an early end is not needed."""
        if not is_reread and not self._hub.is_connected:
            seconds = min(seconds, _WITHOUT_REDIS_SECONDS)
        if not self._announced.is_set():
            try:
                await asyncio.wait_for(self._announced.wait(), max(seconds, 0.0))
            except TimeoutError:
                return False
        self._announced.clear()
        return True


class _Hub:
    """One event loop's subscription to every announcement, and who waits for which."""

    def __init__(self) -> None:
        self.waiters: dict[str, set[asyncio.Event]] = {}
        self._connected = asyncio.Event()
        self._failed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set()

    async def listen(self) -> None:
        """Return when announcements arrive, or when it is known that Redis is away."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_listening())
        if self.is_connected or self._failed.is_set():
            return
        outcomes = [asyncio.ensure_future(event.wait()) for event in (self._connected, self._failed)]
        await asyncio.wait(outcomes, timeout=_CONNECT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for outcome in outcomes:
            outcome.cancel()

    async def _keep_listening(self) -> None:
        while True:
            try:
                await self._listen_once()
            except (redis.RedisError, OSError) as error:
                if not self._failed.is_set():
                    log.warning("waiting without Redis (%s); waiters re-read every second", error)
            self._connected.clear()
            self._failed.set()
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _listen_once(self) -> None:
        client = redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=_CONNECT_SECONDS)
        pubsub = client.pubsub()
        try:
            await pubsub.psubscribe(_PREFIX + "*")
            async for message in pubsub.listen():
                self._receive(message)
        finally:
            for part in (pubsub, client):
                with suppress(redis.RedisError, OSError):
                    await part.aclose()

    def _receive(self, message: dict[str, object]) -> None:
        if message["type"] == "psubscribe":
            if self._failed.is_set():
                self._wake_all()  # something may have been announced while nobody listened
            self._connected.set()
            self._failed.clear()
        elif message["type"] == "pmessage" and isinstance(channel := message["channel"], bytes):
            for event in self.waiters.get(channel.decode("utf-8", "replace"), ()):
                event.set()

    def _wake_all(self) -> None:
        for events in self.waiters.values():
            for event in events:
                event.set()


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, _Hub] = WeakKeyDictionary()


def _hub_of_this_loop() -> _Hub:
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = _Hub()
    return _hubs[loop]
