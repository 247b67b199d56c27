"""Whether Muster itself is watching, and the signal that goes silent when it is not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import factories
import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Role
from apps.alerts import dead_man, own_health
from apps.core import heartbeats
from apps.core.models import Heartbeat
from apps.storage.models import CeilingRun

pytestmark = pytest.mark.django_db


@pytest.fixture
def all_well() -> None:
    for part in heartbeats.PARTS:
        heartbeats.beat(part)


def late(part: str, seconds: float) -> None:
    Heartbeat.objects.filter(part=part).update(beat_at=timezone.now() - timedelta(seconds=seconds))


def unwell() -> list[str]:
    return [part.name for part in own_health.parts() if not part.is_well]


def test_an_installation_whose_parts_never_ran_is_not_watching() -> None:
    assert unwell() == list(heartbeats.PARTS)


@pytest.mark.parametrize(("part", "seconds"), [("ticks", 31), ("sweeps", 61), ("queue:move", 151)])
def test_a_part_that_stands_still_is_named_with_what_to_do(all_well: None, part: str, seconds: float) -> None:
    assert unwell() == []
    late(part, seconds)
    (found,) = [one for one in own_health.parts() if not one.is_well]
    assert (found.name, found.age_seconds is not None and found.age_seconds >= seconds) == (part, True)
    assert "run" in found.cure or "start" in found.cure


def test_redis_that_is_away_is_named(all_well: None, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert unwell() == ["broker"]


def test_work_that_nobody_takes_up_is_named(all_well: None) -> None:
    tier = factories.tier(factories.cluster())
    CeilingRun.objects.create(
        tier=tier,
        requested_by="olga",
        created_at=timezone.now(),
        next_attempt_at=timezone.now() - timedelta(minutes=6),
    )
    assert unwell() == ["overdue work"]


def test_every_page_says_when_a_part_stands_still(all_well: None, client: Client) -> None:
    client.force_login(factories.user("vera", Role.VIEWER))
    assert b"Muster is not watching" not in client.get("/runs/").content
    late("sweeps", 300)
    page = client.get("/runs/").content.decode()
    assert "Muster is not watching" in page
    assert "sweeps" in page
    assert "/health/" in page


def test_the_page_and_the_api_name_the_part(all_well: None, client: Client) -> None:
    client.force_login(factories.user("vera", Role.VIEWER))
    assert "Muster is watching" in client.get("/health/").content.decode()
    late("queue:scan", 200)
    page = client.get("/health/").content.decode()
    assert "Muster is not watching" in page
    assert "start a worker with -Q scan" in page
    answer = client.get("/api/v1/health").json()
    assert answer["watching"] is False
    assert [part["name"] for part in answer["parts"] if not part["is_well"]] == ["queue:scan"]


class Monitor:
    """A monitor elsewhere that expects a call."""

    def __init__(self, status: int = 200) -> None:
        self.calls: list[str] = []
        monitor = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                monitor.calls.append(self.path)
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_arguments: Any) -> None:
                return

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/ping/secret-word"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    made = Monitor()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_the_dead_man_signal_leaves_while_all_is_well_and_stops_when_a_part_does(
    all_well: None, monitor: Monitor, settings: Any
) -> None:
    settings.DEAD_MAN_URL = monitor.url
    assert dead_man.signal()
    late("ticks", 60)
    assert not dead_man.signal()
    assert monitor.calls == ["/ping/secret-word"]


def test_without_an_address_nothing_is_called(all_well: None, settings: Any) -> None:
    settings.DEAD_MAN_URL = ""
    assert not dead_man.signal()


def test_a_monitor_that_is_away_is_told_in_the_log_without_its_address(
    all_well: None, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.DEAD_MAN_URL = "http://127.0.0.1:1/ping/secret-word"
    assert not dead_man.signal()
    assert "did not arrive" in caplog.text
    assert "secret-word" not in caplog.text


def test_redirects_are_not_followed(all_well: None, settings: Any) -> None:
    moved = Monitor(status=302)
    settings.DEAD_MAN_URL = moved.url
    assert not dead_man.signal()
    assert len(moved.calls) == 1
    moved.server.shutdown()
    moved.server.server_close()
