"""A small HTTP proxy in front of a real S3 server that a test tells what to break, and for which requests.

It passes requests on unchanged, the Host header included, so their signatures stay good.
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

_PIECE_BYTES = 64 * 1024
_HOP_HEADERS = frozenset({"connection", "keep-alive", "transfer-encoding"})


@dataclass(frozen=True)
class Asked:
    """One request: `kind` is `list`, `uploads`, `complete`, or the method in lower case; `key` is empty for the bucket
    itself."""

    method: str
    kind: str
    bucket: str
    key: str
    headers: dict[str, str]

    @property
    def range(self) -> str:
        """As `0-1023`; empty where all of the object was asked for."""
        return self.headers.get("range", "").removeprefix("bytes=")


@dataclass
class Fault:
    """What happens to a request that `when` takes, `times` times (None: always) after the first `skip` of them.

    Without `status` the request goes on to the server, and its answer is spoilt on the way back.
    """

    when: Callable[[Asked], bool]
    times: int | None = None
    skip: int = 0
    status: int | None = None
    code: str = "SlowDown"
    wait_seconds: float = 0
    """Before the first byte of the answer."""
    cut_after_bytes: int | None = None
    """The body ends there, and the connection with it."""
    reset_after_bytes: int | None = None
    """The connection is reset there."""
    length_off_by_bytes: int = 0
    """Added to the length that the answer promises; the body is the server's."""
    loses_answer: bool = False
    """The server does what was asked, and its answer never arrives."""
    flip_byte: int | None = None
    """That byte of the body arrives wrong."""
    before: Callable[[], object] = lambda: None
    """Called before the request goes on: what somebody else does just then."""
    met: int = 0
    """How many requests it has been done to."""


@dataclass
class _Rules:
    upstream: tuple[str, int]
    faults: list[Fault] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, asked: Asked) -> Fault | None:
        """The first fault that is for this request."""
        with self.lock:
            self.asked.append(asked)
            for fault in self.faults:
                if not fault.when(asked):
                    continue
                if fault.skip:
                    fault.skip -= 1
                elif fault.times is None or fault.met < fault.times:
                    fault.met += 1
                    return fault
        return None


class FaultProxy:
    """Serves on a free port of loopback between `start` and `close`; see `fault_proxy`."""

    def __init__(self, upstream_url: str) -> None:
        upstream = urlsplit(upstream_url)
        self._rules = _Rules((str(upstream.hostname), int(upstream.port or 80)))
        handler = type("OneHandler", (_Handler,), {"rules": self._rules})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def add(self, fault: Fault) -> Fault:
        """From now on. Of several for one request the first one added counts."""
        with self._rules.lock:
            self._rules.faults.append(fault)
        return fault

    def mend(self) -> None:
        """No more faults."""
        with self._rules.lock:
            self._rules.faults.clear()

    @property
    def asked(self) -> list[Asked]:
        """All requests so far."""
        with self._rules.lock:
            return list(self._rules.asked)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def fault_proxy(upstream_url: str) -> Iterator[FaultProxy]:
    """A proxy in front of that server (plain HTTP) inside a `with` block."""
    proxy = FaultProxy(upstream_url)
    try:
        yield proxy
    finally:
        proxy.close()


def gets(name: str = "") -> Callable[[Asked], bool]:
    """Reads of an object whose key ends so."""
    return lambda asked: asked.kind == "get" and bool(asked.key) and asked.key.endswith(name)


def lists(asked: Asked) -> bool:
    """Pages of a listing."""
    return asked.kind == "list"


class _Handler(BaseHTTPRequestHandler):
    rules: _Rules
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self._pass_on
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        return

    def _asked(self) -> Asked:
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        query = parse_qs(url.query, keep_blank_values=True)
        kind = "list" if "list-type" in query else "uploads" if "uploads" in query else self.command.lower()
        kind = "complete" if kind == "post" and "uploadId" in query else kind
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Asked(self.command, kind, bucket, key, headers)

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.rules.take(self._asked()) or Fault(when=lambda _asked: False)
        fault.before()
        if fault.status is not None:
            time.sleep(fault.wait_seconds)
            self._refuse(fault.status, fault.code)
            return
        connection = http.client.HTTPConnection(*self.rules.upstream, timeout=60)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect"):
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            time.sleep(fault.wait_seconds)
            if fault.loses_answer:
                self._end(is_reset=True)
            else:
                self._answer(answer, fault)
        except OSError:
            self.close_connection = True
        finally:
            connection.close()

    def _refuse(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>scripted</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _answer(self, answer: http.client.HTTPResponse, fault: Fault) -> None:
        self.send_response_only(answer.status, answer.reason)
        has_length = answer.getheader("Content-Length") is not None
        for name, value in answer.getheaders():
            if name.lower() == "content-length" and fault.length_off_by_bytes:
                value = str(int(value) + fault.length_off_by_bytes)
            if name.lower() not in _HOP_HEADERS:
                self.send_header(name, value)
        if not has_length and self.command != "HEAD" and answer.status not in (204, 304):
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command != "HEAD":
            self._send_body(answer, fault)

    def _send_body(self, answer: http.client.HTTPResponse, fault: Fault) -> None:
        ends = [one for one in (fault.cut_after_bytes, fault.reset_after_bytes) if one is not None]
        sent = 0
        while piece := answer.read(_PIECE_BYTES):
            data = bytearray(piece[: min(ends) - sent] if ends else piece)
            if fault.flip_byte is not None and sent <= fault.flip_byte < sent + len(data):
                data[fault.flip_byte - sent] ^= 0xFF
            self.wfile.write(data)
            sent += len(data)
            if ends and sent >= min(ends):
                self._end(is_reset=fault.reset_after_bytes is not None)
                return
        if fault.length_off_by_bytes:
            self._end(is_reset=False)

    def _end(self, *, is_reset: bool) -> None:
        self.close_connection = True
        self.wfile.flush()
        if is_reset:
            # With nothing left to linger for, the kernel sends a reset in place of an orderly end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
