"""What every request to the REST API passes before its view: who it is from, how many they may send, and whether it was
sent before."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from rest_framework.exceptions import AuthenticationFailed

from apps.accounts import rate_limit
from apps.accounts.authentication import TokenAuthentication
from apps.core import idempotency
from apps.core.errors import ApplicationError, TooManyRequests
from apps.core.middleware import _Middleware
from apps.core.problems import as_application_error, problem_response

API = "/api/v1/"
View = Callable[..., HttpResponse]


class ApiDoorMiddleware(_Middleware):
    """Rate limits and idempotency keys of `/api/v1/`. Both look at a request where its view would run, in the view's
    thread, so that agents' polls stay asynchronous."""

    def process_view(
        self, request: HttpRequest, view: View, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> HttpResponse | None:
        if not request.path.startswith(API):
            return None
        try:
            _count(request)
            return _once(request, view, args, kwargs)
        except (ApplicationError, RequestDataTooBig, OperationalError) as error:
            return _refusal(as_application_error(error), request)

    def after(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        state = getattr(request, "rate_limit", None)
        if state is not None:
            for name, value in state.headers().items():
                response[name] = value
        return response


def _count(request: HttpRequest) -> None:
    if settings.API_RATE_PER_MINUTE == 0:
        return
    state = rate_limit.count(_who(request), settings.API_RATE_PER_MINUTE, now=time.time())
    request.rate_limit = state  # type: ignore[attr-defined]
    if state is not None and state.is_over:
        raise TooManyRequests(f"At most {state.quota} requests a minute; try again in {state.reset_seconds} s.")


def _who(request: HttpRequest) -> str:
    """Counted by what was sent, before anybody looks whether it is valid: the count must cost less than the answer."""
    authorization = request.headers.get("Authorization", "")
    if authorization:
        return f"token:{rate_limit.digest(authorization)}"
    if request.user.is_authenticated:
        return f"user:{request.user.pk}"
    return f"address:{request.META.get('REMOTE_ADDR', '')}"


def _once(request: HttpRequest, view: View, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> HttpResponse | None:
    """The answer of a POST under a key; None where the view shall be called as ever."""
    header = request.headers.get("Idempotency-Key")
    if request.method != "POST" or header is None or iscoroutinefunction(view):
        return None
    caller = _caller(request)
    if caller is None:
        return None

    def handle() -> HttpResponse:
        response = view(request, *args, **kwargs)
        render = getattr(response, "render", None)
        return render() if callable(render) else response

    return idempotency.once(request, caller=caller, key=idempotency.key_of(header), handle=handle)


def _caller(request: HttpRequest) -> str | None:
    """Whose key it is: a living token's or a session's. None for nobody, whom the view refuses."""
    try:
        found = TokenAuthentication().authenticate(request)  # type: ignore[arg-type]  # it reads headers only
    except AuthenticationFailed:
        return None
    if found is not None:
        return f"token:{found[1].pk}"
    return f"user:{request.user.pk}" if request.user.is_authenticated else None


def _refusal(error: Exception, request: HttpRequest) -> HttpResponse:
    assert isinstance(error, ApplicationError)
    response = problem_response(error, request)
    state = getattr(request, "rate_limit", None)
    if error.status == 429 and state is not None:
        response["Retry-After"] = str(state.reset_seconds)
    if error.code == "idempotency_running" or error.status == 503:
        response["Retry-After"] = "1"
    return response
