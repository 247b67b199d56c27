"""Static files under ASGI."""

from __future__ import annotations

from typing import IO, Any

from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]
    """WhiteNoise's answers with their bytes in hand.

    Under ASGI Django reads a synchronous stream to its end before it sends anything, and warns of each one; so this
    costs nothing and keeps the log for what matters.
    """

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse:
        found = static_file.get_response(request.method, request.META)
        response = HttpResponse(_read(found.file), status=int(found.status))
        del response["Content-Type"]
        for name, value in found.headers:
            response[name] = value
        return response


def _read(opened: IO[bytes] | None) -> bytes:
    if opened is None:
        return b""
    with opened:
        return opened.read()
