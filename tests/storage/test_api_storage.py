"""REST: tiers; who may see and do what."""

from __future__ import annotations

from typing import Any

import factories
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rest import caller, granted

from apps.accounts.models import Role
from apps.storage import services
from apps.storage.models import StorageTier

pytestmark = pytest.mark.django_db
BODY = {"cluster": "east", "name": "nvme", "kind": "local_nvme", "uri": "/fast/"}


@pytest.fixture
def cluster() -> Any:
    return factories.cluster()


def test_an_admin_adds_and_changes_a_tier(cluster: Any) -> None:
    admin = caller(Role.ADMIN)
    reply = admin.post("tiers", {**BODY, "capacity_bytes": 10**12})
    assert reply.status_code == 201, reply.content
    body = reply.json()
    assert (body["uri"], body["cluster"], body["cluster_name"]) == ("/fast", cluster.pk, "east")
    changed = admin.patch(f"tiers/{body['id']}", {"speed_order": 2, "capacity_bytes": None})
    assert (changed.json()["speed_order"], changed.json()["capacity_bytes"]) == (2, None)
    assert admin.get(f"tiers/{body['id']}").json() == changed.json()


@pytest.mark.parametrize(
    ("change", "status", "pointer"),
    [
        ({"uri": "fast"}, 422, "/uri"),
        ({"kind": "floppy"}, 400, "/kind"),
        ({"cluster": "nowhere"}, 404, "/cluster"),
        ({"color": "red"}, 400, "/color"),
        ({"name": "N V M e"}, 422, "/name"),
    ],
)
def test_a_bad_tier_is_refused_with_a_pointer(cluster: Any, change: Any, status: int, pointer: str) -> None:
    reply = caller(Role.ADMIN).post("tiers", {**BODY, **change})
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (status, pointer)
    assert not StorageTier.objects.exists()


BUCKET = {**BODY, "kind": "object_store", "uri": "s3://ckpt/llm"}


def test_a_bucket_names_where_it_is_served_and_whose_credentials_are_used(cluster: Any) -> None:
    wanted = {"endpoint_url": "https://s3.example:9000/", "credentials_profile": "cold"}
    body = caller(Role.ADMIN).post("tiers", {**BUCKET, **wanted}).json()
    assert (body["endpoint_url"], body["credentials_profile"]) == ("https://s3.example:9000", "cold")
    assert StorageTier.objects.get().store.endpoint_url == "https://s3.example:9000"


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254", "http://[::ffff:169.254.169.254]", "http://[fe80::1]:80", "http://0.0.0.0",
        "ftp://s3.example", "https://key:secret@s3.example", "https://s3.example/bucket", "https://s3.example?x=1",
        "s3.example", "https://s3.example:99999", "https://",
    ],
)  # fmt: skip
def test_an_endpoint_that_is_none_or_is_never_reached_is_refused(cluster: Any, url: str) -> None:
    admin = caller(Role.ADMIN)
    reply = admin.post("tiers", {**BUCKET, "endpoint_url": url})
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (422, "/endpoint_url")
    on_disk = admin.post("tiers", {**BODY, "endpoint_url": "https://s3.example"})
    assert on_disk.status_code == 422 and not StorageTier.objects.exists()


def test_only_admins_manage_tiers(cluster: Any) -> None:
    tier = factories.tier(cluster)
    for role in (Role.VIEWER, Role.OPERATOR):
        somebody = caller(role)
        assert somebody.get(f"tiers/{tier.pk}").status_code == 200
        assert somebody.post("tiers", {**BODY, "name": "other"}).status_code == 403
        assert somebody.patch(f"tiers/{tier.pk}", {"speed_order": 1}).status_code == 403
    assert granted(cluster, Role.ADMIN).patch(f"tiers/{tier.pk}", {"speed_order": 1}).status_code == 200
    assert Client().get("/api/v1/tiers/").status_code == 401


def test_a_stranger_sees_no_tier_of_another_cluster(cluster: Any) -> None:
    tier = factories.tier(cluster)
    stranger = granted(factories.cluster("west"), Role.ADMIN)
    assert stranger.get("tiers").json()["items"] == []
    assert stranger.get(f"tiers/{tier.pk}").status_code == 404
    assert stranger.get(f"tiers/{tier.pk}/ceilings").status_code == 404
    assert stranger.patch(f"tiers/{tier.pk}", {"speed_order": 1}).status_code == 404
    assert stranger.post("tiers", BODY).status_code == 404


def test_tiers_are_filtered_and_their_ceilings_listed(cluster: Any) -> None:
    tier = factories.tier(cluster)
    factories.tier(factories.cluster("west"), "nas", "/nas", kind="nas")
    services.record_ceiling(tier=tier, bytes_per_second=2.5e9, client_count=4, method="herd drill")
    viewer = caller(Role.VIEWER)
    assert [item["name"] for item in viewer.get("tiers", cluster="east").json()["items"]] == ["nvme"]
    assert [item["name"] for item in viewer.get("tiers", kind="nas").json()["items"]] == ["nas"]
    assert viewer.get(f"tiers/{tier.pk}/ceilings").json()["items"][0]["bytes_per_second"] == 2.5e9


def test_the_list_costs_the_same_for_many_rows(cluster: Any) -> None:
    viewer = caller(Role.VIEWER)

    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert viewer.get("tiers").status_code == 200
        return len(queries)

    factories.tier(cluster)
    viewer.get("tiers")
    few = cost()
    for number in range(20):
        factories.tier(cluster, f"t{number}", f"/t{number}")
    assert cost() == few <= 5
