"""What every verb that asks the control plane shares: its options, its client, and what a refusal becomes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from muster_agent.cli.age import Age
from muster_agent.cli.contexts import Given, connection
from muster_agent.cli.output import CommandFailed, ExitCode

if TYPE_CHECKING:
    from muster_agent.rest import ApiError, Client

_EXIT_CODES = {
    400: ExitCode.USAGE,
    401: ExitCode.AUTH,
    403: ExitCode.AUTH,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.CONFLICT,
    412: ExitCode.CONFLICT,
    422: ExitCode.USAGE,
    503: ExitCode.SERVER_UNREACHABLE,
    504: ExitCode.TIMEOUT,
}
_HINTS = {
    401: "sign in with `muster login`, or set MUSTER_TOKEN to a token that lives",
    403: "ask an admin for the role, or use another token",
    404: "list what there is with `muster get`",
    412: "somebody changed it meanwhile: look at it again, then repeat",
    429: "the server asked to wait; try again later",
}


def with_server(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --server, --context, --token-file, --ca-file and --request-timeout; the command gets `client`."""

    @click.option("--server", metavar="URL", help="The control plane (else MUSTER_SERVER, else the context's).")
    @click.option("--context", metavar="NAME", help="A context of `muster login` (else MUSTER_CONTEXT).")
    @click.option("--token-file", metavar="FILE", help="Holds the token; - is stdin (else MUSTER_TOKEN).")
    @click.option("--ca-file", metavar="FILE", help="Certificates to trust instead of the system's.")
    @click.option("--request-timeout", type=Age(), default="30", show_default=True, help="Of one request: 30, 2min.")
    @functools.wraps(command)
    def asked(
        *args: Any,
        server: str | None,
        context: str | None,
        token_file: str | None,
        ca_file: str | None,
        request_timeout: float,
        **kwargs: Any,
    ) -> Any:
        given = Given(server, context, token_file, ca_file)
        with refusals_told():
            return command(*args, client=client_for(given, request_timeout), **kwargs)

    return asked


def client_for(given: Given, timeout_seconds: float = 30.0) -> Client:
    """The client of the control plane that the flags, the environment or the context name."""
    from muster_agent.rest import Client

    found = connection(given)
    return Client(
        found.server,
        token=found.token,
        ca_file=found.ca_file,
        timeout_seconds=timeout_seconds,
        retry_seconds=min(timeout_seconds, 15.0),
    )


@contextlib.contextmanager
def refusals_told() -> Iterator[None]:
    """Inside, what the client raises becomes one sentence, a hint and an exit code."""
    from muster_agent.rest import AddressRefused, ApiError, Unreachable

    try:
        yield
    except Unreachable as error:
        hint = "check the address and that the control plane runs; `muster doctor` looks closer"
        raise CommandFailed(str(error), hint=hint, code=ExitCode.SERVER_UNREACHABLE) from error
    except AddressRefused as error:
        raise CommandFailed(str(error), code=ExitCode.USAGE) from error
    except ApiError as error:
        raise refused(error) from error


def refused(error: ApiError) -> CommandFailed:
    fields = [str(one["pointer"]).lstrip("/") for one in error.errors if one.get("pointer")]
    where = f" ({', '.join(fields)})" if fields else ""
    hint = _HINTS.get(error.status, "")
    if error.status >= 500 and error.request_id:
        hint = f"the server's log has it under {error.request_id}"
    code = _EXIT_CODES.get(error.status, ExitCode.ERROR)
    return CommandFailed(f"{error.detail}{where}", hint=hint, code=code)
