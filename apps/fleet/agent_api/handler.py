"""The ASGI handler of the agent API: without sessions, cookies and pages' middleware, and without a thread per waiter.

A thousand agents wait at any time. Django's ordinary handler keeps a thread for each (its middleware is partly
synchronous); here only the short database calls use threads, from the process's bounded pool.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.exception import convert_exception_to_response

from apps.core.database import uses_thread_pool
from apps.core.middleware import RequestIdMiddleware, SecurityHeadersMiddleware
from apps.core.problems import CONTENT_TYPE, problem
from apps.fleet.agent_api.body import too_large

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
PREFIX = "/agent/v1/"


class AgentApiHandler(ASGIHandler):
    """Serves only paths under `/agent/v1/`."""

    def load_middleware(self, is_async: bool = False) -> None:
        self._view_middleware: list[Any] = []
        self._template_response_middleware: list[Any] = []
        self._exception_middleware: list[Any] = []
        handler: Any = convert_exception_to_response(self._get_response_async)  # type: ignore[attr-defined]
        for middleware in (SecurityHeadersMiddleware, RequestIdMiddleware):
            handler = convert_exception_to_response(middleware(handler))
        self._middleware_chain = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        uses_thread_pool.set(True)
        try:
            await self.handle(scope, _bounded(receive), send)
        except _BodyTooLarge:
            await _send_too_large(send)


class _BodyTooLarge(Exception):
    """More came in than an agent may send; nothing beyond the limit was kept."""


def _bounded(receive: Receive) -> Receive:
    """`receive` that counts: Django would first write a body of any size to disk."""
    received_bytes = 0

    async def bounded() -> Any:
        nonlocal received_bytes
        message = await receive()
        received_bytes += len(message.get("body", b""))
        if received_bytes > settings.AGENT_MAX_BODY_BYTES:
            raise _BodyTooLarge
        return message

    return bounded


async def _send_too_large(send: Send) -> None:
    body = json.dumps(problem(413, detail=str(too_large(settings.AGENT_MAX_BODY_BYTES)), code="too_large")).encode()
    headers = [(b"content-type", CONTENT_TYPE.encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Split:
    """An ASGI application: agents to one handler, everything else to the other."""

    def __init__(self, agents: AgentApiHandler, others: ASGIHandler) -> None:
        self._agents = agents
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_agent = scope["type"] == "http" and scope["path"].startswith(PREFIX)
        await (self._agents if is_agent else self._others)(scope, receive, send)
