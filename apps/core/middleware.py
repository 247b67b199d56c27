"""Request ids and the security headers that Django does not set itself."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse

from apps.core.ids import new_id

_SAFE_ID = re.compile(r"^[A-Za-z0-9_.-]{1,64}$")
_Handler = Callable[[HttpRequest], Any]


class _Middleware:
    """Works under sync and async handlers alike, so that agent polls stay async all the way."""

    sync_capable = True
    async_capable = True
    _is_async = False

    def __init__(self, get_response: _Handler) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)
            self._is_async = True

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        if self._is_async:
            return self._acall(request)
        self.before(request)
        return self.after(request, self.get_response(request))

    async def _acall(self, request: HttpRequest) -> HttpResponse:
        self.before(request)
        return self.after(request, await self.get_response(request))

    def before(self, request: HttpRequest) -> None:
        return

    def after(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        return response


class RequestIdMiddleware(_Middleware):
    """`request.request_id`: the caller's `X-Request-Id` if harmless, else a new one; sent back with the answer."""

    def before(self, request: HttpRequest) -> None:
        given = request.headers.get("X-Request-Id", "")
        request.request_id = given if _SAFE_ID.match(given) else new_id("req")  # type: ignore[attr-defined]

    def after(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        response["X-Request-Id"] = request.request_id  # type: ignore[attr-defined]
        return response


class TextMiddleware(_Middleware):
    """Refuses NUL in a path, a query or a cookie: PostgreSQL stores none, so nothing that is asked for can hold one."""

    def before(self, request: HttpRequest) -> None:
        given = (request.path, unquote(request.META.get("QUERY_STRING", "")), *request.COOKIES.values())
        if any("\0" in text for text in given):
            raise BadRequest("The address, the query or a cookie holds a NUL character; send it without.")


class SecurityHeadersMiddleware(_Middleware):
    """A strict Content-Security-Policy on everything, and no sniffing."""

    def after(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        response.headers.setdefault("Content-Security-Policy", settings.CONTENT_SECURITY_POLICY)
        response.headers.setdefault("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
        return response
