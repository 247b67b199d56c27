"""Checkpoints told by the API: known at once, believed after a scan, and never against what a scan has seen."""

from __future__ import annotations

import json
from typing import Any

import factories
import pytest
from django.test import Client

from apps.accounts.models import Role
from apps.checkpoints.models import Checkpoint, Placement, Shard
from apps.checkpoints.scan_models import ScanDemand
from apps.storage.models import StorageTier
from tests.rest import Caller, caller, granted

pytestmark = pytest.mark.django_db
URL = "checkpoints:batch"


@pytest.fixture
def tier() -> StorageTier:
    return factories.tier(factories.cluster())


@pytest.fixture
def olga() -> Caller:
    return caller(Role.OPERATOR, "olga")


def told(tier: StorageTier, step: int = 10, **changes: Any) -> dict[str, Any]:
    shards = [{"path": f"rank-{rank}.safetensors", "size_bytes": 1000, "rank": rank} for rank in range(2)]
    base = {"tier": tier.pk, "path": f"/ckpt/llama/step-{step}", "run": "llama", "step": step}
    return {**base, "format": "safetensors", "world_size": 2, "shards": shards, **changes}


def test_a_copy_is_known_at_once_and_believed_only_after_a_scan(tier: StorageTier, olga: Caller) -> None:
    body = olga.post(URL, {"items": [told(tier, 10), told(tier, 20)]}).json()
    assert [one["status"] for one in body["items"]] == [201, 201]
    assert (body["created_count"], body["refused_count"]) == (2, 0)
    copy = Placement.objects.get(pk=body["items"][0]["placement"])
    assert (copy.status, copy.trust, copy.resumable, copy.shard_count) == ("unknown", "listed", False, 2)
    assert copy.checkpoint.total_bytes == 2000 and Shard.objects.filter(placement=copy).count() == 2
    assert ScanDemand.objects.filter(tier=tier).exists(), "somebody goes and looks"
    assert olga.get("runs/llama/resume-point").json()["outcome"] != "found"


def test_lines_say_the_same_as_a_list(tier: StorageTier, olga: Caller) -> None:
    lines = "\n".join(json.dumps(told(tier, step)) for step in (1, 2, 3)) + "\n"
    answer = Client().post(f"/api/v1/{URL}", lines, content_type="application/x-ndjson", headers=olga._headers)
    assert answer.json()["created_count"] == 3
    broken = Client().post(f"/api/v1/{URL}", "{}\n{", content_type="application/x-ndjson", headers=olga._headers)
    assert broken.status_code == 400 and "Line 2" in broken.json()["detail"]


def test_telling_again_changes_nothing(tier: StorageTier, olga: Caller) -> None:
    first = olga.post(URL, {"items": [told(tier)]}).json()["items"][0]
    again = olga.post(URL, {"items": [told(tier)]}).json()["items"][0]
    assert (again["status"], again["placement"]) == (200, first["placement"])


def test_what_a_scan_has_seen_is_not_overwritten(tier: StorageTier, olga: Caller) -> None:
    seen = factories.placement(factories.run(tier.cluster, "llama"), tier, trust="verified")
    body = olga.post(URL, {"items": [told(tier, path=seen.path, world_size=9)]}).json()
    assert body["items"][0]["status"] == 200
    seen.refresh_from_db()
    assert (seen.trust, seen.world_size, seen.status) == ("verified", 4, "complete")
    other = olga.post(URL, {"items": [told(tier, 11, path=seen.path)]}).json()["items"][0]
    assert (other["status"], other["errors"][0]["code"]) == (409, "conflict")


def test_a_folder_belongs_to_one_run_and_a_run_to_one_folder(tier: StorageTier, olga: Caller) -> None:
    items = [told(tier), told(tier, 11, run="mistral"), told(tier, 12, path="/ckpt/elsewhere/step-12")]
    assert [one["status"] for one in olga.post(URL, {"items": items}).json()["items"]] == [201, 409, 409]
    assert Checkpoint.objects.count() == 1


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"path": "/elsewhere/step-1"}, "/path"),
        ({"path": "/ckpt/../etc"}, "/path"),
        ({"path": "relative"}, "/path"),
        ({"tier": "tir_none"}, "/tier"),
        ({"step": -1}, "/step"),
        ({"colour": "red"}, "/colour"),
        ({"shards": []}, "/shards"),
        ({"shards": [{"path": "../x", "size_bytes": 1}]}, "/shards/0/path"),
        ({"shards": [{"path": "/x", "size_bytes": 1}]}, "/shards/0/path"),
        ({"shards": [{"path": "x"}]}, "/shards/0/size_bytes"),
        ({"shards": [{"path": "x", "size_bytes": 1}, {"path": "x", "size_bytes": 1}]}, "/shards"),
    ],
)
def test_an_item_that_is_wrong_names_its_field_and_leaves_the_others_alone(
    tier: StorageTier, olga: Caller, change: dict[str, Any], pointer: str
) -> None:
    body = olga.post(URL, {"items": [{**told(tier), **change}, told(tier, 99)]}).json()
    assert [one["status"] for one in body["items"]][1] == 201
    assert body["items"][0]["status"] in (400, 422)
    assert body["items"][0]["errors"][0]["pointer"] == pointer
    assert Placement.objects.count() == 1


def test_who_may_not_and_who_may_not_see(tier: StorageTier) -> None:
    viewer = caller(Role.VIEWER, "vera").post(URL, {"items": [told(tier)]}).json()["items"][0]
    assert viewer["status"] == 403
    west = granted(factories.cluster("west"), Role.ADMIN)
    foreign, absent = west.post(URL, {"items": [told(tier), {**told(tier), "tier": "tir_none"}]}).json()["items"]
    assert {**foreign, "index": 0} == {**absent, "index": 0} and foreign["status"] == 422
    assert Placement.objects.count() == 0


def test_a_thousand_shards_cost_a_bounded_number_of_queries(
    tier: StorageTier, olga: Caller, django_assert_max_num_queries: Any
) -> None:
    shards = [{"path": f"rank-{rank:05d}.safetensors", "size_bytes": 1000, "rank": rank} for rank in range(1000)]
    with django_assert_max_num_queries(40):
        body = olga.post(URL, {"items": [told(tier, world_size=1000, shards=shards)]}).json()
    assert body["created_count"] == 1 and Shard.objects.count() == 1000
