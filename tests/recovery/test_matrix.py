"""Tiers side by side: only what drills measured, and which drill fills what they did not."""

from __future__ import annotations

from typing import Any

import factories
import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import Role
from apps.checkpoints.models import TrainingRun
from apps.drills.models import Drill, DrillRung, RankResult
from apps.recovery.matrix import columns
from apps.storage.models import StorageTier

pytestmark = pytest.mark.django_db
GB = 10**9


@pytest.fixture
def run() -> TrainingRun:
    return factories.run(factories.cluster())


@pytest.fixture
def tier(run: TrainingRun) -> StorageTier:
    found = factories.tier(run.cluster, cost_per_tb_month="35")
    factories.placement(run, found)
    return found


def drill(tier: StorageTier, rates: list[tuple[int, float]], **fields: Any) -> Drill:
    values: dict[str, Any] = {
        "kind": "herd" if len(rates) > 1 else "reload", "state": "finished", "outcome": "passed", "seconds": 9.0,
        "total_bytes": 90 * GB, "cached_ratio_before": 0.0, "created_at": timezone.now(),
    }  # fmt: skip
    placement = tier.placements.select_related("checkpoint__run").get()
    run = placement.checkpoint.run
    made = Drill.objects.create(cluster=run.cluster, run=run, placement=placement, **{**values, **fields})
    for order, (clients, rate) in enumerate(rates):
        rung = DrillRung.objects.create(
            drill=made, placement=made.placement, order=order, client_count=clients, bytes_per_second=rate
        )
        RankResult.objects.create(rung=rung, rank=0, task_id="t", outcome="done", bytes=10 * GB, cpu_seconds=2.5)
    return made


def test_each_figure_comes_from_the_drill_that_measured_it(tier: StorageTier) -> None:
    ladder = [{"client_count": 1}, {"client_count": 8}]
    herd = drill(tier, [(1, 2e9), (8, 10e9)], facts={"ladder": ladder, "knee": {"client_count": 8}})
    newest = drill(tier, [(2, 3e9)], seconds=30.0)
    [found] = columns([tier])
    assert (found.rate, found.rate_clients, found.rate_drill) == (10e9, 8, herd.pk)
    assert (found.reload_seconds, found.reload_bytes, found.reload_drill) == (30.0, 90 * GB, newest.pk)
    assert (found.knee_clients, found.ladder_clients, found.ladder_drill) == (8, 8, herd.pk)
    assert found.cpu_seconds_per_gb == pytest.approx(0.25)
    assert found.missing == {}


def test_a_tier_without_drills_is_not_measured_and_says_what_would_fill_it(tier: StorageTier, run: TrainingRun) -> None:
    bare = factories.tier(run.cluster, "nas", "/nas")
    measured, empty = columns([tier, bare])
    assert measured.run_id == run.pk and empty.run_id is None
    assert (empty.rate, empty.reload_seconds, empty.cpu_seconds_per_gb) == (None, None, None)
    assert measured.missing == {
        "rate": "reload", "reload_seconds": "reload", "knee_clients": "herd", "cpu_seconds_per_gb": "reload",
    }  # fmt: skip


def test_memory_caps_and_failures_are_no_measure_of_a_tier(tier: StorageTier) -> None:
    drill(tier, [(1, 99e9)], cached_ratio_before=0.9)
    drill(tier, [(1, 99e9)], max_bytes_per_second=100)
    drill(tier, [(1, 99e9)], outcome="failed")
    [found] = columns([tier])
    assert found.rate is None and found.cpu_seconds_per_gb is None


def test_a_ladder_without_a_knee_is_told_from_no_ladder(tier: StorageTier) -> None:
    drill(tier, [(1, 2e9), (4, 8e9)], facts={"ladder": [{"client_count": 1}, {"client_count": 4}], "knee": None})
    [found] = columns([tier])
    assert (found.knee_clients, found.ladder_clients) == (None, 4)
    assert "knee_clients" not in found.missing


def test_the_comparison_over_rest_is_scoped(tier: StorageTier) -> None:
    def client(role: Role, name: str) -> APIClient:
        made = APIClient()
        made.credentials(HTTP_AUTHORIZATION=f"Bearer {factories.token(factories.user(name, role), Role.ADMIN)}")
        return made

    [item] = client(Role.VIEWER, "vera").get("/api/v1/tier-comparison").json()["items"]
    assert (item["tier_name"], item["bytes_per_second"], item["cost_per_tb_month"]) == ("nvme", None, "35.0000")
    assert item["missing"]["knee_clients"] == "herd"


def test_the_form_of_a_drill_names_the_tier_that_the_empty_cell_asked_for(tier: StorageTier, client: Any) -> None:
    client.force_login(factories.user("olga", Role.OPERATOR))
    page = client.get("/analysis/tiers/").content.decode()
    assert "not measured" in page and f"tier={tier.pk}" in page
    form = client.get(f"/drills/start/?kind=herd&tier={tier.pk}").content.decode()
    assert f'<option value="{tier.pk}" selected>' in form
