"""Every error under /api/ is a problem document."""

from __future__ import annotations

import pytest
from django.db import OperationalError
from django.test import Client
from factories import token, user

pytestmark = pytest.mark.django_db


@pytest.fixture
def headers() -> dict[str, str]:
    return {"Authorization": f"Bearer {token(user())}"}


@pytest.mark.parametrize(
    ("method", "path", "body", "content_type", "status"),
    [
        ("get", "/api/v1/whoami/", None, None, 401),
        ("get", "/api/v1/tokens/nothing/", None, None, 405),
        ("delete", "/api/v1/tokens/nothing/", None, None, 404),
        ("get", "/api/v1/no-such-thing/", None, None, 404),
        ("put", "/api/v1/tokens/", "{}", "application/json", 405),
        ("post", "/api/v1/tokens/", "{broken", "application/json", 400),
        ("post", "/api/v1/tokens/", "name=x", "text/plain", 415),
        ("post", "/api/v1/tokens/", "[" * 100_000, "application/json", 400),
        ("post", "/api/v1/tokens/", " " * 6_000_000, "application/json", 413),
        ("post", "/agent/v1/enrol", "[" * 2_000_000, "application/json", 422),
        ("get", "/api/v1/tokens/?limit=0", None, None, 400),
        ("get", "/api/v1/tokens/?cursor=forged", None, None, 400),
        ("get", "/api/v1/tokens/?sort=secret", None, None, 400),
        ("get", "/api/v1/users/", None, None, 403),
    ],
)
def test_each_kind_of_error_has_the_one_shape(
    client: Client,
    headers: dict[str, str],
    method: str,
    path: str,
    body: str | None,
    content_type: str | None,
    status: int,
) -> None:
    extra = {"data": body, "content_type": content_type} if body is not None else {}
    answer = getattr(client, method)(path, headers={} if status == 401 else headers, **extra)
    assert answer.status_code == status
    assert answer["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["detail"]
    assert problem["instance"] == path.partition("?")[0]
    assert problem["request_id"] == answer["X-Request-Id"]
    assert all(set(error) == {"pointer", "code", "detail"} for error in problem["errors"])


def test_a_database_that_is_busy_is_503_and_says_to_try_again(
    headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(raise_request_exception=False)

    def locked(*_args: object, **_kwargs: object) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr("apps.accounts.services.create_token", locked)
    answer = client.post("/api/v1/tokens/", {"name": "x"}, content_type="application/json", headers=headers)
    assert answer.status_code == 503
    assert "try again" in answer.json()["detail"]
    assert answer["Retry-After"] == "2"


@pytest.mark.parametrize("path", ["/api/v1/whoami/", "/api/v1/tokens/", "/api/schema/"])
def test_a_host_name_that_this_server_does_not_answer_to_is_a_problem_that_says_what_to_do(
    client: Client, headers: dict[str, str], path: str
) -> None:
    answer = client.get(path, headers={**headers, "Host": "muster.example"})
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    assert "MUSTER_ALLOWED_HOSTS" in answer.json()["detail"]


@pytest.mark.parametrize(
    "accept", ["*/*", "text/html", "application/vnd.oai.openapi", "application/yaml", "nonsense/x"]
)
def test_a_problem_is_json_also_where_the_answer_would_have_been_yaml(client: Client, accept: str) -> None:
    answer = client.get("/api/schema/", headers={"Accept": accept})
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status_code


def test_the_api_page_asks_a_visitor_to_sign_in_and_comes_back(client: Client) -> None:
    assert client.get("/api/docs/")["Location"] == "/sign-in/?next=/api/docs/"


def test_a_harmless_request_id_is_kept_and_a_harmful_one_replaced(client: Client) -> None:
    assert client.get("/api/v1/whoami/", headers={"X-Request-Id": "job-7"})["X-Request-Id"] == "job-7"
    assert client.get("/api/v1/whoami/", headers={"X-Request-Id": "<b>"})["X-Request-Id"].startswith("req_")


def test_every_answer_carries_the_content_security_policy(client: Client) -> None:
    policy = client.get("/api/v1/whoami/")["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src" not in policy
