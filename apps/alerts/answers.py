"""What came back from a receiver, and what follows from it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from apps.alerts.standard_webhooks import wait_seconds

GONE = 410
MAX_ANSWER_CHARACTERS = 500


@dataclass(frozen=True)
class Answer:
    """Of one try. `status` None: nothing came back, `problem` says why."""

    status: int | None = None
    problem: str = ""
    text: str = ""
    retry_after_seconds: float | None = None
    seconds: float = 0.0
    is_final: bool = False
    """Trying again would not help: the receiver does not exist any more, or will never take it."""

    @property
    def is_delivered(self) -> bool:
        return not self.problem


@dataclass(frozen=True)
class Delivered:
    """It arrived."""


@dataclass(frozen=True)
class Again:
    """It is tried again after `wait_seconds`."""

    wait_seconds: float


@dataclass(frozen=True)
class GivenUp:
    """It is not tried again; `channel_is_gone`: nothing will ever arrive there."""

    channel_is_gone: bool


Verdict = Delivered | Again | GivenUp


def judge_http(status: int, retry_after: str | None, text: str, now: datetime) -> Answer:
    """Only 2xx is success: a redirect is not followed, and is a failure."""
    if 200 <= status < 300:
        return Answer(status=status, text=text)
    if 300 <= status < 400:
        problem = f"HTTP {status}: it redirects, which is not followed; give the final address"
    elif status == GONE:
        problem = "HTTP 410: the receiver says that it is gone"
    else:
        problem = f"HTTP {status}"
    waits = retry_after_seconds(retry_after, now)
    return Answer(status=status, problem=problem, text=text, retry_after_seconds=waits, is_final=status == GONE)


def retry_after_seconds(value: str | None, now: datetime) -> float | None:
    """Of the header, which holds seconds or a date; None where it is absent, in the past or nonsense."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    aware = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (aware - now).total_seconds()) or None


def verdict(answer: Answer, *, tries: int, once: bool, jitter: float) -> Verdict:
    """`tries` includes this one; `once`: a test, which is not repeated."""
    if answer.is_delivered:
        return Delivered()
    if answer.is_final:
        return GivenUp(channel_is_gone=answer.status == GONE)
    waits = None if once else wait_seconds(tries, jitter=jitter, retry_after_seconds=answer.retry_after_seconds)
    return GivenUp(channel_is_gone=False) if waits is None else Again(waits)
