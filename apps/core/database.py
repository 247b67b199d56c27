"""Database calls from async views: short, and without a connection kept while the view waits."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

uses_thread_pool: ContextVar[bool] = ContextVar("uses_thread_pool", default=False)
"""True: calls run in the process's bounded pool, so that waiting requests hold no thread. False (Django's ordinary
handler, tests): in the request's own thread, where an open transaction is seen."""


async def in_database(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """`function(...)` in a thread; its database connections are given back before this returns."""

    def call() -> Result:
        try:
            return function(*args, **kwargs)
        finally:
            _release_connections()

    return await sync_to_async(call, thread_sensitive=not uses_thread_pool.get())()


def _release_connections() -> None:
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
