"""The last line against an insecure start: the application cannot know which address its server was bound to, but every
connection says where it arrived."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from django.conf import settings

Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]
WsgiApplication = Callable[[dict[str, Any], Any], Iterable[bytes]]
REFUSAL = (
    "Muster refuses to answer here: this address is not loopback, and {what}. Set MUSTER_SECRET_KEY (or "
    "MUSTER_SECRET_KEY_FILE) to at least 50 random characters, unset MUSTER_DEBUG, and start again.\n"
)


def insecurity() -> str | None:
    """What must not be reachable by others, in words; None when all is well."""
    if settings.SECRET_KEY == settings.DEFAULT_SECRET_KEY:
        return "the secret key is the published default"
    return "MUSTER_DEBUG is on" if settings.DEBUG else None


def is_loopback(server: Any) -> bool:
    """Whether the connection arrived at a loopback address. A socket file counts as reachable: a proxy stands there."""
    try:
        address = ipaddress.ip_address(server[0])
    except (TypeError, IndexError, ValueError):
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


class LoopbackGuard:
    """Passes everything on while the configuration is safe; else only what arrived at a loopback address."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        what = insecurity()
        if scope["type"] != "http" or what is None or is_loopback(scope.get("server")):
            await self._application(scope, receive, send)
            return
        body = REFUSAL.format(what=what).encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def wsgi_guard(application: WsgiApplication) -> WsgiApplication:
    """The same under WSGI (`manage.py runserver`), which tells whence a connection came and not where it arrived."""

    def guarded(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        what = insecurity()
        if what is None or is_loopback((environ.get("REMOTE_ADDR"),)):
            return application(environ, start_response)
        start_response("503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
        return [REFUSAL.format(what=what).encode()]

    return guarded
