"""REST: audits; who may see and do what."""

from __future__ import annotations

from typing import Any

import factories
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from listings import manifest_of, shard_map
from rest import caller, granted

from apps.accounts.models import Role
from apps.audits.models import Audit
from apps.checkpoints.manifests import store_manifest
from apps.checkpoints.models import Placement

pytestmark = pytest.mark.django_db


@pytest.fixture
def placement() -> Placement:
    cluster = factories.cluster()
    factories.agent(factories.node(cluster))
    return factories.placement(factories.run(cluster), factories.tier(cluster))


def test_an_audit_is_started_watched_and_cancelled_over_rest(placement: Placement) -> None:
    operator = caller(Role.OPERATOR)
    reply = operator.post("audits", {"placement": placement.pk, "mode": "seal"})
    assert reply.status_code == 201, reply.content
    body = reply.json()
    assert (body["state"], body["outcome"], body["run_name"], body["step"]) == ("queued", "", "llama-70b", 10)
    assert operator.get(f"audits/{body['id']}").json()["path"] == placement.path
    assert operator.post(f"audits/{body['id']}/cancel").json()["outcome"] == "cancelled"
    again = operator.post(f"audits/{body['id']}/cancel")
    assert again.status_code == 409 and "nothing to cancel" in again.json()["detail"]


def test_audits_are_filtered(placement: Placement) -> None:
    now = timezone.now()
    rows = (("seal", "finished", "passed"), ("verify", "finished", "damaged"), ("verify", "queued", ""))
    for mode, state, outcome in rows:
        Audit.objects.create(
            placement=placement, mode=mode, state=state, outcome=outcome, requested_by="x", created_at=now
        )
    viewer = caller(Role.VIEWER)
    for query, count in (
        ({}, 3),
        ({"mode": "verify"}, 2),
        ({"state": "queued,running"}, 1),
        ({"outcome": "damaged"}, 1),
        ({"run": "llama-70b"}, 3),
        ({"cluster": "west"}, 0),
        ({"placement": placement.pk, "mode": "seal"}, 1),
        ({"checkpoint": placement.checkpoint_id}, 3),
    ):
        assert viewer.get("audits", **query).json()["total"]["value"] == count, query
    assert viewer.get("audits", outcome="fine").status_code == 400


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({}, 400, "/placement"),
        ({"placement": "plc_none", "mode": "seal"}, 422, "/placement"),
        ({"placement": "REAL"}, 400, "/mode"),
        ({"placement": "REAL", "mode": "polish"}, 400, "/mode"),
        ({"placement": "REAL", "mode": "seal", "sample_ratio": 0.5}, 422, "/sample_ratio"),
        ({"placement": "REAL", "mode": "verify"}, 422, None),
        ({"placement": "REAL", "mode": "seal", "force": True}, 400, "/force"),
    ],
)
def test_a_bad_request_is_refused_with_a_pointer(placement: Placement, body: Any, status: int, pointer: str) -> None:
    body = {**body, **({"placement": placement.pk} if body.get("placement") == "REAL" else {})}
    reply = caller(Role.OPERATOR).post("audits", body)
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (status, pointer)
    assert not Audit.objects.exists()


def test_viewers_read_and_do_not_act_and_strangers_see_nothing(placement: Placement) -> None:
    audit = Audit.objects.create(placement=placement, mode="seal", requested_by="x", created_at=timezone.now())
    viewer = caller(Role.VIEWER)
    assert viewer.get(f"audits/{audit.pk}").status_code == 200
    assert viewer.post("audits", {"placement": placement.pk, "mode": "seal"}).status_code == 403
    assert viewer.post(f"audits/{audit.pk}/cancel").status_code == 403
    stranger = granted(factories.cluster("west"), Role.OPERATOR)
    assert stranger.get("audits").json()["items"] == []
    assert stranger.get(f"audits/{audit.pk}").status_code == 404
    assert stranger.post("audits", {"placement": placement.pk, "mode": "seal"}).status_code == 422
    assert stranger.post(f"audits/{audit.pk}/cancel").status_code == 404
    assert Client().get("/api/v1/audits/").status_code == 401


def test_the_list_costs_the_same_for_many_rows(placement: Placement) -> None:
    viewer = caller(Role.VIEWER)

    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert viewer.get("audits").status_code == 200
        return len(queries)

    viewer.get("audits")
    few = cost()
    for number in range(30):
        other = factories.placement(factories.run(placement.tier.cluster, f"r{number}"), placement.tier, number)
        Audit.objects.create(placement=other, mode="seal", requested_by="x", created_at=timezone.now())
    assert cost() == few <= 5


def test_a_sealed_placement_may_be_verified_over_rest(placement: Placement) -> None:
    placement.manifest = store_manifest(checkpoint=placement.checkpoint, manifest=manifest_of(shard_map(10)))
    placement.save()
    reply = caller(Role.OPERATOR).post(
        "audits", {"placement": placement.pk, "mode": "verify", "sample_ratio": 0.25, "seed": 3}
    )
    assert reply.status_code == 201 and (reply.json()["sample_ratio"], reply.json()["seed"]) == (0.25, 3)
