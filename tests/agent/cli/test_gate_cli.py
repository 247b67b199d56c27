"""`muster gate`: the server's checklist as an exit code."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.agent.cli.asking import muster

STEPS = ("chaos_node_failure", "line_rate_read", "rank_shard_parallelism", "integrity_hashing", "hot_standby")


class Control:
    """A control plane's answer over real HTTP; `asked` are the paths and tokens that came."""

    def __init__(self) -> None:
        self.status, self.body = 200, answer()
        self.asked: list[tuple[str, str | None]] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        control = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                control.asked.append((self.path, self.headers["Authorization"]))
                self.send_response(control.status)
                self.end_headers()
                self.wfile.write(control.body)

            def log_message(self, *_arguments: Any) -> None:
                pass

        return Handler


def answer(**verdicts: str) -> bytes:
    steps = [
        {
            "step": step,
            "title": step.replace("_", " "),
            "verdict": verdicts.get(step, "passed"),
            "age_seconds": 7200.0,
            "detail": "seen",
            "next_action": "" if step not in verdicts else "do it again",
        }
        for step in STEPS
    ]
    return json.dumps({"run_name": "llama\x1b[31m", "score": 85.0, "steps": steps}).encode()


@pytest.fixture
def control() -> Iterator[Control]:
    control = Control()
    yield control
    control.server.shutdown()
    control.server.server_close()


def test_a_run_that_passed_everything_exits_0_and_says_its_score(control: Control) -> None:
    done = muster("gate", "east/llama 70b", "--server", control.url, "--max-age", "2d")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "readiness score 85 of 100" in done.stdout and "\x1b" not in done.stdout
    assert control.asked == [("/api/v1/runs/east/llama%2070b/checklist?max_age_seconds=172800", None)]


def test_one_step_that_is_stale_exits_8_and_names_what_to_do(control: Control) -> None:
    control.body = answer(hot_standby="stale")
    done = muster("gate", "llama", "--server", control.url)
    assert done.exit_code == 8
    assert "hot standby, 2 h ago: seen" in done.stdout and "next: do it again" in done.stdout
    assert "1 of 5 steps" in done.stderr


def test_a_gate_on_some_steps_looks_at_no_other(control: Control) -> None:
    control.body = answer(hot_standby="missing")
    asked = ("gate", "llama", "--server", control.url, "--step")
    assert muster(*asked, "line_rate_read").exit_code == 0
    assert muster(*asked, "line_rate_read", "--step", "hot_standby").exit_code == 8


def test_the_token_goes_along_and_json_is_the_servers_own(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_TOKEN", "mst_1")
    done = muster("gate", "llama", "--server", control.url, "--json")
    assert json.loads(done.stdout)["score"] == 85
    assert control.asked[0][1] == "Bearer mst_1"


@pytest.mark.parametrize(("status", "code"), [(401, 4), (403, 4), (404, 3), (409, 5), (500, 1)])
def test_refusals_have_their_own_exit_codes(control: Control, status: int, code: int) -> None:
    control.status = status
    done = muster("gate", "llama", "--server", control.url)
    assert (done.exit_code, done.stdout) == (code, "")
    assert "what to do:" in done.stderr


def test_a_server_that_is_away_exits_9_and_an_answer_of_another_kind_1(control: Control) -> None:
    assert muster("gate", "llama", "--server", "http://127.0.0.1:9").exit_code == 9
    control.body = b"<html>"
    assert muster("gate", "llama", "--server", control.url).exit_code == 1


def test_without_a_server_or_with_a_bad_age_it_is_a_slip_of_the_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUSTER_SERVER", raising=False)
    assert muster("gate", "llama").exit_code == 2
    assert muster("gate", "llama", "--server", "http://127.0.0.1:9", "--max-age", "soon").exit_code == 2
