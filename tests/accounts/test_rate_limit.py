"""Requests to the REST API are counted, in a real Redis; without one nobody is held up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import factories
import pytest
from django.test import Client
from servers.valkey import Valkey

from apps.accounts import rate_limit
from apps.accounts.models import Role

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    running = Valkey()
    yield running
    running.stop()


@pytest.fixture
def limited(valkey: Valkey, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.REDIS_URL, settings.API_RATE_PER_MINUTE = valkey.url, 3
    monkeypatch.setattr(rate_limit, "_silent_until", 0.0)
    monkeypatch.setattr(rate_limit.time, "time", lambda: 0.0)


@pytest.fixture
def bearer() -> dict[str, str]:
    return {"Authorization": f"Bearer {factories.token(factories.user('ada', Role.ADMIN))}"}


def whoami(headers: dict[str, str]) -> Any:
    return Client().get("/api/v1/whoami/", headers=headers)


def test_the_last_of_the_quota_is_told_and_the_next_has_to_wait(limited: None, bearer: dict[str, str]) -> None:
    left = [whoami(bearer)["RateLimit"].split(";")[1] for _ in range(3)]
    assert left == ["r=2", "r=1", "r=0"]
    refused = whoami(bearer)
    assert refused.status_code == 429 and 1 <= int(refused["Retry-After"]) <= 60
    assert refused["RateLimit-Policy"] == '"default";q=3;w=60'
    body = refused.json()
    assert refused["Content-Type"] == "application/problem+json"
    assert body["type"].endswith("#quota-exceeded") and body["errors"][0]["code"] == "quota-exceeded"


def test_each_caller_has_a_quota_of_its_own(limited: None, bearer: dict[str, str]) -> None:
    for _ in range(4):
        whoami(bearer)
    other = {"Authorization": f"Bearer {factories.token(factories.user('bea', Role.ADMIN))}"}
    assert whoami(other).status_code == 200
    statuses = [whoami({}).status_code for _ in range(4)]
    assert statuses == [401, 401, 401, 429], "guessing is counted by address"


def test_pages_and_agents_are_not_counted(limited: None) -> None:
    for _ in range(5):
        assert "RateLimit" not in Client().get("/sign-in/")
        assert Client().post("/agent/v1/poll", "{}", content_type="application/json").status_code != 429


def test_without_redis_nobody_is_held_up_and_it_is_not_asked_each_time(
    settings: Any, monkeypatch: pytest.MonkeyPatch, bearer: dict[str, str]
) -> None:
    settings.REDIS_URL, settings.API_RATE_PER_MINUTE = "redis://127.0.0.1:1/0", 1
    monkeypatch.setattr(rate_limit, "_silent_until", 0.0)
    answers = [whoami(bearer) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert "RateLimit" not in answers[0]
    assert rate_limit._silent_until > time.monotonic()


def test_the_counter_holds_no_token(limited: None, valkey: Valkey, bearer: dict[str, str]) -> None:
    import redis

    whoami(bearer)
    keys = b" ".join(redis.Redis.from_url(valkey.url).keys("muster:api-rate:*"))
    assert b"token:" in keys and bearer["Authorization"].split("_")[1].encode() not in keys
