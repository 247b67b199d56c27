"""What an error looks like: a problem document for programs (`/api/`, `/agent/`), a page for people."""

from __future__ import annotations

from django.core.exceptions import BadRequest, DisallowedHost
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.template.loader import render_to_string
from django.views import defaults

from apps.core import problems

PROGRAM_PATHS = ("/api/", "/agent/")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if request.path.startswith(PROGRAM_PATHS):
        return _problem(request, 404, "There is nothing at this path; see /api/docs/.")
    return defaults.page_not_found(request, exception)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if not request.path.startswith(PROGRAM_PATHS):
        return _page(request, 400)
    if isinstance(exception, DisallowedHost):
        return _problem(request, 400, "This server does not answer to that host name; add it to MUSTER_ALLOWED_HOSTS.")
    is_ours = isinstance(exception, BadRequest) and str(exception)
    return _problem(request, 400, str(exception) if is_ours else "The request could not be understood.")


def server_error(request: HttpRequest) -> HttpResponseBase:
    if request.path.startswith(PROGRAM_PATHS):
        return _problem(request, 500, "Something went wrong here; the server's log has it under this request id.")
    return _page(request, 500)


def _page(request: HttpRequest, status: int) -> HttpResponse:
    """Without what other pages read from the database: it may be what failed."""
    body = render_to_string(f"{status}.html", {"request_id": getattr(request, "request_id", "")})
    return HttpResponse(body, status=status)


def _problem(request: HttpRequest, status: int, detail: str) -> JsonResponse:
    body = problems.problem(status, detail=detail, code="not_found" if status == 404 else "error", request=request)
    return JsonResponse(body, status=status, content_type=problems.CONTENT_TYPE)
