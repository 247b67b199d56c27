"""The OpenAPI document is the contract: committed, current, and what the server really does for arbitrary input."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import factories
import pytest
import schemathesis
import yaml
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from apps.accounts.models import Role

ROOT = Path(__file__).resolve().parents[2]
EVERYTHING = bool(os.environ.get("ALL"))
EXAMPLES = 20 if EVERYTHING else 2
MIN_CASES = 3000
ASKED = {"cases": 0}


def document() -> dict[str, Any]:
    fresh: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return fresh


def test_the_committed_document_is_the_one_the_code_gives() -> None:
    committed = yaml.safe_load((ROOT / "docs/openapi.yaml").read_text())
    assert committed["openapi"].startswith("3.1")
    assert committed["paths"].keys() == document()["paths"].keys()


def resolved(whole: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    """The response itself, where an operation only refers to it."""
    if "$ref" not in response:
        return response
    for name in response["$ref"].removeprefix("#/").split("/"):
        whole = whole[name]
    return whole


def objects_in(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects_in(inner)


def test_every_operation_documents_its_errors_as_problem_documents() -> None:
    whole = document()
    for path, operations in whole["paths"].items():
        for method, operation in operations.items():
            assert operation.get("summary"), (method, path)
            for status, response in operation["responses"].items():
                if status.startswith(("4", "5")):
                    assert "application/problem+json" in resolved(whole, response)["content"], (method, path, status)


@pytest.mark.django_db
def test_the_document_and_its_page_are_served_to_the_signed_in(client: Client) -> None:
    assert client.get("/api/schema/").status_code in (401, 403)
    client.force_login(factories.user(role=Role.VIEWER))
    assert client.get("/api/schema/").status_code == 200
    page = client.get("/api/docs/")
    assert page.status_code == 200
    assert b"https://" not in page.content.split(b"<body>")[0]


@pytest.mark.django_db
def test_the_document_states_a_problem_once_and_comes_small_and_at_once(client: Client) -> None:
    client.force_login(factories.user(role=Role.VIEWER))
    first = client.get("/api/schema/", headers={"Accept": "application/json"})
    started = time.perf_counter()
    again = client.get("/api/schema/", headers={"Accept": "application/json"})
    assert time.perf_counter() - started < 0.5
    assert again.content == first.content
    assert len(first.content) < 1_000_000
    assert json.loads(first.content)["paths"].keys() == document()["paths"].keys()
    problems = [one for one in objects_in(json.loads(first.content)) if {"title", "status", "request_id"} <= one.keys()]
    assert len(problems) == 1


@pytest.mark.django_db
def test_the_api_page_may_bring_its_own_styles_and_no_scripts(client: Client) -> None:
    client.force_login(factories.user(role=Role.VIEWER))
    policy = client.get("/api/docs/")["Content-Security-Policy"]
    assert "style-src 'self' 'unsafe-inline'" in policy
    assert "script-src" not in policy
    assert policy.startswith("default-src 'self'")


schema = schemathesis.openapi.from_dict(document())
schema.app = get_wsgi_application()
# Schemathesis's own parametrization gives every operation one and the same name, of which pytest-xdist runs only one.
OPERATIONS = [found.ok() for found in schema.get_all_operations()]
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture
def admin_token(db: None) -> Iterator[str]:
    # These would close the connection, and with it the test's transaction, after each request.
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    factories.placement(factories.run(factories.cluster()), factories.tier(factories.cluster("west")))
    yield factories.token(factories.user("ada", Role.ADMIN))
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_arbitrary_input_gets_a_documented_answer_and_never_a_server_error(operation: Any, admin_token: str) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def asked(case: Any) -> None:
        ASKED["cases"] += 1
        headers = {"Authorization": f"Bearer {admin_token}"}
        if "If-Match" in case.headers and ASKED["cases"] % 4:
            headers["If-Match"] = "*"  # else every change would end at 412
        case.call_and_validate(headers=headers, checks=CHECKS)

    asked()


@pytest.mark.skipif(not EVERYTHING, reason="the count is of the whole suite only")
def test_thousands_of_cases_were_asked() -> None:
    assert ASKED["cases"] >= MIN_CASES


def test_every_change_of_a_resource_is_bound_to_what_was_read() -> None:
    """Or could be overwritten by who never saw it. A pin and labels are set as a whole, whatever they were."""
    set_as_a_whole = {"pin_checkpoint", "label_checkpoint"}
    free = [
        operation["operationId"]
        for operations in document()["paths"].values()
        for method, operation in operations.items()
        if method in ("patch", "put") and {"$ref": "#/components/parameters/IfMatch"} not in operation["parameters"]
    ]
    assert set(free) == set_as_a_whole, "give its view `guarded = EDITABLE` (apps/core/etags.py)"
