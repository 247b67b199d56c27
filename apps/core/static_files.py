"""Static files under ASGI."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]
    """WhiteNoise's answers with their bytes in hand.

    Under ASGI Django reads a synchronous stream to its end before it sends anything, and warns of each one; so this
    costs nothing and keeps the log for what matters.
    """

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse:
        streamed = WhiteNoiseMiddleware.serve(static_file, request)
        response = HttpResponse(b"".join(streamed), status=streamed.status_code)
        del response["Content-Type"]
        for name, value in streamed.items():
            response[name] = value
        streamed.close()
        return response
