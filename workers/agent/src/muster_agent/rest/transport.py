"""HTTP to the REST API: one request, tried again where that is safe and helps."""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import quote, urlencode

import urllib3

from muster_agent import __version__
from muster_agent.rest.address import check_address
from muster_agent.rest.errors import Unreachable

TRY_AGAIN = frozenset({429, 502, 503, 504})
MAX_ANSWER_BYTES = 64 * 1024 * 1024
FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 0.25, 8.0


class Answer(NamedTuple):
    """One HTTP answer; header names are looked up in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def part(value: str) -> str:
    """A value as one segment of a path: `/` is escaped, and `..` cannot climb."""
    escaped = quote(str(value), safe="")
    return escaped.replace(".", "%2E") if set(escaped) <= {"."} else escaped


def query_text(query: Mapping[str, object] | None) -> str:
    """`?a=1&b=x,y`: lists with commas, booleans in the API's words, None left out."""
    words = {name: _word(value) for name, value in (query or {}).items() if value is not None}
    return f"?{urlencode(words)}" if words else ""


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(_word(one) for one in value)
    return str(value)


class Transport:
    """Thread-safe. A request is tried again on 429, 502, 503, 504 and lost connections, for `retry_seconds` in all;
    `Retry-After` counts. What must not happen twice carries an idempotency key, so that it may be tried again too."""

    def __init__(
        self,
        server: str,
        *,
        token: str | None = None,
        ca_file: str | None = None,
        timeout_seconds: float = 30.0,
        retry_seconds: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.server = check_address(server, with_token=bool(token))
        self._token = token
        self._retry_seconds = retry_seconds
        self._sleep = sleep
        timeout = urllib3.Timeout(total=timeout_seconds)
        context = ssl.create_default_context(cafile=ca_file) if self.server.startswith("https") else None
        self._pool = urllib3.PoolManager(timeout=timeout, retries=False, ssl_context=context)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer to `/api/v1PATH`, whatever its status. Raises Unreachable when there is none."""
        url = f"{self.server}/api/v1{path}{query_text(query)}"
        sent = {**self._headers(), **(headers or {})}
        ends_at = time.monotonic() + self._retry_seconds
        attempt = 0
        while True:
            attempt += 1
            answer, trouble = self._once(method, url, body, sent)
            if answer is not None and answer.status not in TRY_AGAIN:
                return answer
            wait = wait_seconds(attempt, answer)
            if time.monotonic() + wait > ends_at:
                if answer is None:
                    raise Unreachable(f"{self.server} could not be reached: {trouble}")
                return answer
            self._sleep(wait)

    def _once(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[Answer | None, str]:
        try:
            response = self._pool.request(
                method, url, body=body, headers=headers, redirect=False, preload_content=False
            )
            content = response.read(MAX_ANSWER_BYTES + 1)
            response.release_conn()
        except (urllib3.exceptions.HTTPError, ValueError, OSError) as error:
            return None, _reason(error)
        if len(content) > MAX_ANSWER_BYTES:
            return None, "the answer is too long"
        return Answer(response.status, response.headers, content), ""

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": f"muster/{__version__}"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers


def wait_seconds(attempt: int, answer: Answer | None) -> float:
    """Before attempt + 1: full jitter up to 0.25, 0.5 .. 8 s, and never less than the server asked for."""
    asked = answer.headers.get("Retry-After", "") if answer is not None else ""
    least = float(asked) if asked.isascii() and asked.isdigit() else 0.0
    ceiling = min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(attempt - 1, 10))
    return least + random.uniform(0.0, ceiling)


def _reason(error: Exception) -> str:
    inner = getattr(error, "reason", None) or error
    text = str(inner).split(": ", 1)[-1] if isinstance(inner, urllib3.exceptions.HTTPError) else str(inner)
    return text or type(error).__name__
