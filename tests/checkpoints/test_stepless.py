"""Checkpoints whose step nothing tells: listed apart, and gone once they are gone."""

from __future__ import annotations

from typing import Any

import factories
import pytest
from listings import finding, listing, scanned, shard_map
from muster_agent.formats.base import Status
from rest import caller

from apps.accounts.models import Role
from apps.checkpoints.models import Placement, SteplessCheckpoint

pytestmark = pytest.mark.django_db


@pytest.fixture
def tier() -> Any:
    cluster = factories.cluster()
    factories.agent(factories.node(cluster), roots=["/ckpt"])
    return factories.tier(cluster)


def final(**fields: Any) -> Any:
    return shard_map(None, path="/ckpt/llama-70b/final", **fields)


def paths() -> list[str]:
    return sorted(SteplessCheckpoint.objects.values_list("path", flat=True))


def test_it_is_found_in_the_list_of_those_without_a_step_with_what_is_wrong_with_it(tier: Any) -> None:
    damage = finding("shard_truncated", "damage", path="rank-00001.safetensors")
    scanned(tier, listing(shard_map(10), final(status=Status.CORRUPT, findings=(damage,))))
    viewer = caller(Role.VIEWER)
    (one,) = viewer.get("stepless-checkpoints/").json()["items"]
    assert (one["path"], one["run_name"], one["status"]) == ("/ckpt/llama-70b/final", "llama-70b", "corrupt")
    assert (one["shard_count"], one["total_bytes"], one["damage_count"]) == (4, 4000, 1)
    assert one["findings"][0]["code"] == "shard_truncated"
    assert viewer.get(f"stepless-checkpoints/{one['id']}/").json() == one
    assert viewer.get("stepless-checkpoints/?status=complete").json()["items"] == []
    assert Placement.objects.get().checkpoint.step == 10


def test_the_same_scan_twice_and_a_change_leave_one_row(tier: Any) -> None:
    scanned(tier, listing(final()))
    first = SteplessCheckpoint.objects.get()
    scanned(tier, listing(final(shard_bytes=2000)))
    row = SteplessCheckpoint.objects.get()
    assert (row.pk, row.total_bytes, row.first_seen_at) == (first.pk, 8000, first.first_seen_at)
    assert row.last_seen_at > first.last_seen_at


def test_it_goes_once_it_is_not_there_or_has_a_step(tier: Any) -> None:
    scanned(tier, listing(shard_map(10), final()))
    scanned(tier, listing(shard_map(10), shard_map(20, path="/ckpt/llama-70b/final")))
    assert paths() == []
    scanned(tier, listing(shard_map(10), shard_map(20), final()))
    scanned(tier, listing(shard_map(10), shard_map(20)))
    assert paths() == []


def test_it_stays_where_nothing_could_be_looked_at_and_where_another_folder_was_scanned(tier: Any) -> None:
    scanned(tier, listing(shard_map(10), final()))
    scanned(tier, listing(shard_map(10), findings=(finding("permission_denied", path="/ckpt/llama-70b"),)))
    scanned(tier, listing(shard_map(5, root="/ckpt/other"), root="/ckpt/other"), root="/ckpt/other")
    scanned(tier, listing(root_mark=None))  # nothing at all is left: an unmounted root looks the same
    assert paths() == ["/ckpt/llama-70b/final"]


def test_one_that_may_not_be_read_is_listed_as_unreadable(tier: Any) -> None:
    denied = finding("permission_denied", path="/ckpt/llama-70b/final")
    scanned(tier, listing(shard_map(10), final(status=Status.UNREADABLE, shards=0, findings=(denied,))))
    assert SteplessCheckpoint.objects.get().status == "unreadable"
