"""The client against servers that misbehave."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from muster_agent.protocol.wire import PollRequest, TaskResult
from muster_agent.runtime import client as client_module
from muster_agent.runtime.client import Client, ServerUrlRefused, check_server_url
from muster_agent.runtime.clock import ServerClock
from muster_agent.runtime.retry import TryAgain

POLL = PollRequest(boot_id="b", seq=1, free_slots=1, wait_seconds=0.1)
Answer = tuple[int, dict[str, str], bytes]


class FakeServer:
    """Answers every request with `answer`, and remembers what came."""

    def __init__(self) -> None:
        self.answer: Callable[[], Answer] = lambda: (200, {}, b"{}")
        self.requests: list[tuple[dict[str, str], bytes]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                fake.requests.append((dict(self.headers), body))
                status, headers, answer = fake.answer()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(answer)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

            do_POST = do_PUT = handle_any  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    server.close()


def client(url: str) -> Client:
    return Client(url, credential=lambda: "mag_secret", clock=ServerClock(), agent_version="1")


def test_a_reply_is_decoded_and_a_newer_servers_fields_are_ignored(fake: FakeServer) -> None:
    fake.answer = lambda: (200, {}, json.dumps({"server_unix_seconds": 5.0, "a_newer_field": [1]}).encode())
    assert client(fake.url).poll(POLL).server_unix_seconds == 5.0
    assert fake.requests[0][0]["Authorization"] == "Bearer mag_secret"


@pytest.mark.parametrize("body", [b"<html>log in to the proxy</html>", b'{"server_unix_seconds": "soon"}', b""])
def test_a_200_that_is_not_ours_is_tried_again(fake: FakeServer, body: bytes) -> None:
    fake.answer = lambda: (200, {}, body)
    with pytest.raises(TryAgain):
        client(fake.url).poll(POLL)


def test_a_redirect_is_not_followed_with_the_credential(fake: FakeServer) -> None:
    fake.answer = lambda: (302, {"Location": fake.url}, b"")
    with pytest.raises(TryAgain):
        client(fake.url).ack("t", 1)
    assert len(fake.requests) == 1


def test_an_overloaded_server_says_when_to_come_back(fake: FakeServer) -> None:
    fake.answer = lambda: (503, {"Retry-After": "3"}, b"busy")
    with pytest.raises(TryAgain) as busy:
        client(fake.url).ack("t", 1)
    assert busy.value.after_seconds == 3.0


def test_a_big_body_goes_gzipped(fake: FakeServer) -> None:
    fake.answer = lambda: (200, {}, b'{"state": "done"}')
    client(fake.url).result("t", 1, TaskResult(outcome="done", body={"text": "x" * 100_000}))
    headers, body = fake.requests[0]
    assert headers["Content-Encoding"] == "gzip"
    assert len(body) < 2_000
    assert json.loads(gzip.decompress(body))["body"]["text"] == "x" * 100_000


def test_a_half_open_connection_is_given_up_and_the_next_one_works(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "HELD_MARGIN_SECONDS", 0.5)
    silent = socket.create_server(("127.0.0.1", 0))  # takes the connection and never says a word
    began_at = time.monotonic()
    with pytest.raises(TryAgain):
        client(f"http://127.0.0.1:{silent.getsockname()[1]}").poll(POLL)
    assert time.monotonic() - began_at < 3
    silent.close()
    fake.answer = lambda: (200, {}, b'{"server_unix_seconds": 1.0}')
    client(fake.url).poll(POLL)


def test_a_held_poll_can_be_ended_from_another_thread() -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    waiting = client(f"http://127.0.0.1:{silent.getsockname()[1]}")
    threading.Timer(0.3, waiting.interrupt).start()
    began_at = time.monotonic()
    with pytest.raises(TryAgain):
        waiting.poll(PollRequest(boot_id="b", seq=1, free_slots=1, wait_seconds=50))
    assert time.monotonic() - began_at < 3
    silent.close()


def test_nobody_there_is_tried_again() -> None:
    with pytest.raises(TryAgain):
        client("http://127.0.0.1:9").ack("t", 1)


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1", "http://muster.example", "http://127.0.0.1.example", "http://0.0.0.0"]
)
def test_plain_http_is_for_loopback_only(url: str) -> None:
    with pytest.raises(ServerUrlRefused, match="https"):
        check_server_url(url)


@pytest.mark.parametrize("url", ["ftp://host", "muster.example", "https://user:password@host", "https://host/?q=1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ServerUrlRefused):
        check_server_url(url)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/", "http://localhost", "http://[::1]:80", "https://muster.example/x"]
)
def test_https_and_loopback_are_taken(url: str) -> None:
    assert check_server_url(url) == url.rstrip("/")
