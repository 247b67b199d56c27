"""Users: made and changed by admins only; the last admin stays."""

from __future__ import annotations

import pytest
from django.test import Client
from factories import token, user

from apps.accounts.models import ActivityEntry, Role, User

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(client: Client) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(user('ada', Role.ADMIN))}", "If-Match": "*"}


def test_an_admin_makes_a_person_with_a_good_password(client: Client, admin: dict[str, str]) -> None:
    body = {"username": "olga", "role": "operator", "password": "long enough and odd"}
    answer = client.post("/api/v1/users/", body, content_type="application/json", headers=admin)
    assert answer.status_code == 201
    assert "password" not in answer.json()
    assert User.objects.get(username="olga").check_password("long enough and odd")
    assert ActivityEntry.objects.filter(action="user.create", target_id="olga", actor="ada").exists()


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"username": "olga"}, "/password"),
        ({"username": "olga", "password": "short"}, "/password"),
        ({"username": "bot", "is_service": True, "password": "long enough and odd"}, "/password"),
        ({"username": "ada", "password": "long enough and odd"}, "/username"),
    ],
)
def test_a_bad_new_user_is_refused_with_a_pointer(
    client: Client, admin: dict[str, str], body: dict[str, object], pointer: str
) -> None:
    answer = client.post("/api/v1/users/", body, content_type="application/json", headers=admin)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_the_last_admin_cannot_be_demoted_or_closed(client: Client, admin: dict[str, str]) -> None:
    ada = User.objects.get(username="ada")
    for change in ({"role": "viewer"}, {"is_active": False}):
        answer = client.patch(f"/api/v1/users/{ada.pk}/", change, content_type="application/json", headers=admin)
        assert answer.status_code == 409
    user("bea", Role.ADMIN)
    answer = client.patch(
        f"/api/v1/users/{ada.pk}/", {"role": "viewer"}, content_type="application/json", headers=admin
    )
    assert answer.json()["role"] == "viewer"


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_others_cannot_read_users_or_the_activity_log(client: Client, role: Role) -> None:
    headers = {"Authorization": f"Bearer {token(user('x', role))}"}
    for path in ("/api/v1/users/", "/api/v1/activity/"):
        assert client.get(path, headers=headers).status_code == 403
