"""Signing in and out through the browser's form."""

from __future__ import annotations

import pytest
import redis
from django.conf import settings
from django.test import Client
from factories import user

from apps.accounts import throttle

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def fresh_counts() -> None:
    redis.Redis.from_url(settings.REDIS_URL).flushdb()


def test_the_right_password_signs_in_and_goes_where_one_wanted(client: Client) -> None:
    user(password=PASSWORD)
    answer = client.post("/sign-in/", {"username": "olga", "password": PASSWORD, "next": "/access/"})
    assert (answer.status_code, answer["Location"]) == (302, "/access/")
    assert client.get("/access/").status_code == 200


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"])
def test_sign_in_never_redirects_to_another_site(client: Client, target: str) -> None:
    user(password=PASSWORD)
    answer = client.post("/sign-in/", {"username": "olga", "password": PASSWORD, "next": target})
    assert answer["Location"] == "/"


def test_a_wrong_name_and_a_wrong_password_read_the_same(client: Client) -> None:
    user(password=PASSWORD)
    wrong_password = client.post("/sign-in/", {"username": "olga", "password": "no"})
    wrong_name = client.post("/sign-in/", {"username": "nobody", "password": "no"})
    sentence = b"do not match an account"
    assert sentence in wrong_password.content
    assert sentence in wrong_name.content


def test_guessing_is_slowed_and_even_the_right_password_then_waits(client: Client) -> None:
    user(password=PASSWORD)
    for _guess in range(throttle.FAILURES_PER_NAME):
        client.post("/sign-in/", {"username": "olga", "password": "no"})
    answer = client.post("/sign-in/", {"username": "olga", "password": PASSWORD})
    assert answer.status_code == 400
    assert b"Too many failed sign-ins" in answer.content


def test_sign_in_works_while_redis_is_away(client: Client, settings: object) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"  # type: ignore[attr-defined]
    user(password=PASSWORD)
    assert client.post("/sign-in/", {"username": "olga", "password": PASSWORD}).status_code == 302


def test_sign_out_needs_a_post_so_that_a_link_cannot_do_it(client: Client) -> None:
    client.force_login(user())
    assert client.get("/sign-out/").status_code == 405
    assert client.post("/sign-out/").status_code == 302
    assert client.get("/access/").status_code == 302
