"""Tiers: created, changed, measured."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import factories
import pytest

from apps.accounts.models import ActivityEntry
from apps.core.errors import Conflict, InvalidInput
from apps.storage import selectors, services
from apps.storage.models import StorageTier

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Any:
    return factories.cluster()


def create(cluster: Any, **fields: Any) -> StorageTier:
    values = {"name": "nvme", "kind": "local_nvme", "uri": "/fast/ckpt/", "actor": "root", **fields}
    return services.create_tier(cluster=cluster, **values)


def test_a_tier_is_created_with_one_spelling_and_logged(cluster: Any) -> None:
    tier = create(cluster, speed_order=1, capacity_bytes=10**15, cost_per_tb_month=Decimal("12.5"))
    tier.refresh_from_db()
    assert (tier.uri, tier.speed_order, tier.capacity_bytes) == ("/fast/ckpt", 1, 10**15)
    assert ActivityEntry.objects.get(action="tier.create").target_id == tier.pk


def test_a_name_is_taken_once_per_cluster(cluster: Any) -> None:
    create(cluster)
    with pytest.raises(Conflict, match="already has a tier 'nvme'"):
        create(cluster, uri="/other")
    create(factories.cluster("west"))


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"name": "NVMe"}, "/name"),
        ({"name": ""}, "/name"),
        ({"kind": "floppy"}, "/kind"),
        ({"uri": "fast"}, "/uri"),
        ({"uri": "s3://bucket/x"}, "/kind"),
        ({"speed_order": -1}, "/speed_order"),
        ({"speed_order": 5000}, "/speed_order"),
        ({"capacity_bytes": -1}, "/capacity_bytes"),
        ({"capacity_bytes": 2**63}, "/capacity_bytes"),
        ({"cost_per_tb_month": Decimal(-1)}, "/cost_per_tb_month"),
    ],
)
def test_bad_values_are_refused_with_a_pointer(cluster: Any, fields: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        create(cluster, **fields)
    assert refusal.value.pointer == pointer
    assert not StorageTier.objects.exists()


def test_a_tier_is_changed_but_not_moved_from_under_its_copies(cluster: Any) -> None:
    tier = create(cluster)
    services.update_tier(tier=tier, actor="root", uri="/new", speed_order=3)
    tier.refresh_from_db()
    assert (tier.uri, tier.speed_order) == ("/new", 3)
    factories.placement(factories.run(cluster), tier)
    with pytest.raises(Conflict, match="create another tier"):
        services.update_tier(tier=tier, actor="root", uri="/elsewhere")
    services.update_tier(tier=tier, actor="root", uri="/new/", name="fast")
    with pytest.raises(InvalidInput, match="no changeable field"):
        services.update_tier(tier=tier, actor="root", cluster="x")


def test_the_best_measurement_is_the_ceiling(cluster: Any) -> None:
    tier, other = create(cluster), create(cluster, name="nas", kind="nas")
    for rate in (2e9, 5e9, 3e9):
        services.record_ceiling(tier=tier, bytes_per_second=rate, client_count=4, method="reload drill")
    assert selectors.best_ceilings([tier.pk, other.pk]) == {tier.pk: 5e9}
    with pytest.raises(InvalidInput):
        services.record_ceiling(tier=tier, bytes_per_second=float("nan"), client_count=4, method="x")


def test_tiers_come_fastest_first(cluster: Any) -> None:
    create(cluster, name="nas", kind="nas", speed_order=5)
    create(cluster, name="nvme", speed_order=0)
    assert [tier.name for tier in selectors.tiers_of(cluster)] == ["nvme", "nas"]
