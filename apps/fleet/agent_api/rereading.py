"""Waiting polls look at their rows even when nothing was announced: all those of a process together, in two queries.

A thousand agents that each asked every 5 s would keep a core busy with questions that have no news.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from django.db import Error
from muster_agent.protocol.wire import PollRequest

from apps.core.database import in_database
from apps.core.wakeups import Waiter
from apps.fleet import polling

log = logging.getLogger(__name__)
REREAD_SECONDS = 5.0
WITHOUT_REDIS_SECONDS = 1.0


class Rereader:
    """One event loop's waiting polls. While there are any, their rows are read every 5 s (every second while Redis is
    away), and those with news are woken; each then looks for itself."""

    def __init__(self) -> None:
        self._waiting: dict[Waiter, tuple[str, PollRequest]] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, waiter: Waiter, agent_id: str, request: PollRequest) -> Iterator[None]:
        self._waiting[waiter] = (agent_id, request)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_reading())
        try:
            yield
        finally:
            del self._waiting[waiter]

    async def _keep_reading(self) -> None:
        while self._waiting:
            is_connected = all(waiter.is_announced_to for waiter in self._waiting)
            await asyncio.sleep(REREAD_SECONDS if is_connected else WITHOUT_REDIS_SECONDS)
            try:
                await self._read()
            except Error as error:
                log.warning("waiting polls could not be looked at (%s); they are again in a moment", error)

    async def _read(self) -> None:
        waiting = dict(self._waiting)
        with_news = await in_database(polling.with_news, list(waiting.values()))
        for waiter, (agent_id, request) in waiting.items():
            if (agent_id, request.seq) in with_news:
                waiter.wake()


_rereaders: WeakKeyDictionary[asyncio.AbstractEventLoop, Rereader] = WeakKeyDictionary()


def of_this_loop() -> Rereader:
    return _rereaders.setdefault(asyncio.get_running_loop(), Rereader())
