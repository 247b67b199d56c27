"""HTTP to the control plane: one method per endpoint, each giving its reply or raising a `retry.ServerError`."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from muster_agent.protocol.loopback import is_loopback
from muster_agent.protocol.wire import (
    AckReply,
    AckRequest,
    EnrolReply,
    EnrolRequest,
    EventBatch,
    EventReply,
    HookBatch,
    HookReply,
    PollReply,
    PollRequest,
    ReadyReply,
    ReadyRequest,
    ReleaseReply,
    ReleaseRequest,
    ResultReply,
    TaskResult,
)
from muster_agent.runtime.clock import ServerClock
from muster_agent.runtime.retry import Answer, TryAgain, error_of

CALL_SECONDS = 20.0
CONNECT_SECONDS = 10.0
HELD_MARGIN_SECONDS = 15.0
"""A held answer that is this much overdue will not come: the connection is dead at one end only."""
GZIP_FROM_BYTES = 4096
MAX_REPLY_BYTES = 64 * 1024 * 1024

Reply = TypeVar("Reply", bound=msgspec.Struct)


class ServerUrlRefused(ValueError):
    """The address cannot be used; the message says what to write instead."""


def check_server_url(url: str) -> str:
    """The address without a trailing slash. Raises ServerUrlRefused: plain http carries the credential in the clear,
    so it is for loopback only."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ServerUrlRefused(f"{url!r} is no server address; write it like https://muster.example")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ServerUrlRefused(f"plain http is only for loopback; use https://{parts.netloc}")
    return url.rstrip("/")


class Client:
    """Thread-safe. `credential` gives the present one, so that a renewed one is used without a restart."""

    def __init__(
        self,
        server: str,
        *,
        credential: Callable[[], str],
        clock: ServerClock,
        agent_version: str,
        ca_file: str | None = None,
    ) -> None:
        self._url = urlsplit(check_server_url(server))
        self._prefix = f"{self._url.path}/agent/v1"
        self._credential = credential
        self._clock = clock
        self._user_agent = f"muster-agent/{agent_version}"
        self._tls = ssl.create_default_context(cafile=ca_file) if self._url.scheme == "https" else None
        self._pool = self._make_pool()
        self._held: set[HTTPConnection] = set()
        self._lock = threading.Lock()

    # -- endpoints -----------------------------------------------------------------------------------------------------
    def enrol(self, request: EnrolRequest) -> EnrolReply:
        return self._call("POST", "/enrol", request, EnrolReply)

    def poll(self, request: PollRequest) -> PollReply:
        """Held by the server for up to `request.wait_seconds`; `interrupt` ends it early with TryAgain."""
        sent = self._clock.mono()
        reply = self._held_call("/poll", request, PollReply, request.wait_seconds)
        self._clock.sample(sent, self._clock.mono(), reply.server_unix_seconds)
        return reply

    def ack(self, task_id: str, attempt: int) -> AckReply:
        sent = self._clock.mono()
        reply = self._call("POST", f"/tasks/{task_id}/ack", AckRequest(attempt=attempt), AckReply)
        self._clock.sample(sent, self._clock.mono(), reply.server_unix_seconds)
        return reply

    def events(self, task_id: str, batch: EventBatch) -> EventReply:
        sent = self._clock.mono()
        reply = self._call("POST", f"/tasks/{task_id}/events", batch, EventReply)
        self._clock.sample(sent, self._clock.mono(), reply.server_unix_seconds or 0.0)
        return reply

    def ready(self, task_id: str, request: ReadyRequest) -> ReadyReply:
        """Held until the barrier opens, at most `request.wait_seconds`."""
        return self._held_call(f"/tasks/{task_id}/ready", request, ReadyReply, request.wait_seconds)

    def release(self, task_id: str, attempt: int, reason: str) -> ReleaseReply:
        message = ReleaseRequest(attempt=attempt, reason=reason)
        return self._call("POST", f"/tasks/{task_id}/release", message, ReleaseReply)

    def result(self, task_id: str, attempt: int, result: TaskResult) -> ResultReply:
        return self._call("PUT", f"/tasks/{task_id}/attempts/{attempt}/result", result, ResultReply)

    def hook_records(self, batch: HookBatch) -> HookReply:
        return self._call("POST", "/hook-records", batch, HookReply)

    # -- transport -----------------------------------------------------------------------------------------------------
    def interrupt(self) -> None:
        """End every held call now; its thread gets TryAgain."""
        with self._lock:
            for connection in self._held:
                if connection.sock is not None:
                    with suppress(OSError):
                        connection.sock.shutdown(socket.SHUT_RDWR)

    def _make_pool(self) -> urllib3.HTTPConnectionPool:
        assert self._url.hostname is not None
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=CALL_SECONDS)
        if self._tls is not None:
            return urllib3.HTTPSConnectionPool(
                self._url.hostname, self._url.port, timeout=timeout, maxsize=4, retries=False, ssl_context=self._tls
            )
        return urllib3.HTTPConnectionPool(self._url.hostname, self._url.port, timeout=timeout, maxsize=4, retries=False)

    def _call(self, method: str, path: str, message: msgspec.Struct, reply_type: type[Reply]) -> Reply:
        body, headers = self._encode(message)
        try:
            response = self._pool.request(
                method, self._prefix + path, body=body, headers=headers, redirect=False, preload_content=True
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise TryAgain(f"no answer from {self._url.netloc}: {error}") from error
        return _decode(Answer(response.status, response.headers.get("Retry-After"), response.data), reply_type)

    def _held_call(self, path: str, message: msgspec.Struct, reply_type: type[Reply], held_seconds: float) -> Reply:
        """A connection of its own, so that `interrupt` can end it and nothing else."""
        connection = self._connection(held_seconds + HELD_MARGIN_SECONDS)
        with self._lock:
            self._held.add(connection)
        try:
            body, headers = self._encode(message)
            connection.request("POST", self._prefix + path, body=body, headers=headers)
            response = connection.getresponse()
            answer = Answer(response.status, response.headers.get("Retry-After"), response.data)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise TryAgain(f"no answer from {self._url.netloc}: {error}") from error
        finally:
            with self._lock:
                self._held.discard(connection)
            connection.close()
        return _decode(answer, reply_type)

    def _connection(self, timeout_seconds: float) -> HTTPConnection:
        assert self._url.hostname is not None
        if self._tls is not None:
            port = self._url.port or 443
            return HTTPSConnection(self._url.hostname, port, timeout=timeout_seconds, ssl_context=self._tls)
        return HTTPConnection(self._url.hostname, self._url.port or 80, timeout=timeout_seconds)

    def _encode(self, message: msgspec.Struct) -> tuple[bytes, Mapping[str, str]]:
        body = msgspec.json.encode(message)
        headers = {"Content-Type": "application/json", "User-Agent": self._user_agent}
        if credential := self._credential():
            headers["Authorization"] = f"Bearer {credential}"
        if len(body) >= GZIP_FROM_BYTES:
            body = gzip.compress(body, compresslevel=1)
            headers["Content-Encoding"] = "gzip"
        return body, headers


def _decode(answer: Answer, reply_type: type[Reply]) -> Reply:
    if not 200 <= answer.status < 300:
        raise error_of(answer)
    try:
        return msgspec.json.decode(answer.body, type=reply_type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TryAgain(f"the answer is not the control plane's: {error}", status=answer.status) from error
