"""Redis pub/sub: how a committed change reaches those who wait for it (agent polls, barriers, live pages)."""

from __future__ import annotations

import asyncio
import logging

import redis
import redis.asyncio
from django.conf import settings
from django.db import transaction

log = logging.getLogger(__name__)
_PREFIX = "muster:"


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
        self._client: redis.asyncio.Redis | None = None
        self._pubsub: redis.asyncio.client.PubSub | None = None

    async def __aenter__(self) -> Waiter:
        try:
            self._client = redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=2)
            self._pubsub = self._client.pubsub(ignore_subscribe_messages=True)
            await self._pubsub.subscribe(*self._channels)
        except (redis.RedisError, OSError) as error:
            log.warning("waiting without Redis (%s)", error)
            await self._close()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._close()

    async def _close(self) -> None:
        for part in (self._pubsub, self._client):
            if part is not None:
                try:
                    await part.aclose()  # type: ignore[no-untyped-call]
                except (redis.RedisError, OSError):
                    log.debug("closing a waiter's connection failed")
        self._pubsub = self._client = None

    async def wait(self, seconds: float) -> bool:
        """True when something was announced within `seconds`."""
        if self._pubsub is None:
            await asyncio.sleep(min(seconds, 1.0))
            return False
        try:
            deadline = asyncio.get_running_loop().time() + seconds
            while (left := deadline - asyncio.get_running_loop().time()) > 0:
                if await self._pubsub.get_message(timeout=left) is not None:
                    return True
        except (redis.RedisError, OSError):
            await self._close()
            await asyncio.sleep(min(seconds, 1.0))
        return False
