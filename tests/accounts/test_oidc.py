"""Signing in through a real OpenID Connect provider on loopback: roles by groups, and every way in which it may lie."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import factories
import pytest
import requests
import urllib3
from django.http import HttpResponse
from django.test import Client
from pytest_django.fixtures import Settings
from servers.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider

from apps.accounts.models import ActivityEntry, Identity, Role, User
from apps.accounts.oidc import person_of, role_of
from apps.accounts.oidc_transport import ProviderSession
from apps.core.errors import Forbidden
from tests.hostile_hosts import NEVER, PRIVATE, netloc

pytestmark = pytest.mark.django_db


@pytest.fixture
def provider(settings: Settings) -> Iterator[Provider]:
    running = Provider()
    settings.OIDC_ISSUER = running.issuer
    settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET = CLIENT_ID, CLIENT_SECRET
    settings.OIDC_SCOPES, settings.OIDC_GROUPS_CLAIM = "openid profile groups", "groups"
    settings.OIDC_ROLES = {"ml-infra": "admin", "research": "viewer", "oncall": "operator"}
    yield running
    running.stop()


def sign_in(client: Client, to: str = "") -> HttpResponse:
    """To the provider and back, as a browser goes."""
    begun = client.get("/sign-in/oidc/", {"next": to})
    assert begun.status_code == 302, begun.content
    answer = urllib3.request("GET", begun["Location"], redirect=False)
    return client.get(answer.headers["Location"].removeprefix("http://testserver"))


def test_the_first_sign_in_makes_an_account_with_the_role_of_its_groups(client: Client, provider: Provider) -> None:
    answer = sign_in(client, "/access/")
    assert (answer.status_code, answer["Location"]) == (302, "/access/")
    user = User.objects.get()
    assert (user.username, user.role, user.has_usable_password()) == ("olga", Role.ADMIN, False)
    assert client.get("/access/").status_code == 200
    assert ActivityEntry.objects.get(action="user.create").detail["role"] == "admin"


def test_the_same_person_keeps_the_account_when_name_and_groups_change(client: Client, provider: Provider) -> None:
    sign_in(client)
    provider.claims |= {"preferred_username": "olga.petrova", "groups": ["research"]}
    sign_in(Client())
    user = User.objects.get()
    assert (user.username, user.role) == ("olga", Role.VIEWER)
    assert ActivityEntry.objects.filter(action="user.update", target_id="olga").count() == 1
    assert Identity.objects.get().last_used_at is not None


def test_nobody_gets_the_account_of_another_by_having_the_same_name(client: Client, provider: Provider) -> None:
    factories.user("olga", Role.ADMIN)
    provider.claims["groups"] = ["research"]
    sign_in(client)
    assert set(User.objects.values_list("username", "role")) == {("olga", "admin"), ("olga@127.0.0.1", "viewer")}


def test_without_a_group_that_gives_a_role_nobody_gets_in(client: Client, provider: Provider) -> None:
    provider.claims["groups"] = ["marketing"]
    answer = sign_in(client)
    assert answer.status_code == 403
    assert b"None of your groups" in answer.content
    assert not User.objects.exists()
    assert client.get("/access/").status_code == 302


def test_a_closed_account_stays_closed(client: Client, provider: Provider) -> None:
    sign_in(client)
    User.objects.update(is_active=False)
    assert sign_in(Client()).status_code == 403


LIES: dict[str, dict[str, Any]] = {
    "another nonce": {"nonce": "another"},
    "for another client": {"aud": "somebody-else"},
    "by another issuer": {"iss": "https://evil.example"},
    "expired": {"exp": int(time.time()) - 3600, "iat": int(time.time()) - 7200},
    "unsigned": {"unsigned": True},
}


@pytest.mark.parametrize("lie", [*LIES, "another key"])
def test_an_id_token_that_is_wrong_signs_nobody_in(client: Client, provider: Provider, lie: str) -> None:
    provider.lie(**(LIES.get(lie) or {"key": provider.other_key}))
    answer = sign_in(client)
    assert answer.status_code in (403, 503)
    assert not User.objects.exists()
    assert client.get("/access/").status_code == 302


def test_an_answer_that_was_not_asked_for_is_refused(client: Client, provider: Provider) -> None:
    for query in ({"code": "x", "state": "y"}, {}, {"error": "access_denied", "state": "y"}):
        assert client.get("/sign-in/oidc/callback/", query).status_code == 403
    begun = client.get("/sign-in/oidc/")
    answer = urllib3.request("GET", begun["Location"], redirect=False)
    back = answer.headers["Location"].removeprefix("http://testserver")
    assert Client().get(back).status_code == 403  # another browser: somebody's link to sign a victim in
    assert client.get(back).status_code == 302
    assert client.get(back).status_code == 403  # once


def test_it_asks_with_pkce_and_a_nonce(client: Client, provider: Provider) -> None:
    sign_in(client)
    (asked,) = provider.asked_for
    assert asked["code_challenge_method"] == "S256"
    assert len(asked["code_challenge"]) == 43
    assert asked["nonce"]
    assert "openid" in asked["scope"]


def test_a_provider_that_is_away_is_said_so_and_passwords_go_on_working(client: Client, provider: Provider) -> None:
    provider.broken = True
    answer = client.get("/sign-in/oidc/")
    assert answer.status_code == 503
    assert b"does not answer" in answer.content
    factories.user("ada", password="correct horse battery")
    assert client.post("/sign-in/", {"username": "ada", "password": "correct horse battery"}).status_code == 302


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example/"])
def test_it_never_redirects_to_another_site(client: Client, provider: Provider, target: str) -> None:
    assert sign_in(client, target)["Location"] == "/"


def test_the_session_key_changes_with_the_sign_in(client: Client, provider: Provider) -> None:
    begun = client.get("/sign-in/oidc/")
    before = client.session.session_key
    answer = urllib3.request("GET", begun["Location"], redirect=False)
    client.get(answer.headers["Location"].removeprefix("http://testserver"))
    assert client.session.session_key != before


def test_without_the_settings_there_is_no_such_page_and_no_button(client: Client, settings: Settings) -> None:
    settings.OIDC_ISSUER = ""
    assert client.get("/sign-in/oidc/").status_code == 404
    assert client.get("/sign-in/oidc/callback/").status_code == 404
    assert b"/sign-in/oidc/" not in client.get("/sign-in/").content


def test_the_button_leads_to_the_provider_and_back_to_where_one_wanted(client: Client, provider: Provider) -> None:
    assert b"/sign-in/oidc/?next=/drills/" in client.get("/sign-in/?next=/drills/").content


# -- where the provider's answers may lead ----------------------------------------------------------------------------


@pytest.mark.parametrize("host", [*NEVER, *PRIVATE])
def test_no_host_that_a_provider_names_is_connected_to_where_it_must_not(
    host: str, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.OIDC_ISSUER = "https://sso.example"
    monkeypatch.setattr(socket.socket, "connect", lambda *_given: pytest.fail("it connected"))
    with ProviderSession() as session, pytest.raises((requests.RequestException, ValueError)):
        session.request("GET", f"https://{netloc(host)}/keys", withhold_token=True, timeout=5)


@pytest.mark.parametrize("key", ["token_endpoint", "jwks_uri"])
def test_a_document_that_names_a_metadata_service_is_refused_with_the_reason(
    key: str, client: Client, provider: Provider
) -> None:
    provider.named = {key: "http://169.254.169.254/x"}
    answer = sign_in(client)
    assert answer.status_code == 503
    assert b"link-local or a cloud&#x27;s metadata service" in answer.content
    assert not User.objects.exists()


def test_a_provider_that_redirects_is_not_followed(client: Client, provider: Provider) -> None:
    provider.moved_to = f"{provider.issuer}/authorize?redirect_uri=x&state=y"
    answer = client.get("/sign-in/oidc/")
    assert answer.status_code == 503 and b"TooManyRedirects" in answer.content
    assert provider.asked_for == []


# -- pure --------------------------------------------------------------------------------------------------------------


def test_the_highest_role_counts_and_a_star_is_everybody() -> None:
    roles = {"a": "viewer", "b": "admin", "c": "operator"}
    assert role_of(("a", "c"), roles) == Role.OPERATOR
    assert role_of(("x",), roles) is None
    assert role_of((), {"*": "viewer", **roles}) == Role.VIEWER


@pytest.mark.parametrize(
    ("told", "groups"), [(["a", "b"], ("a", "b")), ("a", ("a",)), (None, ()), ({"a": 1}, ()), (7, ())]
)
def test_groups_come_as_providers_send_them(told: Any, groups: tuple[str, ...]) -> None:
    assert person_of({"iss": "i", "sub": "s", "groups": told}, groups_claim="groups").groups == groups


def test_a_token_that_names_nobody_is_refused() -> None:
    with pytest.raises(Forbidden):
        person_of({"iss": "i"}, groups_claim="groups")
