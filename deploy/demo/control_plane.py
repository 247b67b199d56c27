"""The demo's REST client: the same calls that anybody's tooling makes, with a token."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from deploy.embedded import open_local

Document = dict[str, Any]


class DemoFailure(RuntimeError):
    """A step did not give what it should; the demo ends with this sentence and a non-zero exit."""


class Refused(DemoFailure):
    """An HTTP error answer with its status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class ControlPlane:
    """JSON over HTTP; a problem document becomes a `DemoFailure` with its detail."""

    answer_seconds = 30.0

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "If-Match": "*"}

    def get(self, path: str) -> Any:
        return self._call("GET", path, None)

    def post(self, path: str, body: Document | None = None) -> Any:
        return self._call("POST", path, body or {})

    def patch(self, path: str, body: Document) -> Any:
        return self._call("PATCH", path, body)

    def items(self, path: str) -> list[Document]:
        """The first page of a list."""
        found: list[Document] = self.get(path)["items"]
        return found

    def wait(
        self, what: str, path: str, done: Callable[[Document], bool], *, seconds: float, every: float = 0.2
    ) -> Document:
        """Read `path` until `done`; a `DemoFailure` that says what was awaited when it takes longer than `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            document: Document = self.get(path)
            if done(document):
                return document
            if time.monotonic() > deadline:
                raise DemoFailure(
                    f"{what} was not there after {seconds:.0f} s; last seen: {json.dumps(document)[:600]}"
                )
            time.sleep(every)

    def _call(self, method: str, path: str, body: Document | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/api/v1{path}", data, self._headers, method=method)
        try:
            with open_local(request, self.answer_seconds) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            raise Refused(f"{method} {path} gave {error.code}: {_detail(error.read())}", error.code) from error
        except OSError as error:
            raise DemoFailure(f"{method} {path} got no answer: {error}") from error


def _detail(body: bytes) -> str:
    try:
        problem = json.loads(body)
        return "; ".join(f"{error['pointer'] or ''} {error['detail']}".strip() for error in problem["errors"])
    except (ValueError, KeyError, TypeError):
        return body[:300].decode(errors="replace")
