"""The predictor over real rows: which drills count, what is said without any, and REST."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import factories
import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import Role
from apps.checkpoints.models import TrainingRun
from apps.drills.models import Drill, DrillRung
from apps.recovery.what_if import answers, question, standard_questions, tier_model
from apps.storage.models import StorageTier, TierCeiling

pytestmark = pytest.mark.django_db
GB = 10**9


@pytest.fixture
def run() -> TrainingRun:
    return factories.run(factories.cluster())


@pytest.fixture
def tier(run: TrainingRun) -> StorageTier:
    return factories.tier(run.cluster)


def herd(run: TrainingRun, tier: StorageTier, rungs: list[tuple[int, int, float]], age: int = 0, **fields: Any) -> None:
    at = timezone.now() - timedelta(minutes=age)
    values: dict[str, Any] = {"kind": "herd", "state": "finished", "outcome": "passed", "cached_ratio_before": 0.0}
    placement = tier.placements.first() or factories.placement(run, tier)
    drill = Drill.objects.create(
        cluster=run.cluster, run=run, placement=placement, created_at=at, **{**values, **fields}
    )
    for order, (clients, total_bytes, seconds) in enumerate(rungs):
        DrillRung.objects.create(
            drill=drill,
            placement=drill.placement,
            order=order,
            client_count=clients,
            total_bytes=total_bytes,
            seconds=seconds,
        )


def test_rounds_of_drills_give_ceilings_efficiency_and_answers(run: TrainingRun, tier: StorageTier) -> None:
    herd(run, tier, [(1, 10 * GB, 5.0), (4, 40 * GB, 5.0), (8, 80 * GB, 8.0)])
    known = tier_model(tier)
    assert known.model is not None
    assert [(one.reader_count, one.bytes_per_second / GB) for one in known.model.rates.points] == [
        (1, 2.0), (4, 8.0), (8, 10.0),
    ]  # fmt: skip
    [found] = answers(known, [question(100 * GB, 64)], objective_seconds=12.5)
    assert (found.question.reader_count, found.is_beyond_measured, found.other_seconds) == (8, False, None)
    assert found.seconds == pytest.approx(10)
    assert found.need is not None and found.need.reader_count == 4


def test_bytes_from_memory_capped_reads_and_failed_drills_say_nothing_of_a_tier(
    run: TrainingRun, tier: StorageTier
) -> None:
    herd(run, tier, [(1, 10 * GB, 0.1)], cached_ratio_before=0.9)
    herd(run, tier, [(1, 10 * GB, 99.0)], max_bytes_per_second=1000)
    herd(run, tier, [(1, 10 * GB, 0.1)], outcome="failed")
    assert tier_model(tier).model is None
    assert answers(tier_model(tier), standard_questions(), 60.0) == []


def test_a_measured_ceiling_alone_gives_the_floor(run: TrainingRun, tier: StorageTier) -> None:
    TierCeiling.objects.create(
        tier=tier, bytes_per_second=2 * GB, client_count=1, method="ceiling", measured_at=timezone.now()
    )
    known = tier_model(tier)
    [found] = answers(known, [question(100 * GB, 16)], None)
    assert (known.error, found.seconds, found.is_beyond_measured) == (None, 50, True)


def test_restarts_add_the_phases_that_storage_does_not_do(run: TrainingRun, tier: StorageTier) -> None:
    herd(run, tier, [(1, 10 * GB, 5.0)])
    for number in range(3):
        Drill.objects.create(
            cluster=run.cluster, run=run, kind="failover", state="finished", outcome="passed",
            phases={"detect": 1.0 + number, "read": 500.0, "launch": 7.0}, created_at=timezone.now(),
        )  # fmt: skip
    known = tier_model(tier)
    assert (known.other_phases, known.restart_count) == ({"detect": 2.0, "launch": 7.0}, 3)
    [found] = answers(known, [question(10 * GB, 1)], None)
    assert found.seconds == pytest.approx(14)


def test_each_drill_is_checked_against_those_before_it(run: TrainingRun, tier: StorageTier) -> None:
    for age in range(9):
        herd(run, tier, [(1, 10 * GB, 5.0)], age=age + 1)
    herd(run, tier, [(1, 10 * GB, 10.0)])
    known = tier_model(tier)
    assert known.error is not None
    assert (known.error.count, known.error.mape_ratio) == (7, pytest.approx(0.5 / 7))
    assert known.error.bias_ratio == pytest.approx(-0.5 / 7)


def test_the_standard_questions_are_four_sizes_at_five_fleets() -> None:
    asked = standard_questions()
    assert len(asked) == 20
    assert {one.total_bytes // GB for one in asked} == {105, 912, 5290, 18_000}
    assert {one.rank_count for one in asked} == {8, 64, 512, 4096, 16_384}
    assert {one.reader_count for one in asked} == {1, 8, 64, 512, 2048}


def test_what_if_over_rest(run: TrainingRun, tier: StorageTier) -> None:
    api = APIClient()
    owner = factories.user("vera", Role.VIEWER)
    api.credentials(HTTP_AUTHORIZATION=f"Bearer {factories.token(owner)}")
    path = f"/api/v1/what-if?tier={tier.pk}"
    empty = api.get(path).json()
    assert (empty["model"], empty["items"], empty["error"]) == (None, [], None)
    herd(run, tier, [(1, 10 * GB, 5.0), (8, 80 * GB, 8.0)])
    assert len(api.get(path).json()["items"]) == 20
    [item] = api.get(f"{path}&total_bytes={100 * GB}&ranks=64&readers=1&objective_seconds=2").json()["items"]
    assert (item["reader_count"], item["node_count"], item["other_seconds"]) == (1, 8, None)
    assert item["need"]["reader_count"] is None and item["need"]["bytes_per_second"] > 10 * GB
    refused = api.get(f"{path}&total_bytes=5")
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/ranks")
    assert api.get("/api/v1/what-if?tier=tir_none").status_code == 404
