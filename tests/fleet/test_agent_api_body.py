"""Bodies of agents: sizes, encodings and errors."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from factories import agent, cluster, node
from muster_agent.protocol.wire import MAX_BODY_BYTES

from apps.accounts import secrets
from apps.fleet.models import Agent

pytestmark = pytest.mark.django_db
CREDENTIAL = "mag_test"
POLL = {"boot_id": "b", "seq": 1, "free_slots": 0, "wait_seconds": 0}


@pytest.fixture
def worker() -> Agent:
    return agent(node(cluster()), credential_sha256=secrets.digest(CREDENTIAL), boot_id="")


def post(body: bytes, *, credential: str = CREDENTIAL, path: str = "/agent/v1/poll", **headers: str) -> Any:
    headers = {"authorization": f"Bearer {credential}", **headers}
    return Client().post(path, body, content_type="application/json", headers=headers)


def problem(response: Any) -> tuple[int, str]:
    assert response["Content-Type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == response.status_code
    return response.status_code, body["errors"][0]["code"]


def test_plain_and_gzipped_bodies_are_read_and_no_csrf_token_is_asked_for(worker: Agent) -> None:
    raw = json.dumps(POLL).encode()
    enforcing = Client(enforce_csrf_checks=True)
    headers = {"authorization": f"Bearer {CREDENTIAL}"}
    assert enforcing.post("/agent/v1/poll", raw, content_type="application/json", headers=headers).status_code == 200
    assert post(gzip.compress(raw), **{"content-encoding": "gzip"}).json()["state"] == "online"


def test_a_gzip_bomb_is_refused(worker: Agent, settings: Any) -> None:
    settings.AGENT_MAX_BODY_BYTES = 100_000
    bomb = gzip.compress(b"0" * 50_000_000)
    assert len(bomb) < 100_000
    assert problem(post(bomb, **{"content-encoding": "gzip"})) == (413, "too_large")
    assert problem(post(b" " * 100_001)) == (413, "too_large")


def test_bodies_larger_than_a_form_may_be_are_taken(worker: Agent) -> None:
    raw = json.dumps({**POLL, "facts": {"x": "y" * 6_000_000}}).encode()
    assert post(raw).status_code == 200


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        (b"{", {}, (422, "invalid")),
        (b"[]", {}, (422, "invalid")),
        (b'{"boot_id": 5}', {}, (422, "invalid")),
        (b"\xff\xfe", {}, (422, "invalid")),
        (b"not gzip", {"content-encoding": "gzip"}, (422, "invalid")),
        (gzip.compress(b"{}", mtime=0)[:-6], {"content-encoding": "gzip"}, (422, "invalid")),
        (b"{}", {"content-encoding": "br"}, (415, "unsupported_encoding")),
        (json.dumps({**POLL, "boot_id": "x" * 65}).encode(), {}, (422, "invalid")),
        (b"[" * 100_000, {}, (422, "invalid")),
    ],
)
def test_a_bad_body_is_a_problem_document(
    worker: Agent, body: bytes, headers: dict[str, str], expected: tuple[int, str]
) -> None:
    assert problem(post(body, **headers)) == expected


def test_who_may_come_in_is_said_clearly(worker: Agent) -> None:
    raw = json.dumps(POLL).encode()
    assert problem(post(raw, credential="mag_other")) == (401, "credential_unknown")
    assert problem(Client().post("/agent/v1/poll", raw, content_type="application/json")) == (401, "credential_missing")
    Agent.objects.update(state=Agent.State.REVOKED)
    assert problem(post(raw)) == (401, "credential_revoked")


def test_another_method_is_not_allowed(worker: Agent) -> None:
    response = Client().get("/agent/v1/poll", headers={"authorization": f"Bearer {CREDENTIAL}"})
    assert problem(response) == (405, "method_not_allowed")
    assert response["Allow"] == "POST"


def test_a_nul_in_a_name_is_stored_as_a_replacement(worker: Agent) -> None:
    raw = json.dumps({**POLL, "facts": {"name": "a\0\0b", "path": r"C:\u0000", "both": "\\\0"}}).encode()
    assert post(raw).status_code == 200
    worker.node.refresh_from_db()
    assert worker.node.facts == {"name": "a\ufffd\ufffdb", "path": r"C:\u0000", "both": "\\\ufffd"}


def test_agents_know_how_much_a_body_may_hold() -> None:
    assert settings.AGENT_MAX_BODY_BYTES == MAX_BODY_BYTES
