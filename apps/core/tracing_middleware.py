"""A span for each request, below the caller's where it sends a `traceparent`; its trace id stands on every log line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse

from apps.core import logs, tracing

QUIET = ("/healthz", "/static/", "/metrics")


class TracingMiddleware:
    """Works under sync and async handlers alike."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        if self._is_async:
            return self._traced(request) if _is_traced(request) else self.get_response(request)
        if not _is_traced(request):
            return self.get_response(request)  # type: ignore[no-any-return]
        with _span(request) as current:
            logs.set_trace(tracing.traceparent_of(current))
            return _described(current, request, self.get_response(request))

    async def _traced(self, request: HttpRequest) -> HttpResponse:
        with _span(request) as current:
            logs.set_trace(tracing.traceparent_of(current))
            return _described(current, request, await self.get_response(request))


def _is_traced(request: HttpRequest) -> bool:
    return tracing.is_on() and not request.path.startswith(QUIET)


def _span(request: HttpRequest) -> Any:
    return tracing.span(
        str(request.method), kind="SERVER", traceparent=request.headers.get("traceparent", ""),
        **{"http.request.method": str(request.method), "url.path": request.path},
    )  # fmt: skip


def _described(current: Any, request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """The route is known only now. A path with an id in it is no name of a span: there would be too many."""
    if current is not None:
        route = request.resolver_match.route if request.resolver_match else ""
        current.update_name(f"{request.method} /{route}" if route else str(request.method))
        current.set_attribute("http.route", f"/{route}")
        current.set_attribute("http.response.status_code", response.status_code)
        current.set_attribute("muster.request_id", str(getattr(request, "request_id", "")))
    return response
