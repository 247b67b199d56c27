"""What every answer of the server means for whoever asked: the one place that decides what is tried again."""

from __future__ import annotations

import random
from typing import NamedTuple

import msgspec

FIRST_WAIT_SECONDS = 1.0
MAX_WAIT_SECONDS = 60.0


class ServerError(Exception):
    """An answer that is not the reply. `code` is the problem document's; the message is for people."""

    def __init__(self, message: str, *, code: str = "", status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class TryAgain(ServerError):
    """429, 5xx, no connection, or a body that is not ours (a proxy's page): the same request, later."""

    def __init__(self, message: str, *, code: str = "", status: int | None = None, after_seconds: float = 0.0) -> None:
        super().__init__(message, code=code, status=status)
        self.after_seconds = after_seconds


class CredentialRefused(ServerError):
    """401: read the credential once more, then stop."""


class TaskGone(ServerError):
    """403, 404, 410: the server does not want this task's news; stop it."""


class Refused(ServerError):
    """400, 413, 415, 422 and the like: this very body will never be accepted; drop it."""


class Conflicted(ServerError):
    """409: `lease_lost`, `superseded`, `result_conflict` and others, by `code`."""


class _Problem(msgspec.Struct):
    detail: str
    status: int
    errors: list[dict[str, str | None]] = []


class Answer(NamedTuple):
    status: int
    retry_after: str | None
    body: bytes


def error_of(answer: Answer) -> ServerError:
    """The exception that an answer other than 2xx stands for. A 4xx that is no problem document is not the server's
    word: something in between answered, so it is tried again."""
    after_seconds = retry_after_seconds(answer.retry_after)
    problem = _read_problem(answer.body)
    if answer.status == 429 or answer.status >= 500 or problem is None:
        detail = problem.detail if problem else "the answer is not the control plane's"
        return TryAgain(f"HTTP {answer.status}: {detail}", status=answer.status, after_seconds=after_seconds)
    code = (problem.errors[0].get("code") or "") if problem.errors else ""
    return _kind(answer.status)(problem.detail, code=code, status=answer.status)


def _kind(status: int) -> type[ServerError]:
    if status == 401:
        return CredentialRefused
    if status in (403, 404, 410):
        return TaskGone
    return Conflicted if status == 409 else Refused


def _read_problem(body: bytes) -> _Problem | None:
    try:
        return msgspec.json.decode(body, type=_Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def retry_after_seconds(header: str | None) -> float:
    """The header's whole seconds, at most an hour; 0.0 where it is absent or a date (then the backoff decides)."""
    return min(float(header), 3600.0) if header and header.isascii() and header.isdigit() else 0.0


def wait_seconds(failures: int, after_seconds: float = 0.0) -> float:
    """How long to wait after the n-th failure in a row (from 1): full jitter up to 1, 2, 4 .. 60 s, never less than the
    server asked for."""
    ceiling = min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(failures - 1, 10))
    return after_seconds + random.uniform(0.0, ceiling)
