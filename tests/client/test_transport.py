"""The client over real HTTP: what is tried again, what is not, and where a token may go."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from muster_agent.rest import AddressRefused, ApiError, Client, Unreachable, etag_of
from muster_agent.rest.transport import part, query_text

PROBLEM = json.dumps({"detail": "no", "status": 409, "errors": [{"pointer": "/run", "code": "held", "detail": "no"}]})


class Server:
    """Gives the answers in `script` one after the other (the last one for ever) and keeps what it was asked."""

    def __init__(self) -> None:
        self.script: list[tuple[int, dict[str, str], bytes]] = [(200, {}, b"{}")]
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                server.asked.append((self.command, self.path, dict(self.headers), self.rfile.read(length)))
                status, headers, body = server.script.pop(0) if len(server.script) > 1 else server.script[0]
                if status == 0:
                    self.connection.close()
                    return
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

            def log_message(self, *_arguments: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()


def client_of(server: Server, waits: list[float] | None = None, **options: Any) -> Client:
    waited = waits if waits is not None else []
    return Client(server.url, token="mst_1", sleep=waited.append, **options)


def test_a_busy_server_is_waited_for_as_long_as_it_asks(server: Server) -> None:
    server.script = [(429, {"Retry-After": "3"}, b"{}"), (503, {}, b"{}"), (200, {}, b'{"username": "olga"}')]
    waits: list[float] = []
    assert client_of(server, waits).who_am_i()["username"] == "olga"
    assert len(server.asked) == 3
    assert waits[0] >= 3.0 and waits[1] < 3.0


def test_a_post_is_repeated_under_one_key_and_two_posts_have_two(server: Server) -> None:
    server.script = [(503, {}, b"{}"), (201, {}, b'{"id": "drl_1"}')]
    client = client_of(server)
    client.create_drill({"run": "llama", "kind": "reload"})
    client.create_drill({"run": "llama", "kind": "reload"})
    keys = [headers["Idempotency-Key"] for _method, _path, headers, _body in server.asked]
    assert keys[0] == keys[1] != keys[2]
    assert json.loads(server.asked[0][3]) == {"run": "llama", "kind": "reload"}


def test_a_lost_connection_is_tried_again_and_then_told(server: Server) -> None:
    server.script = [(0, {}, b""), (200, {}, b'{"username": "olga"}')]
    assert client_of(server).who_am_i()["username"] == "olga"
    server.script = [(0, {}, b"")]
    with pytest.raises(Unreachable, match="could not be reached"):
        client_of(server, retry_seconds=0.0).who_am_i()


def test_a_refusal_carries_its_sentence_code_and_field_and_is_not_repeated(server: Server) -> None:
    server.script = [(409, {}, PROBLEM.encode())]
    with pytest.raises(ApiError) as refused:
        client_of(server).cancel_drill("drl_1")
    assert (refused.value.status, refused.value.code, refused.value.errors[0]["pointer"]) == (409, "held", "/run")
    assert len(server.asked) == 1


def test_a_page_of_something_in_between_is_no_answer(server: Server) -> None:
    server.script = [(403, {"Content-Type": "text/html"}, b"<html>sign in to the hotel</html>")]
    with pytest.raises(Unreachable, match="something in between"):
        client_of(server).who_am_i()


def test_lists_turn_their_pages(server: Server) -> None:
    server.script = [
        (200, {}, b'{"items": [{"id": "a"}, {"id": "b"}], "next_cursor": "x"}'),
        (200, {}, b'{"items": [{"id": "c"}], "next_cursor": null}'),
    ]
    assert [row["id"] for row in client_of(server).list_drills(run="llama", state="finished")] == ["a", "b", "c"]
    assert "cursor=x" in server.asked[1][1] and "run=llama" in server.asked[1][1]


def test_a_change_can_be_bound_to_what_was_read(server: Server) -> None:
    server.script = [(200, {"ETag": '"v1"'}, b'{"id": "pln_1"}'), (200, {}, b"{}")]
    client = client_of(server)
    plan = client.get_plan("pln_1")
    assert etag_of(plan) == '"v1"'
    client.call("PATCH", "/plans/pln_1/", {"enabled": False}, if_match=etag_of(plan))
    assert server.asked[1][2]["If-Match"] == '"v1"'


def test_a_redirect_is_not_followed_with_the_token(server: Server) -> None:
    server.script = [(302, {"Location": "http://elsewhere.example/"}, b"")]
    with pytest.raises(Unreachable):
        client_of(server).who_am_i()
    assert len(server.asked) == 1


@pytest.mark.parametrize("address", ["http://muster.example", "ftp://127.0.0.1", "muster.example", "https://u:p@host"])
def test_a_token_goes_over_https_or_to_this_host(address: str) -> None:
    with pytest.raises(AddressRefused):
        Client(address, token="mst_1")
    assert Client("http://127.0.0.1:8000/", token="mst_1").transport.server == "http://127.0.0.1:8000"


def test_a_hostile_id_stays_one_segment_of_the_path() -> None:
    assert part("../users/1") == "..%2Fusers%2F1"
    assert part("..") == "%2E%2E"
    assert query_text({"open": True, "state": ["a", "b"], "run": None}) == "?open=true&state=a%2Cb"
