"""Telling clients in time that an operation will go: `Deprecation` (RFC 9745) and `Sunset` (RFC 8594)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.utils.http import http_date
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

Method = Callable[..., Response]


def deprecated(*, since: datetime, sunset: datetime, see: str) -> Callable[[Method], Method]:
    """Marks a method of a view: its answers say since when it is deprecated, when it goes at the earliest, and in `see`
    (a path of the documentation) what to use instead. The OpenAPI document marks it too."""
    if not since < sunset:
        raise ValueError("an operation goes after it was deprecated")

    def mark(method: Method) -> Method:
        def answered(self: Any, request: Any, *args: Any, **kwargs: Any) -> Response:
            response = method(self, request, *args, **kwargs)
            response["Deprecation"] = f"@{int(since.astimezone(UTC).timestamp())}"
            response["Sunset"] = http_date(sunset.timestamp())
            response["Link"] = f'<{see}>; rel="deprecation"; type="text/html"'
            return response

        answered.__name__, answered.__doc__, answered.__dict__ = method.__name__, method.__doc__, dict(method.__dict__)
        return extend_schema(deprecated=True)(answered)

    return mark
