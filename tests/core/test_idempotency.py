"""A request under a key is done once, whatever is sent again, at the same time, or cut off."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import factories
import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from apps.accounts.models import ApiToken, Role, User
from apps.core import idempotency
from apps.core.models import IdempotentRequest
from apps.drills.models import Drill

URL = "/api/v1/drills/"


@pytest.fixture
def bearer(db: None) -> dict[str, str]:
    factories.run(factories.cluster())
    return {"Authorization": f"Bearer {factories.token(factories.user('ada', Role.ADMIN))}"}


def post(bearer: dict[str, str], key: str | None = '"k1"', url: str = URL, **body: Any) -> Any:
    headers = {**bearer, **({"Idempotency-Key": key} if key is not None else {})}
    sent = body or {"run": "llama-70b", "kind": "reload"}
    return Client().post(url, sent, content_type="application/json", headers=headers)


def test_the_second_gets_the_first_answer_and_nothing_is_done_twice(bearer: dict[str, str]) -> None:
    first, second = post(bearer), post(bearer, key="k1")
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json() and second["Content-Type"] == first["Content-Type"]
    assert second["Idempotent-Replayed"] == "true" and "Idempotent-Replayed" not in first
    assert Drill.objects.count() == 1


def test_without_a_key_each_request_is_its_own(bearer: dict[str, str]) -> None:
    assert post(bearer, key=None).json()["id"] != post(bearer, key=None).json()["id"]
    assert IdempotentRequest.objects.count() == 0


def test_another_body_under_the_key_is_a_mistake(bearer: dict[str, str]) -> None:
    post(bearer)
    other = post(bearer, run="llama-70b", kind="herd")
    assert (other.status_code, other.json()["errors"][0]["code"]) == (422, "idempotency_key_reused")
    assert Drill.objects.count() == 1


def test_a_key_is_one_callers_and_one_paths(bearer: dict[str, str]) -> None:
    drill = post(bearer).json()["id"]
    other = {"Authorization": f"Bearer {factories.token(factories.user('bea', Role.ADMIN))}"}
    assert post(other).json()["id"] != drill
    assert post(bearer, url=f"{URL}{drill}/cancel/").status_code == 200


def test_a_refusal_uses_up_no_key(bearer: dict[str, str]) -> None:
    assert post(bearer, run="nobody", kind="reload").status_code == 404
    assert post(bearer, run="llama-70b", kind="reload").status_code == 201


@pytest.mark.parametrize("key", ["", '""', "x" * 300, "ä", "a\tb"])
def test_a_key_that_is_none_is_named(bearer: dict[str, str], key: str) -> None:
    refused = post(bearer, key=key)
    assert (refused.status_code, refused["Content-Type"]) == (400, "application/problem+json")
    assert Drill.objects.count() == 0


def test_nobody_replays_with_a_token_that_was_revoked(bearer: dict[str, str]) -> None:
    post(bearer)
    ApiToken.objects.update(revoked_at=timezone.now())
    assert post(bearer).status_code == 401


def test_while_the_first_runs_the_second_is_told_to_ask_again(bearer: dict[str, str]) -> None:
    post(bearer)
    IdempotentRequest.objects.update(status=None, lease_expires_at=timezone.now() + timedelta(seconds=30))
    running = post(bearer)
    assert (running.status_code, running["Retry-After"]) == (409, "1")
    assert running.json()["errors"][0]["code"] == "idempotency_running"


def test_work_that_a_crash_cut_off_left_nothing_and_is_done_by_the_next(bearer: dict[str, str]) -> None:
    post(bearer)
    Drill.objects.all().delete()
    IdempotentRequest.objects.update(status=None, lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert post(bearer).status_code == 201
    assert Drill.objects.count() == 1


def test_work_and_answer_are_stored_together_or_not_at_all(
    bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(idempotency, "_keep", cut_off)
    with pytest.raises(KeyboardInterrupt):
        post(bearer)
    assert (Drill.objects.count(), IdempotentRequest.objects.count()) == (0, 0)


def test_a_secret_is_told_once_and_stored_nowhere(bearer: dict[str, str]) -> None:
    first = post(bearer, url="/api/v1/tokens/", name="ci")
    secret = first.json()["secret"]
    assert secret not in str(list(IdempotentRequest.objects.values_list("body", "headers")))
    again = post(bearer, url="/api/v1/tokens/", name="ci")
    assert (again.status_code, again.json()["errors"][0]["code"]) == (409, "idempotency_secret")
    assert ApiToken.objects.filter(name="ci").count() == 1


def test_a_day_later_the_key_is_new(bearer: dict[str, str]) -> None:
    first = post(bearer).json()["id"]
    IdempotentRequest.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert post(bearer).json()["id"] != first


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_one_is_done() -> None:
    factories.run(factories.cluster())
    bearer = {"Authorization": f"Bearer {factories.token(factories.user('ada', Role.ADMIN))}"}
    answers: list[Any] = []

    def send() -> None:
        try:
            answers.append(post(bearer))
        finally:
            connection.close()

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.json()["id"] for answer in answers if answer.status_code == 201}) == 1
    assert Drill.objects.count() == 1
    User.objects.all().delete()
