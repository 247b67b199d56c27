"""What no database, column or JSON text takes is the caller's mistake wherever it stands: 4xx and a problem."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import factories
import pytest
import yaml
from core.hostile_requests import HOSTILE_JSON, HOSTILE_TEXT, Requests
from dashboard.scene import Scene, build
from django.db import transaction
from django.test import Client
from pytest_django.fixtures import Settings

from apps.accounts import secrets
from apps.accounts.models import Role
from apps.checkpoints.models import Checkpoint, Placement

ROOT = Path(__file__).resolve().parents[2]
PROBLEM = "application/problem+json"
CREDENTIAL = "mag_hostile"
DEEP = "[" * 10_000 + "]" * 10_000
BEYOND_64_BITS = str(2**63)


@pytest.fixture
def admin_headers(db: None, settings: Settings) -> dict[str, str]:
    settings.API_RATE_PER_MINUTE = 0
    admin = factories.user("ada", Role.ADMIN)
    return {"Authorization": f"Bearer {factories.token(admin, Role.ADMIN)}", "If-Match": "*"}


def refused(answer: Any) -> Any:
    assert 400 <= answer.status_code < 500, answer.content[:300]
    assert answer["Content-Type"] == PROBLEM
    problem = answer.json()
    assert problem["status"] == answer.status_code and problem["detail"]
    return problem


@pytest.mark.parametrize(
    "query",
    [
        "limit=201",
        "limit=1000000000",
        f"limit={'9' * 400}",
        "limit=-1",
        "limit=NaN",
        "limit=1e2",
        "limit=%00",
        "limit=1%00",
        "cursor=%00",
        "cursor=x",
        f"cursor={'x' * 100_000}",
        "cursor=a%3Ab%3Ac",
        "sort=%00",
        "q=%00",
        "nothing=%00",
        "%00=1",
        "limit=1&limit=2&limit=%EF%BC%91",
    ],
)
def test_a_query_that_cannot_be_meant_is_refused(admin_headers: dict[str, str], query: str) -> None:
    refused(Client(raise_request_exception=False).get(f"/api/v1/runs/?{query}", headers=admin_headers))


@pytest.mark.parametrize("place", range(0, 90, 9))
def test_a_cursor_with_one_character_changed_is_refused(admin_headers: dict[str, str], place: int) -> None:
    east, client = factories.cluster(), Client(raise_request_exception=False)
    for name in ("a", "b"):
        factories.run(east, name)
    cursor = client.get("/api/v1/runs/?limit=1", headers=admin_headers).json()["next_cursor"]
    place %= len(cursor)
    forged = cursor[:place] + ("A" if cursor[place] != "A" else "B") + cursor[place + 1 :]
    refused(client.get("/api/v1/runs/", {"limit": 1, "cursor": forged}, headers=admin_headers))
    assert client.get("/api/v1/runs/", {"limit": 1, "cursor": cursor}, headers=admin_headers).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        DEEP,
        '{"name": ' + DEEP + "}",
        '{"name": "\\ud800"}',
        '{"name": "\\udc00\\ud800"}',
        '{"\\ud800": 1}',
        '{"name": "a\\u0000b"}',
        '{"name": "x", "role": "\\udfff"}',
        '{"name": "x", "days": ' + BEYOND_64_BITS + "}",
        '{"name": "x", "days": NaN}',
        '{"name": "x", "days": -Infinity}',
        '{"name": "x", "days": 1e999}',
        '{"name": "x", "days": 1' + "0" * 5000 + "}",
        '{"name": "' + "x" * 1_000_000 + '"}',
        "\0",
        "\ufeff{}",
        "{}" * 1000,
        '{"name": "\x01"}',
        "null",
        "5",
        '"x"',
        "x" * 6_000_000,
    ],
    ids=lambda body: ascii(body[:40]),
)
def test_a_body_that_cannot_be_meant_is_refused(admin_headers: dict[str, str], body: str) -> None:
    client = Client(raise_request_exception=False)
    refused(client.post("/api/v1/tokens/", body, content_type="application/json", headers=admin_headers))


@pytest.mark.parametrize("path", ["runs/a%00b/", "agents/a%00b/", "clusters/%00/", "nodes/n%00/", "tokens/%00/", "%00"])
def test_a_nul_in_an_address_is_refused_with_what_to_do(admin_headers: dict[str, str], path: str) -> None:
    problem = refused(Client(raise_request_exception=False).get(f"/api/v1/{path}", headers=admin_headers))
    assert "NUL" in problem["detail"]


def test_pages_refuse_a_nul_too_in_an_address_and_a_cookie(admin_headers: dict[str, str]) -> None:
    client = Client(raise_request_exception=False)
    forged = {"Cookie": 'sessionid="aaaaaaaaaaaaaaaa\\000"'}
    for url, headers in (("/runs/?q=%00", {}), ("/runs/a%00b/", {}), ("/export/runs.csv?q=%00", {}), ("/", forged)):
        assert client.get(url, headers=headers).status_code == 400, url


def test_a_million_characters_of_query_and_thousands_of_headers_are_no_server_error(
    admin_headers: dict[str, str],
) -> None:
    client = Client(raise_request_exception=False)
    for query in ("q=" + "x" * 1_000_000, "&".join(f"a{n}={n}" for n in range(50_000))):
        assert client.get(f"/api/v1/runs/?{query}", headers=admin_headers).status_code < 500
    many = {**admin_headers, **{f"X-Odd-{number}": "x" for number in range(5000)}}
    assert client.get("/api/v1/runs/", headers=many).status_code == 200


POLL = {"boot_id": "b", "seq": 1, "free_slots": 0, "wait_seconds": 0}
HOOK = {"source": "s", "seq": 1, "kind": "step", "run": "r", "attempt": "a", "at_unix_seconds": 1e9, "mono_seconds": 1}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seq", BEYOND_64_BITS),
        ("seq", "-" + BEYOND_64_BITS + "0"),
        ("seq", "1" + "0" * 5000),
        ("seq", "NaN"),
        ("protocol", str(2**31)),
        ("protocol", BEYOND_64_BITS),
        ("free_slots", BEYOND_64_BITS),
        ("clock_offset_seconds", "1e999"),
        ("clock_offset_seconds", "1e308"),
        ("wait_seconds", "-1e308"),
        ("facts", '{"a": 1e400}'),
        ("facts", '{"a": 1' + "0" * 5000 + "}"),
        ("facts", '{"a": "\\ud800"}'),
        ("facts", '{"\\u0000": "\\u0000"}'),
        ("facts", '{"roots": ["\\u0000", 5, null, {"a": 1}]}'),
        ("facts", DEEP),
        ("boot_id", '"a\\u0000b"'),
        ("boot_id", '"\\udfff"'),
        ("agent_version", '"' + "x" * 1_000_000 + '"'),
        ("running", DEEP),
        ("running", '[{"task_id": "\\u0000", "attempt": ' + BEYOND_64_BITS + "}]"),
    ],
    ids=lambda text: ascii(text[:30]),
)
def test_an_agent_s_odd_value_is_stored_as_text_or_refused_and_never_told_to_try_again(
    db: None, field: str, value: str
) -> None:
    _ask_as_agent("poll", json.dumps({**POLL, field: "@@"}).replace('"@@"', value))


@pytest.mark.parametrize("field", [*HOOK, "pid", "rank", "step", "loss", "data"])
@pytest.mark.parametrize("value", [BEYOND_64_BITS, "1e400", '"a\\u0000b"', '"\\ud800"', '{"a": 1e400}'])
def test_a_hook_s_odd_record_is_left_out_or_refused(db: None, field: str, value: str) -> None:
    _ask_as_agent("hook-records", json.dumps({"records": [{**HOOK, field: "@@"}]}).replace('"@@"', value))


def _ask_as_agent(path: str, text: str) -> None:
    factories.agent(factories.node(factories.cluster()), credential_sha256=secrets.digest(CREDENTIAL))
    client = Client(raise_request_exception=False)
    headers = {"Authorization": f"Bearer {CREDENTIAL}", "Content-Encoding": "gzip"}
    packed = gzip.compress(text.encode())
    answer = client.post(f"/agent/v1/{path}", packed, content_type="application/json", headers=headers)
    if answer.status_code != 200:
        refused(answer)


@pytest.fixture
def requests(db: None, settings: Settings) -> Requests:
    """Of every operation, with ids of a seeded fleet."""
    settings.API_RATE_PER_MINUTE = 0
    document = yaml.load((ROOT / "docs/openapi.yaml").read_text(), Loader=yaml.CSafeLoader)
    return Requests(document, known_of(build()))


def known_of(scene: Scene) -> dict[str, Any]:
    checkpoint, placement = Checkpoint.objects.earliest("pk").pk, Placement.objects.earliest("pk").pk
    known = {"cluster": scene.east.name, "reason": "x", "run": scene.llama.pk, "tier": scene.nvme.pk}
    known |= {"checkpoint": checkpoint, "placement": placement, "runs/": scene.llama.pk, "tiers/": scene.nvme.pk}
    known |= {"clusters/": scene.east.pk, "checkpoints/": checkpoint, "placements/": placement}
    known |= {
        "drills/": scene.reload.pk,
        "plans/": scene.plan.pk,
        "audits/": scene.audit.pk,
        "nodes/": scene.nodes[0].pk,
    }
    return known | {"alerts/": scene.alert.pk, "policies/": scene.policy.pk, "repairs/": scene.repair.pk}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "json"])
@pytest.mark.parametrize("number", range(max(len(HOSTILE_TEXT), len(HOSTILE_JSON))))
def test_no_operation_takes_a_hostile_value_for_a_fault_of_its_own(requests: Requests, kind: str, number: int) -> None:
    values = HOSTILE_TEXT if kind == "text" else HOSTILE_JSON
    if number >= len(values):
        pytest.skip("there are fewer of these")
    make = requests.with_text if kind == "text" else requests.with_json
    client, faults, asked = Client(raise_request_exception=False), [], 0
    headers = {
        "Authorization": f"Bearer {factories.token(factories.user('eve', Role.ADMIN), Role.ADMIN)}",
        "If-Match": "*",
    }
    for one in make(values[number]):
        with transaction.atomic():
            answer = client.generic(
                one.method.upper(), one.path, one.body or "", content_type="application/json", headers=headers
            )
            transaction.set_rollback(True)
        asked += 1
        if answer.status_code >= 500 or answer.status_code >= 400 and answer["Content-Type"] != PROBLEM:
            faults.append((one, answer.status_code))
    assert asked > 100
    assert faults == []
