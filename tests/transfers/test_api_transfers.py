"""REST: policies, plans, transfers, pins, labels and rate limits."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest import Caller, caller

from apps.accounts.models import Role
from apps.transfers.models import Transfer
from tests.transfers.conftest import Tiers, drive

pytestmark = pytest.mark.django_db


@pytest.fixture
def olga() -> Caller:
    return caller(Role.OPERATOR)


def make_policy(tiers: Tiers, olga: Caller, **fields: Any) -> Any:
    wanted = {"cluster": "east", "name": "keep", "hot_tier": tiers.hot.pk, "cold_tier": tiers.cold.pk, **fields}
    reply = olga.post("policies", wanted)
    assert reply.status_code == 201, reply.content
    return reply.json()


def test_a_policy_is_made_shown_allowed_to_act_and_run(tiers: Tiers, olga: Caller) -> None:
    tiers.save(10, 20, 30)
    policy = make_policy(tiers, olga, keep_newest=1)
    assert (policy["plan_only"], policy["run"], policy["hot_tier_name"]) == (True, None, "nvme")
    plan = olga.get(f"policies/{policy['id']}/plan").json()
    assert (plan["move_count"], plan["stay_count"], plan["seconds"]) == (2, 1, None)
    assert [line["action"] for line in plan["lines"]] == ["move", "move", "stay"]
    line = plan["lines"][0]
    assert (line["run_name"], line["to_tier_name"], line["reasons"]) == (
        "llama",
        "nas",
        ["it is not among the newest 1"],
    )
    only_planned = olga.post(f"policies/{policy['id']}/run")
    assert only_planned.status_code == 201 and not Transfer.objects.exists()
    assert olga.patch(f"policies/{policy['id']}", {"plan_only": False}).json()["plan_only"] is False
    migration = olga.post(f"policies/{policy['id']}/run").json()
    assert (migration["move_count"], migration["plan_only"]) == (2, False)
    assert olga.get(f"policies/{policy['id']}/migrations").json()["total"]["value"] == 2
    for transfer in Transfer.objects.all():
        drive(transfer)
    shown = olga.get("transfers", migration=migration["id"], state="done").json()["items"]
    assert len(shown) == 2 and all(one["bytes_per_second"] for one in shown)
    assert olga.get(f"policies/{policy['id']}/plan").json()["move_count"] == 0


def test_a_policy_goes_and_its_transfers_stay(tiers: Tiers, olga: Caller) -> None:
    tiers.save(10, 20)
    policy = make_policy(tiers, olga, keep_newest=1, plan_only=False)
    olga.post(f"policies/{policy['id']}/run")
    assert olga._client.delete(f"/api/v1/policies/{policy['id']}", headers=olga._headers).status_code == 204
    assert Transfer.objects.get().migration is None
    assert drive(Transfer.objects.get()).state == "done"


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"hot_tier": "tir_none"}, 422, "/hot_tier"),
        ({"cluster": "nowhere"}, 404, "/cluster"),
        ({"keep_newest": 0}, 400, "/keep_newest"),
        ({"cron": "often"}, 422, "/cron"),
        ({"run": "nobody"}, 404, None),
        ({"surprise": 1}, 400, "/surprise"),
    ],
)
def test_a_bad_policy_is_refused_with_a_pointer(
    tiers: Tiers, olga: Caller, body: dict[str, Any], status: int, pointer: str | None
) -> None:
    reply = olga.post("policies", {"cluster": "east", "name": "keep", "hot_tier": tiers.hot.pk, **body})
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (status, pointer)


def test_a_transfer_is_made_paused_resumed_cancelled_and_filtered(tiers: Tiers, olga: Caller) -> None:
    tiers.save(10, 20)
    source = tiers.placement(10)
    made = olga.post("transfers", {"placement": source.pk, "kind": "move", "tier": tiers.cold.pk})
    assert made.status_code == 201, made.content
    body = made.json()
    assert (body["state"], body["run_name"], body["step"], body["eta_seconds"]) == ("planned", "llama", 10, None)
    assert body["target_path"] == str(tiers.cold_path(10))
    pk = body["id"]
    assert olga.post(f"transfers/{pk}/pause").json()["state"] == "paused"
    assert olga.post(f"transfers/{pk}/resume").json()["state"] == "planned"
    assert olga.post(f"transfers/{pk}/cancel").json()["state"] == "cancelled"
    again = olga.post(f"transfers/{pk}/cancel")
    assert again.status_code == 409 and "nothing to cancel" in again.json()["detail"]
    queries: tuple[tuple[dict[str, str], int], ...] = (
        ({}, 1),
        ({"state": "cancelled"}, 1),
        ({"state": "copying,done"}, 0),
        ({"kind": "move"}, 1),
        ({"run": "llama"}, 1),
        ({"tier": tiers.cold.pk}, 1),
        ({"placement": source.pk}, 1),
        ({"checkpoint": source.checkpoint_id, "cluster": "west"}, 0),
    )
    for query, count in queries:
        assert olga.get("transfers", **query).json()["total"]["value"] == count, query


def test_nobody_lets_a_copy_expire_by_hand(tiers: Tiers, olga: Caller) -> None:
    tiers.save(10)
    reply = olga.post("transfers", {"placement": tiers.placement(10).pk, "kind": "expire"})
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (400, "/kind")


def test_pins_and_labels_keep_what_a_policy_would_move(tiers: Tiers, olga: Caller) -> None:
    tiers.save(10, 20, 30)
    policy = make_policy(tiers, olga, keep_newest=1, exempt_labels=["release"])
    first, second = tiers.placement(10).checkpoint_id, tiers.placement(20).checkpoint_id
    put = {"headers": olga._headers, "content_type": "application/json"}
    pinned = olga._client.put(f"/api/v1/checkpoints/{first}/pin", {"reason": "paper"}, **put)
    assert pinned.json() == {"pinned": True, "pin_reason": "paper", "pinned_by": olga.user.username, "labels": []}
    labelled = olga._client.put(f"/api/v1/checkpoints/{second}/labels", {"labels": ["release"]}, **put)
    assert labelled.json()["labels"] == ["release"]
    assert olga.get(f"policies/{policy['id']}/plan").json()["move_count"] == 0
    assert olga._client.delete(f"/api/v1/checkpoints/{first}/pin", headers=olga._headers).status_code == 204
    assert olga._client.delete(f"/api/v1/checkpoints/{first}/pin", headers=olga._headers).status_code == 409
    assert olga.get(f"policies/{policy['id']}/plan").json()["move_count"] == 1
    bad = olga._client.put(f"/api/v1/checkpoints/{second}/labels", {"labels": ["Has Space"]}, **put)
    assert bad.status_code == 422


def test_rate_limits_are_added_listed_and_removed(tiers: Tiers, olga: Caller) -> None:
    place = f"tiers/{tiers.cold.pk}/rate-limits"
    made = olga.post(place, {"max_bytes_per_second": 5, "begins": "08:00", "ends": "18:00", "time_zone": "Asia/Tokyo"})
    assert made.status_code == 201, made.content
    assert olga.get(place).json()["items"][0]["begins"] == "08:00:00"
    assert olga.post(place, {"max_bytes_per_second": 5, "time_zone": "Moon"}).status_code == 422
    gone = olga._client.delete(f"/api/v1/{place}/{made.json()['id']}", headers=olga._headers)
    assert gone.status_code == 204 and olga.get(place).json()["total"]["value"] == 0


def test_a_list_of_transfers_takes_as_many_queries_for_many_as_for_few(tiers: Tiers, olga: Caller) -> None:
    tiers.save(10, 20, 30, 40, rank_bytes=600)
    policy = make_policy(tiers, olga, keep_newest=1, plan_only=False)

    def count() -> int:
        with CaptureQueriesContext(connection) as seen:
            assert olga.get("transfers").status_code == 200
        return len(seen)

    few = count()
    olga.post(f"policies/{policy['id']}/run")
    assert Transfer.objects.count() == 3 and count() <= few + 1
