"""RFC 9457 problem documents: the one shape of every error under `/api/` and `/agent/`."""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent
from django.db import DataError, IntegrityError, OperationalError
from django.http import HttpRequest, JsonResponse
from drf_standardized_errors.formatter import ExceptionFormatter
from drf_standardized_errors.handler import exception_handler as standardized_handler
from drf_standardized_errors.types import ErrorResponse
from rest_framework.exceptions import APIException
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from apps.core.errors import ApplicationError, InvalidInput, TooLarge, Unavailable

log = logging.getLogger(__name__)
CONTENT_TYPE = "application/problem+json"
TITLES = {
    400: "Invalid request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    409: "Conflict",
    412: "Changed meanwhile",
    413: "Too large",
    415: "Unsupported media type",
    422: "Invalid input",
    428: "Precondition required",
    429: "Too many requests",
    500: "Server error",
    503: "Unavailable",
}
# The one type that the rate limit draft registers; all others say everything by their status.
TYPES = {429: "https://iana.org/assignments/http-problem-types#quota-exceeded"}


class ApplicationAPIException(APIException):
    """An `ApplicationError` on its way out of a REST view."""

    def __init__(self, error: ApplicationError) -> None:
        self.status_code = error.status
        super().__init__(detail=error.detail, code=error.code)
        self.pointer = error.pointer


class ProblemFormatter(ExceptionFormatter):  # type: ignore[misc]  # the package ships no types
    """Turns the collected errors into a problem document."""

    def format_error_response(self, error_response: ErrorResponse) -> dict[str, Any]:
        errors = [
            {
                "pointer": _pointer(error.attr) or getattr(self.exc, "pointer", None),
                "code": error.code,
                "detail": error.detail,
            }
            for error in error_response.errors
        ]
        status = self.exc.status_code
        return problem(status, detail=errors[0]["detail"] or "", errors=errors, request=self.context.get("request"))


def problem(
    status: int,
    *,
    detail: str,
    errors: list[dict[str, Any]] | None = None,
    request: Any = None,
    code: str | None = None,
) -> dict[str, Any]:
    """The body of one problem. `errors` names fields by JSON pointer; `request_id` finds the request in the log."""
    errors = errors if errors is not None else [{"pointer": None, "code": code or "error", "detail": detail}]
    return {
        "type": TYPES.get(status, "about:blank"),
        "title": TITLES.get(status, "Error"),
        "status": status,
        "detail": detail,
        "instance": getattr(request, "path", None),
        "request_id": getattr(request, "request_id", None)
        or getattr(getattr(request, "_request", None), "request_id", None),
        "errors": errors,
    }


def problem_response(error: ApplicationError, request: HttpRequest | None = None) -> JsonResponse:
    """The same document for views outside the REST framework."""
    errors = [{"pointer": error.pointer, "code": error.code, "detail": error.detail}]
    body = problem(error.status, detail=error.detail, errors=errors, request=request)
    return JsonResponse(body, status=error.status, content_type=CONTENT_TYPE)


def exception_handler(exc: Exception, context: dict[str, Any]) -> Response | None:
    """Django REST framework's hook: services' errors keep their status, everything leaves as a problem document."""
    exc = as_application_error(exc)
    if isinstance(exc, ApplicationError):
        exc = ApplicationAPIException(exc)
    response: Response | None = standardized_handler(exc, context)
    if response is not None:
        # A view that gives YAML or a page gives its errors as JSON all the same.
        context["request"].accepted_renderer = JSONRenderer()
        context["request"].accepted_media_type = JSONRenderer.media_type
        response.content_type = CONTENT_TYPE
        if response.status_code == 503:
            response["Retry-After"] = "2"
    return response


def as_application_error(exc: Exception) -> Exception:
    """What Django and the drivers raise for a caller's or a database's trouble, as an answer that says what to do."""
    if isinstance(exc, RequestDataTooBig):
        return TooLarge(f"A body has at most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE} bytes here; send less at once.")
    if isinstance(exc, TooManyFieldsSent):
        return ApplicationError(f"A query has at most {settings.DATA_UPLOAD_MAX_NUMBER_FIELDS} parameters.")
    if isinstance(exc, OperationalError):
        log.error("the database did not answer: %s", exc)
        return Unavailable("The database is busy or away; try again in a few seconds.")
    if _is_unstorable(exc):
        return InvalidInput(
            "A value is one that no column holds, such as a number beyond its range.", code="out_of_range"
        )
    return exc


def _is_unstorable(exc: Exception) -> bool:
    """PostgreSQL says so by a DataError; SQLite by its driver's OverflowError, and for numbers that no JSON has by the
    check of a JSON column. To send the same again would never help."""
    said = str(exc)
    is_check = isinstance(exc, IntegrityError) and said.startswith("CHECK constraint failed")
    return isinstance(exc, DataError) or is_check or (isinstance(exc, OverflowError) and "SQLite" in said)


def _pointer(attr: str | None) -> str | None:
    if attr in (None, "non_field_errors"):
        return None
    return "/" + str(attr).replace(".", "/")
