"""Binds each request's id to the log lines that it causes, and, where asked, writes one line for each answer."""

from __future__ import annotations

import logging
import time

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from apps.core import logs
from apps.core.middleware import _Middleware

log = logging.getLogger("muster.access")
QUIET = ("/healthz", "/static/")


class AccessLogMiddleware(_Middleware):
    """Directly behind the middleware that gives the request its id. The line has no query: it may hold anything."""

    def before(self, request: HttpRequest) -> None:
        logs.request_id.set(str(getattr(request, "request_id", "")))
        request.began_seconds = time.monotonic()  # type: ignore[attr-defined]

    def after(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if settings.ACCESS_LOG and not request.path.startswith(QUIET):
            match = request.resolver_match
            log.info(
                "%s %s %s",
                request.method,
                request.path,
                response.status_code,
                extra={
                    "method": request.method,
                    "route": match.route if match else "",
                    "status": response.status_code,
                    "seconds": round(time.monotonic() - request.began_seconds, 4),  # type: ignore[attr-defined]
                },
            )
        return response
