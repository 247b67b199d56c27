"""The client: the generated operations over the transport."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from muster_agent.rest.errors import ApiError, Unreachable
from muster_agent.rest.operations import Operations
from muster_agent.rest.transport import Answer, Transport, query_text

__all__ = ["Client", "Resource", "etag_of", "query_text"]


class Resource(dict[str, Any]):
    """An answer's object; `etag` is what `if_match` of a later change wants."""

    etag: str | None = None


def etag_of(resource: Any) -> str:
    """The ETag that came with an answer; `*`, which matches anything, where none did."""
    return getattr(resource, "etag", None) or "*"


class Client(Operations):
    """A control plane's REST API. Thread-safe.

    `token` goes over https, or to this host, only. Answers are plain dicts of the types in `types`. Raises ApiError for
    the server's refusals and Unreachable where it is away; 429 and 503 are waited for, `retry_seconds` at most. A POST
    carries an idempotency key of its own, so that a lost answer never starts a second drill.
    """

    def __init__(self, server: str, *, token: str | None = None, transport: Transport | None = None, **options: Any):
        self.transport = transport or Transport(server, token=token, **options)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> Any:
        """The decoded answer of one operation; None where it has no body."""
        headers = {"If-Match": if_match} if if_match else {}
        if method == "POST":
            headers["Idempotency-Key"] = f'"{idempotency_key or uuid.uuid4()}"'
        content = None
        if body is not None:
            content = msgspec.json.encode(body)
            headers["Content-Type"] = "application/json"
        return decoded(self.transport.request(method, path, query=query, body=content, headers=headers))

    def items(self, path: str, query: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """The items of a list, page after page. `limit` is the size of a page, not of the whole."""
        asked = {"limit": 200, **(query or {})}
        while True:
            page = self.call("GET", path, query=asked)
            yield from page["items"]
            if not page.get("next_cursor"):
                return
            asked["cursor"] = page["next_cursor"]

    def post_lines(self, path: str, lines: Iterator[Any] | list[Any], *, idempotency_key: str | None = None) -> Any:
        """POST of JSON lines (`application/x-ndjson`), one value each."""
        body = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        key = {"Idempotency-Key": f'"{idempotency_key or uuid.uuid4()}"', "Content-Type": "application/x-ndjson"}
        return decoded(self.transport.request("POST", path, body=body, headers=key))


def decoded(answer: Answer) -> Any:
    """The body of a good answer. Raises ApiError for a problem, Unreachable for what no control plane says."""
    if 200 <= answer.status < 300:
        return _good(answer) if answer.body else None
    try:
        problem = msgspec.json.decode(answer.body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreachable(f"something in between answered with status {answer.status}") from error
    raise ApiError(answer.status, problem)


def _good(answer: Answer) -> Any:
    if "json" not in answer.headers.get("Content-Type", "json"):
        return answer.body
    try:
        value = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreachable("the answer is not the control plane's") from error
    if not isinstance(value, dict):
        return value
    resource = Resource(value)
    resource.etag = answer.headers.get("ETag")
    return resource
