"""Long work of every kind in one shape."""

from __future__ import annotations

from typing import Any

import factories
import pytest
from django.utils import timezone

from apps.accounts.models import Role
from apps.audits.models import Audit
from apps.checkpoints.models import InventoryScan, Placement
from apps.drills.models import Drill
from apps.transfers.models import Transfer
from tests.rest import caller, granted

pytestmark = pytest.mark.django_db


@pytest.fixture
def copy() -> Placement:
    east = factories.cluster()
    return factories.placement(factories.run(east), factories.tier(east))


def base() -> dict[str, Any]:
    return {"requested_by": "x", "created_at": timezone.now()}


def transfer_of(copy: Placement, **fields: Any) -> Transfer:
    cold = factories.tier(copy.tier.cluster, "nas", "/nas", speed_order=2)
    return Transfer.objects.create(
        cluster=copy.tier.cluster,
        checkpoint=copy.checkpoint,
        kind="copy",
        source=copy,
        target_tier=cold,
        target_path="/nas/x",
        **base(),
        **fields,
    )


def test_what_runs_is_listed_whatever_it_is_and_what_has_ended_is_not(copy: Placement) -> None:
    run = copy.checkpoint.run
    drill = Drill.objects.create(cluster=run.cluster, run=run, kind="reload", **base())
    Drill.objects.create(cluster=run.cluster, run=run, kind="reload", state="finished", outcome="passed", **base())
    audit = Audit.objects.create(placement=copy, mode="verify", state="running", checked_bytes=10, **base())
    scan = InventoryScan.objects.create(tier=copy.tier, root="/ckpt", **base())
    moved = transfer_of(copy, state="copying", copied_bytes=1000, total_bytes=4000)
    found = caller(Role.VIEWER).get("operations/").json()["items"]
    assert [one["id"] for one in found] == [moved.pk, scan.pk, audit.pk, drill.pk]
    assert found[0]["progress"] == {"done": 1000, "total": 4000, "unit": "bytes"}
    assert found[2]["progress"] == {"done": 10, "total": None, "unit": "bytes"}
    assert {one["succeeded"] for one in found} == {None}


@pytest.mark.parametrize(("outcome", "succeeded"), [("passed", True), ("failed", False), ("cancelled", False)])
def test_how_it_ended_is_told_with_the_reason(copy: Placement, outcome: str, succeeded: bool) -> None:
    run = copy.checkpoint.run
    drill = Drill.objects.create(
        cluster=run.cluster, run=run, kind="reload", state="finished", outcome=outcome, reason="why", **base()
    )
    found = caller(Role.VIEWER).get(f"operations/{drill.pk}").json()
    assert (found["done"], found["succeeded"], found["outcome"]) == (True, succeeded, outcome)
    assert found["error"] == ("" if succeeded else "why") and found["cancel_path"] is None


def test_the_paths_lead_where_they_say(copy: Placement) -> None:
    olga = caller(Role.OPERATOR)
    moved = transfer_of(copy, state="planned", total_bytes=1)
    found = olga.get(f"operations/{moved.pk}").json()
    assert olga.get(found["result_path"].removeprefix("/api/v1/")).json()["id"] == moved.pk
    assert olga.post(found["cancel_path"].removeprefix("/api/v1/")).status_code == 200
    assert olga.get(f"operations/{moved.pk}").json()["done"] is True


def test_a_stranger_sees_none(copy: Placement) -> None:
    moved = transfer_of(copy, total_bytes=1)
    stranger = granted(factories.cluster("west"), Role.ADMIN)
    assert stranger.get("operations").json()["items"] == []
    assert stranger.get(f"operations/{moved.pk}").status_code == 404
    assert stranger.get("operations/trf_none").json()["detail"] == stranger.get("operations/x").json()["detail"]
