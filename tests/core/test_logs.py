"""JSON logs: one object a line, whatever was logged, with the request or task that it belongs to."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest
from dashboard.stored_text import TERMINAL
from django.test import Client
from muster_agent.protocol.printable import LineFormatter
from pytest_django.fixtures import Settings

from apps.core import logs


def record(message: Any = "hello", *args: Any, **extra: Any) -> logging.LogRecord:
    made = logging.getLogger("muster.test").makeRecord("muster.test", logging.INFO, "f.py", 1, message, args, None)
    made.__dict__.update(extra)
    return made


def formatted(made: logging.LogRecord) -> dict[str, Any]:
    text = logs.JsonFormatter().format(made)
    assert "\n" not in text
    told: dict[str, Any] = json.loads(text)
    return told


def test_a_line_has_its_time_level_logger_and_message() -> None:
    told = formatted(record("read %d of %d", 3, 8))
    assert (told["level"], told["logger"], told["message"]) == ("INFO", "muster.test", "read 3 of 8")
    assert told["at"].endswith("Z")


def test_what_was_given_as_extra_is_a_field_and_never_replaces_ours() -> None:
    told = formatted(record(seconds=0.5, at="never", odd=object()))
    assert told["seconds"] == 0.5
    assert told["at"] != "never"
    assert "odd" not in told


@pytest.mark.parametrize("message", ["two\nlines", "\x1b[31mred", '"}{"', "\ud800"])
def test_no_message_breaks_the_line(message: str) -> None:
    told = formatted(record(message))
    assert told["message"] == message


@pytest.mark.parametrize("text", TERMINAL)
def test_no_text_begins_a_line_of_the_log_or_reaches_the_terminal(text: str) -> None:
    said = LineFormatter("%(levelname)s %(message)s").format(record("a node is called %s", text))
    assert said.isprintable()
    assert formatted(record(text))["message"] == text
    try:
        raise ValueError(text)
    except ValueError:
        made = record("it failed")
        made.exc_info = sys.exc_info()
    traceback = LineFormatter("%(message)s").format(made).splitlines()
    assert traceback[0] == "it failed" and all(line.isprintable() for line in traceback)


def test_a_traceback_s_lines_stand_in_and_cannot_pass_for_a_message() -> None:
    try:
        raise ValueError("x\n2026-01-01T00:00:00 INFO all is well")
    except ValueError:
        made = record("it failed")
        made.exc_info = sys.exc_info()
    first, *others = LineFormatter("%(message)s").format(made).split("\n")
    assert first == "it failed" and all(line.startswith("  ") for line in others)


def test_arguments_that_do_not_fit_are_logged_all_the_same() -> None:
    assert "%d" in formatted(record("%d", "three"))["message"]


def test_an_exception_has_its_traceback() -> None:
    try:
        raise KeyError("rank 3")
    except KeyError:
        made = record()
        made.exc_info = sys.exc_info()
    assert "KeyError: 'rank 3'" in formatted(made)["exception"]


def test_a_request_s_id_is_on_every_line_that_it_causes(
    client: Client, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.ACCESS_LOG = True
    caplog.handler.setFormatter(logs.JsonFormatter())
    with caplog.at_level(logging.INFO, logger="muster.access"):
        answer = client.get("/nowhere/?q=secret", headers={"X-Request-Id": "req-7"})
    told = next(one for one in map(json.loads, caplog.text.splitlines()) if one["logger"] == "muster.access")
    assert answer["X-Request-Id"] == told["request_id"] == "req-7"
    assert (told["method"], told["status"]) == ("GET", 404)
    assert told["seconds"] >= 0
    assert "secret" not in caplog.text


def test_probes_are_not_logged(client: Client, settings: Settings, caplog: pytest.LogCaptureFixture, db: None) -> None:
    settings.ACCESS_LOG = True
    with caplog.at_level(logging.INFO, logger="muster.access"):
        client.get("/healthz")
    assert caplog.text == ""


def test_a_task_knows_the_request_that_woke_it(settings: Settings) -> None:
    """Through the headers of a real message, in a worker of this process."""
    from celery import Celery

    from controlplane import task_logs

    task_logs.watch_tasks()
    app = Celery("echo", broker="memory://", set_as_current=False)
    app.conf.update(task_always_eager=True)
    seen: list[tuple[str, str]] = []

    @app.task(name="muster.test.echo")
    def echo() -> None:
        seen.append((logs.task_name.get(), logs.request_id.get()))

    echo.apply_async(headers={"request_id": "req-9"})
    assert seen == [("muster.test.echo", "req-9")]
    assert (logs.task_name.get(), logs.request_id.get()) == ("", "")
