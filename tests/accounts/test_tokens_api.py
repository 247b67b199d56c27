"""Tokens: shown once, never above their user, refused when expired or revoked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from factories import token, user

from apps.accounts.models import ApiToken, Role

pytestmark = pytest.mark.django_db


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def whoami(client: Client, secret: str) -> Any:
    return client.get("/api/v1/whoami/", headers=bearer(secret))


def test_a_token_signs_in_with_its_own_role_and_is_kept_only_as_a_digest(client: Client) -> None:
    secret = token(user(role=Role.ADMIN), Role.VIEWER)
    answer = whoami(client, secret)
    assert answer.status_code == 200
    assert answer.json()["role"] == "viewer"
    assert secret.startswith("mst_")
    assert not ApiToken.objects.filter(secret_sha256=secret).exists()


def test_a_token_never_gives_more_than_its_users_role(client: Client) -> None:
    assert whoami(client, token(user(role=Role.VIEWER), Role.ADMIN)).json()["role"] == "viewer"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"revoked_at": timezone.now()}, "revoked"),
        ({"expires_at": timezone.now() - timedelta(seconds=1)}, "expired"),
    ],
)
def test_a_dead_token_is_refused_with_the_reason(client: Client, change: dict[str, Any], word: str) -> None:
    secret = token(user())
    ApiToken.objects.update(**change)
    answer = whoami(client, secret)
    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/problem+json"
    assert word in answer.json()["detail"]


def test_without_a_token_the_answer_is_401_and_says_how_to_sign_in(client: Client) -> None:
    answer = client.get("/api/v1/whoami/")
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"].startswith("Bearer")


def test_an_unknown_token_is_refused(client: Client) -> None:
    assert whoami(client, "mst_nonsense").status_code == 401


def test_a_viewer_token_cannot_buy_an_admin_token_of_the_same_admin(client: Client) -> None:
    secret = token(user(role=Role.ADMIN), Role.VIEWER)
    answer = client.post(
        "/api/v1/tokens/", {"name": "up", "role": "admin"}, content_type="application/json", headers=bearer(secret)
    )
    assert answer.status_code == 403
    assert ApiToken.objects.count() == 1


def test_only_an_admin_makes_tokens_for_others(client: Client) -> None:
    user("victor", Role.VIEWER)
    body = {"name": "theirs", "username": "victor"}
    operator, admin = token(user("olga", Role.OPERATOR)), token(user("ada", Role.ADMIN))
    refused = client.post("/api/v1/tokens/", body, content_type="application/json", headers=bearer(operator))
    made = client.post("/api/v1/tokens/", body, content_type="application/json", headers=bearer(admin))
    assert (refused.status_code, made.status_code) == (403, 201)
    assert made.json()["user"] == "victor"
    assert whoami(client, made.json()["secret"]).json()["username"] == "victor"


def test_one_sees_and_revokes_only_ones_own_tokens(client: Client) -> None:
    mine, theirs = token(user("olga")), user("victor", Role.VIEWER)
    token(theirs)
    listed = client.get("/api/v1/tokens/", headers=bearer(mine)).json()["items"]
    assert [row["user"] for row in listed] == ["olga"]
    foreign = ApiToken.objects.get(user=theirs)
    assert client.delete(f"/api/v1/tokens/{foreign.pk}/", headers=bearer(mine)).status_code == 404
    foreign.refresh_from_db()
    assert foreign.revoked_at is None


def test_an_unknown_field_is_refused_with_a_pointer_to_it(client: Client) -> None:
    secret = token(user())
    answer = client.post(
        "/api/v1/tokens/", {"name": "x", "lifetime": 3}, content_type="application/json", headers=bearer(secret)
    )
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == "/lifetime"
