"""The agent API's door for hook records."""

from __future__ import annotations

import json
from typing import Any

import factories
import pytest
from django.test import Client

from apps.accounts import secrets
from apps.checkpoints.models import StepReport

pytestmark = pytest.mark.django_db
CREDENTIAL = "mag_" + "a" * 43


@pytest.fixture
def agent() -> Any:
    return factories.agent(factories.node(factories.cluster()), credential_sha256=secrets.digest(CREDENTIAL))


def send(body: Any, credential: str = CREDENTIAL) -> Any:
    return Client().post(
        "/agent/v1/hook-records",
        json.dumps(body),
        content_type="application/json",
        headers={"Authorization": f"Bearer {credential}"},
    )


def step(seq: int) -> dict[str, Any]:
    return {
        "source": "host-1-7", "seq": seq, "kind": "step", "run": "llama", "attempt": "launch-1",
        "at_unix_seconds": 1_800_000_000.0 + seq, "mono_seconds": 1.0, "step": seq, "a_newer_field": True,
    }  # fmt: skip


def test_records_are_taken_in_and_counted(agent: Any) -> None:
    for _ in range(2):
        reply = send({"records": [step(1), step(2)]})
        assert (reply.status_code, reply.json()) == (200, {"accepted": 2})
    assert StepReport.objects.count() == 2


def test_a_wrong_credential_is_401_and_records_nothing(agent: Any) -> None:
    reply = send({"records": [step(1)]}, "mag_wrong")
    assert reply.status_code == 401 and reply["Content-Type"].startswith("application/problem+json")
    assert not StepReport.objects.exists()


def test_a_body_of_another_shape_is_422_and_says_where(agent: Any) -> None:
    reply = send({"records": [{"source": "x"}]})
    assert reply.status_code == 422 and "records" in reply.json()["detail"]


def test_too_many_records_at_once_are_refused(agent: Any) -> None:
    reply = send({"records": [step(n) for n in range(5001)]})
    assert reply.status_code == 422 and "at most 5000" in reply.json()["detail"]
