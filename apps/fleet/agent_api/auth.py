"""The door of the agent API: a decorator that authenticates, decodes and turns every error into a problem document."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from apps.accounts import secrets
from apps.core.database import in_database
from apps.core.errors import ApplicationError, InvalidInput, NotSignedIn, Unavailable
from apps.core.problems import as_application_error, problem_response
from apps.fleet.agent_api.body import MethodNotAllowed, read_body
from apps.fleet.models import Agent

log = logging.getLogger(__name__)
Message = TypeVar("Message", bound=msgspec.Struct)
Arguments = ParamSpec("Arguments")
_View = Callable[..., Coroutine[Any, Any, HttpResponseBase]]
RETRY_AFTER_SECONDS = 2


def agent_view(
    body_type: type[Message], *, method: str = "POST"
) -> Callable[[Callable[Concatenate[HttpRequest, Agent, Message, Arguments], Awaitable[msgspec.Struct]]], _View]:
    """For `async def view(request, agent, message, **url_arguments) -> reply struct`.

    The agent's `Authorization: Bearer mag_...` is checked, the (possibly gzipped) JSON body decoded to `body_type`.
    ApplicationErrors, bad bodies and a database that is away leave as application/problem+json.
    """

    def decorate(view: Callable[..., Awaitable[msgspec.Struct]]) -> _View:
        async def handle(request: HttpRequest, **arguments: Any) -> msgspec.Struct:
            agent = await in_database(authenticated_agent, request.headers.get("Authorization", ""))
            return await view(request, agent, decode(read_body(request, method), body_type), **arguments)

        return answering(handle, view)

    return decorate


def answering(handle: Callable[..., Awaitable[msgspec.Struct]], view: Callable[..., Any]) -> _View:
    """Wrap `handle` so that what it gives or raises becomes a response."""

    @functools.wraps(view)
    async def wrapped(request: HttpRequest, **arguments: Any) -> HttpResponseBase:
        try:
            reply = await handle(request, **arguments)
        except ApplicationError as error:
            return _problem(error, request)
        except (DatabaseError, OverflowError) as error:
            told = as_application_error(error)
            if isinstance(told, InvalidInput):
                return _problem(told, request)
            log.exception("the database did not answer an agent")
            return _problem(Unavailable("The database does not answer; try again."), request)
        return HttpResponse(msgspec.json.encode(reply), content_type="application/json")

    return csrf_exempt(wrapped)


def decode(raw: bytes, body_type: type[Message]) -> Message:
    """Raises InvalidInput with what is wrong and where."""
    try:
        return msgspec.json.decode(raw, type=body_type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"The body is not the expected JSON: {error}") from error


def authenticated_agent(header: str) -> Agent:
    """The agent whose credential this is. Raises NotSignedIn, saying whether it is unknown or revoked."""
    scheme, _, credential = header.partition(" ")
    if scheme.lower() != "bearer" or not credential.strip():
        raise NotSignedIn("Send the agent's credential in the Authorization header.", code="credential_missing")
    agent = (
        Agent.objects.select_related("node__cluster")
        .filter(credential_sha256=secrets.digest(credential.strip()))
        .first()
    )
    if agent is None:
        raise NotSignedIn(
            "This agent credential is not known here; join again with a new join token.", code="credential_unknown"
        )
    if agent.state == Agent.State.REVOKED:
        raise NotSignedIn("This agent was revoked; join again with a new join token.", code="credential_revoked")
    return agent


def _problem(error: ApplicationError, request: HttpRequest) -> HttpResponse:
    response = problem_response(error, request)
    if error.status == 503:
        response["Retry-After"] = str(RETRY_AFTER_SECONDS)
    if isinstance(error, MethodNotAllowed):
        response["Allow"] = error.allowed
    return response
