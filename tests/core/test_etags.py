"""304 for who has it, 412 for who changes what has changed, 428 for who does not say."""

from __future__ import annotations

import json
from typing import Any

import factories
import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Role
from apps.checkpoints.models import TrainingRun
from apps.drills.models import DrillPlan

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> TrainingRun:
    return factories.run(factories.cluster())


@pytest.fixture
def bearer() -> dict[str, str]:
    return {"Authorization": f"Bearer {factories.token(factories.user('ada', Role.ADMIN))}"}


def patch(path: str, body: Any, headers: dict[str, str]) -> Any:
    return Client().patch(f"/api/v1/{path}", json.dumps(body), content_type="application/json", headers=headers)


def test_who_has_it_already_gets_304_and_no_body(run: TrainingRun, bearer: dict[str, str]) -> None:
    url = f"/api/v1/runs/{run.pk}/"
    first = Client().get(url, headers=bearer)
    etag = first["ETag"]
    assert etag.startswith('"') and "private" in first["Cache-Control"]
    for known in (etag, f'"other", {etag}', f"W/{etag}"):
        again = Client().get(url, headers={**bearer, "If-None-Match": known})
        assert (again.status_code, again.content, again["ETag"]) == (304, b"", etag)
    TrainingRun.objects.update(gpu_count=8)
    assert Client().get(url, headers={**bearer, "If-None-Match": etag}).status_code == 200


def test_a_304_is_given_to_nobody_who_may_not_see_it(run: TrainingRun, bearer: dict[str, str]) -> None:
    url = f"/api/v1/runs/{run.pk}/"
    etag = Client().get(url, headers=bearer)["ETag"]
    assert Client().get(url, headers={"If-None-Match": etag}).status_code == 401


def test_a_change_says_what_it_is_about(run: TrainingRun, bearer: dict[str, str]) -> None:
    path, etag = f"runs/{run.pk}/", Client().get(f"/api/v1/runs/{run.pk}/", headers=bearer)["ETag"]
    missing = patch(path, {"gpu_count": 1}, bearer)
    assert missing.status_code == 428 and "If-Match" in missing.json()["detail"]
    changed = patch(path, {"gpu_count": 8}, {**bearer, "If-Match": etag})
    assert changed.status_code == 200
    stale = patch(path, {"gpu_count": 9}, {**bearer, "If-Match": etag})
    assert (stale.status_code, stale.json()["errors"][0]["code"]) == (412, "changed_meanwhile")
    assert TrainingRun.objects.get().gpu_count == 8
    assert patch(path, {"gpu_count": 10}, {**bearer, "If-Match": changed["ETag"]}).status_code == 200
    assert patch(path, {"gpu_count": 11}, {**bearer, "If-Match": "*"}).status_code == 200


def test_what_is_not_there_is_404_whatever_is_said_of_it(bearer: dict[str, str]) -> None:
    for given in ('"x"', "*"):
        assert patch("runs/run_none/", {"gpu_count": 1}, {**bearer, "If-Match": given}).status_code == 404


def test_a_plan_is_not_deleted_by_who_saw_another_one(run: TrainingRun, bearer: dict[str, str]) -> None:
    plan = DrillPlan.objects.create(run=run, name="p", kind="reload", created_by="x", created_at=timezone.now())
    url = f"/api/v1/plans/{plan.pk}/"
    etag = Client().get(url, headers=bearer)["ETag"]
    DrillPlan.objects.update(name="q")
    assert Client().delete(url, headers={**bearer, "If-Match": etag}).status_code == 412
    etag = Client().get(url, headers=bearer)["ETag"]
    assert Client().delete(url, headers={**bearer, "If-Match": etag}).status_code == 204


def test_the_rules_of_drills_are_guarded_too(run: TrainingRun, bearer: dict[str, str]) -> None:
    path = f"clusters/{run.cluster_id}/drill-rules"
    etag = Client().get(f"/api/v1/{path}", headers=bearer)["ETag"]
    assert patch(path, {"max_nodes": 2}, {**bearer, "If-Match": etag}).status_code == 200
    assert patch(path, {"max_nodes": 3}, {**bearer, "If-Match": etag}).status_code == 412


def test_a_refused_change_leaves_nothing(run: TrainingRun, bearer: dict[str, str]) -> None:
    refused = patch(f"runs/{run.pk}/", {"gpu_count": -1}, {**bearer, "If-Match": "*"})
    assert 400 <= refused.status_code < 500
    assert TrainingRun.objects.get().gpu_count is None


def test_a_token_can_always_be_revoked(bearer: dict[str, str]) -> None:
    made = Client().post("/api/v1/tokens/", {"name": "x"}, content_type="application/json", headers=bearer).json()
    assert Client().delete(f"/api/v1/tokens/{made['id']}/", headers=bearer).status_code == 204
