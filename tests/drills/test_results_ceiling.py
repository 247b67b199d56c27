"""A drill that read cold measures how fast its tier can be read."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import factories
import pytest
from django.utils import timezone
from drill_agents import Yard, run_to_end

from apps.drills import results, services
from apps.drills.models import Drill, DrillRung, RankResult
from apps.storage.models import TierCeiling
from apps.storage.services import record_ceiling

pytestmark = pytest.mark.django_db


@pytest.fixture
def drill() -> Drill:
    cluster = factories.cluster()
    run = factories.run(cluster)
    placement = factories.placement(run, factories.tier(cluster))
    return Drill.objects.create(
        cluster=cluster, run=run, placement=placement, kind="herd", requested_by="olga", created_at=timezone.now()
    )


def rung(drill: Drill, clients: int, bytes_per_second: float, *, cached: float | None = 0.0) -> None:
    row = DrillRung.objects.create(
        drill=drill,
        placement=drill.placement,
        order=drill.rungs.count(),
        client_count=clients,
        bytes_per_second=bytes_per_second,
    )
    for rank in range(clients):
        RankResult.objects.create(rung=row, rank=rank, task_id=f"t{rank}", bytes=100, cached_ratio_before=cached)


def record(drill: Drill) -> list[tuple[float, int, str]]:
    assert drill.placement is not None
    results.record_ceiling(drill, drill.placement)
    return list(TierCeiling.objects.order_by("pk").values_list("bytes_per_second", "client_count", "method"))


def test_the_best_rung_that_read_cold_is_the_tiers_ceiling(drill: Drill) -> None:
    rung(drill, 1, 100.0)
    rung(drill, 2, 180.0, cached=0.04)
    rung(drill, 4, 170.0)
    rung(drill, 8, 900.0, cached=0.06)
    assert record(drill) == [(180.0, 2, f"herd drill {drill.pk}")]


@pytest.mark.parametrize("cached", [0.05, 1.0, None])
def test_what_came_from_memory_or_may_have_is_no_ceiling(drill: Drill, cached: float | None) -> None:
    rung(drill, 1, 100.0, cached=cached)
    assert record(drill) == []


def test_a_capped_drill_measures_its_cap_and_not_the_tier(drill: Drill) -> None:
    drill.max_bytes_per_second = 1_000_000
    rung(drill, 1, 100.0)
    assert record(drill) == []


def test_only_a_better_rate_is_recorded_unless_the_better_one_is_old(drill: Drill) -> None:
    assert drill.placement is not None
    known: dict[str, Any] = {"tier": drill.placement.tier, "client_count": 1, "method": "fio"}
    ceiling = record_ceiling(bytes_per_second=150.0, **known)
    rung(drill, 1, 100.0)
    assert len(record(drill)) == 1
    TierCeiling.objects.filter(pk=ceiling.pk).update(measured_at=timezone.now() - timedelta(days=91))
    assert [row[0] for row in record(drill)] == [150.0, 100.0]
    rung(drill, 2, 160.0)
    assert [row[0] for row in record(drill)] == [150.0, 100.0, 160.0]


def test_efficiency_is_held_against_a_ceiling_of_as_many_clients(drill: Drill) -> None:
    assert drill.placement is not None
    for clients, rate in ((1, 100.0), (2, 150.0), (8, 999.0)):
        record_ceiling(tier=drill.placement.tier, bytes_per_second=rate, client_count=clients, method="fio")
    rung(drill, 2, 120.0)
    drill.facts = {**drill.facts, **results.drill_figures(drill)["facts"]}
    drill.bytes_per_second, drill.cached_ratio_before = 120.0, 0.0
    drill.save()
    assert drill.facts["ceiling"]["bytes_per_second"] == 150.0
    assert drill.efficiency_ratio == pytest.approx(0.8)
    client = RankResult.objects.filter(rung__drill=drill).first()
    assert client is not None
    client.bytes_per_second = 60.0
    assert client.efficiency_ratio == pytest.approx(0.6), "one client is held against one"
    drill.cached_ratio_before = 0.5
    assert drill.efficiency_ratio is None, "memory is no storage"


def test_a_drill_that_beats_the_ceiling_is_the_new_one_and_reaches_no_more_than_all_of_it(drill: Drill) -> None:
    assert drill.placement is not None
    record_ceiling(tier=drill.placement.tier, bytes_per_second=80.0, client_count=2, method="reload drill drl_1")
    rung(drill, 2, 120.0)
    RankResult.objects.update(seconds=1.0)  # 100 bytes each: 200 bytes a second together
    figures = results.drill_figures(drill)
    drill.facts, drill.bytes_per_second, drill.cached_ratio_before = figures["facts"], figures["bytes_per_second"], 0.0
    assert drill.bytes_per_second == pytest.approx(200)
    assert drill.efficiency_ratio == pytest.approx(1)
    assert drill.facts["ceiling"]["method"].endswith("before it 80.0 B/s by reload drill drl_1")


def test_without_a_ceiling_of_as_many_clients_efficiency_is_not_measured(drill: Drill) -> None:
    assert drill.placement is not None
    record_ceiling(tier=drill.placement.tier, bytes_per_second=100.0, client_count=1, method="fio")
    rung(drill, 2, 120.0)
    drill.facts, drill.bytes_per_second = results.drill_figures(drill)["facts"], 120.0
    assert "ceiling" not in drill.facts and drill.efficiency_ratio is None


def test_a_reload_drill_records_it_when_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard(tmp_path)
    yard.checkpoint()
    monkeypatch.setattr(results, "COLD_RATIO", 1.1)  # whether pages can be evicted depends on the machine's file system
    drill = run_to_end(services.create_drill(run=yard.run, spec={"kind": "reload"}, actor="olga"), yard.agents)
    expected = [(yard.tier.pk, pytest.approx(drill.bytes_per_second, rel=0.01), 4, f"reload drill {drill.pk}")]
    known = drill.cached_ratio_before is not None
    assert list(TierCeiling.objects.values_list("tier", "bytes_per_second", "client_count", "method")) == (
        expected if known else []
    )
