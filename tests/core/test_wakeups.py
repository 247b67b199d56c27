"""Announcements over real Redis: one subscription a process, and what happens when Redis goes away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from servers.valkey import Valkey

from apps.core import wakeups
from apps.core.wakeups import Waiter


@pytest.fixture
def own_redis(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Valkey]:
    valkey = Valkey()
    settings.REDIS_URL = valkey.url
    monkeypatch.setattr(wakeups, "_shared", None)
    yield valkey
    valkey.stop()


async def test_a_waiter_hears_its_channel_and_no_other(own_redis: Valkey) -> None:
    async with Waiter("agent:1", "group:2") as waiter:
        await asyncio.to_thread(wakeups._publish, "agent:9")
        assert await waiter.wait(0.3) is False
        await asyncio.to_thread(wakeups._publish, "group:2")
        assert await waiter.wait(2.0) is True
        assert await waiter.wait(0.1) is False


async def test_what_is_announced_between_subscribing_and_waiting_is_not_missed(own_redis: Valkey) -> None:
    async with Waiter("agent:1") as waiter:
        await asyncio.to_thread(wakeups._publish, "agent:1")
        await asyncio.sleep(0.2)
        assert await waiter.wait(0.0) is True


async def test_a_hundred_waiters_share_one_connection(own_redis: Valkey) -> None:
    waiters = [Waiter(f"agent:{number}") for number in range(100)]
    for waiter in waiters:
        await waiter.__aenter__()
    with redis.Redis.from_url(own_redis.url) as client:
        assert len(client.client_list()) == 2  # theirs, and this one
    for waiter in waiters:
        await waiter.__aexit__()


async def test_a_redis_that_restarts_is_heard_again_and_waiters_look_meanwhile(own_redis: Valkey) -> None:
    async with Waiter("agent:1") as waiter:
        own_redis.kill()
        await asyncio.sleep(0.2)
        began_at = time.monotonic()
        assert await waiter.wait(5.0) is False
        assert time.monotonic() - began_at < 2.0
        await asyncio.to_thread(wakeups._publish, "agent:1")  # nobody hears it, and nothing breaks
        own_redis.start()
        assert await waiter.wait(0.0) is False
        ends_at = time.monotonic() + 10
        while time.monotonic() < ends_at and not await waiter.wait(1.0):
            pass  # coming back wakes all: something may have been announced meanwhile
        await asyncio.to_thread(wakeups._publish, "agent:1")
        assert await waiter.wait(2.0) is True
