"""What a scan found different is kept as rows, and a doubted listing changes nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import factories
import pytest
from django.utils import timezone
from listings import ROOT_MARK, changed_shard, listing, scanned, shard_map
from muster_agent.decide.model import Pointer
from muster_agent.formats.base import Status
from muster_agent.protocol.wire import RootMark
from rest import caller

from apps.accounts.models import Role
from apps.checkpoints import scan_diffs, scans
from apps.checkpoints.missing import is_rotated
from apps.checkpoints.models import InventoryScan, Placement, PlacementHold, RunPointer

pytestmark = pytest.mark.django_db
BARE = RootMark(mount_point="/", device=1, inode=9)


@pytest.fixture
def tier() -> Any:
    cluster = factories.cluster()
    factories.agent(factories.node(cluster), roots=["/ckpt"])
    return factories.tier(cluster)


def changes(scan: InventoryScan) -> dict[str, tuple[str, set[str]]]:
    """By the copy's folder: the kind, and the names of what differs."""
    rows = scan.changes.select_related("placement")
    return {row.placement.path.rsplit("/", 1)[1]: (row.kind, {*row.before, *row.after}) for row in rows}


def test_what_appeared_changed_and_vanished_is_kept_with_what_changed(tier: Any) -> None:
    saving = shard_map(30, status=Status.IN_PROGRESS)
    first = scanned(tier, listing(shard_map(10), shard_map(20), saving))
    assert {kind for kind, _names in changes(first).values()} == {"appeared"}
    second = scanned(tier, listing(changed_shard(shard_map(20), size_bytes=1001), shard_map(30), shard_map(40)))
    facts = {"status", "total_bytes", "shard_count", "fingerprint"}
    assert changes(second) == {
        "step-10": ("vanished", facts),
        "step-20": ("changed", {"total_bytes", "fingerprint"}),
        "step-30": ("changed", {"status"}),
        "step-40": ("appeared", facts),
    }
    assert (second.new_count, second.changed_count, second.missing_count) == (1, 2, 1)
    grown = second.changes.get(placement__path__endswith="step-20")
    assert (grown.before["total_bytes"], grown.after["total_bytes"]) == (4000, 4001)


def test_an_unchanged_scan_keeps_no_rows_and_one_that_returns_appears(tier: Any) -> None:
    both = listing(shard_map(10), shard_map(20))
    scanned(tier, both)
    assert changes(scanned(tier, both)) == {}
    scanned(tier, listing(shard_map(20)))
    assert changes(scanned(tier, both))["step-10"][0] == "appeared"


@pytest.mark.parametrize(
    ("left", "mark"),
    [((), BARE), ((), None), ((10,), BARE), ((), RootMark(mount_point="/ckpt", device=65, inode=2))],
    ids=["empty mount point", "an agent that tells no mark", "old copies under the mount", "another file system"],
)
def test_where_the_storage_may_be_gone_no_copy_and_no_pointer_is(tier: Any, left: Any, mark: Any) -> None:
    pointer = Pointer(path="/ckpt/llama-70b/latest", step=30)
    scanned(tier, listing(shard_map(10), shard_map(20), shard_map(30), pointers=(pointer,)))
    scan = scanned(tier, listing(*(shard_map(step) for step in left), root_mark=mark))
    assert (scan.state, scan.missing_count, scan.held_count) == ("finished", 0, 3 - len(left))
    assert scan.doubt and scan.findings[0]["code"] == "listing_failed" and "They are gone" in scan.findings[0]["cure"]
    assert set(Placement.objects.values_list("status", "trust")) == {("complete", "complete")}
    assert RunPointer.objects.exists() and not scan.changes.exclude(kind="appeared").exists()


def test_a_doubt_stands_until_the_storage_is_back_or_somebody_accepts_the_loss(tier: Any) -> None:
    scanned(tier, listing(shard_map(10)))
    assert scanned(tier, listing(root_mark=BARE)).doubt and scanned(tier, listing(root_mark=BARE)).doubt
    assert scanned(tier, listing(shard_map(10))).doubt == ""
    accepted = scanned(tier, listing(root_mark=BARE), accepts_loss=True)
    assert (accepted.doubt, accepted.missing_count, accepted.findings) == ("", 1, [])
    assert scanned(tier, listing(root_mark=BARE)).doubt == ""


def test_another_nodes_view_of_the_root_is_not_compared_with_this_ones(tier: Any) -> None:
    other = factories.agent(factories.node(tier.cluster, "gpu-2"), roots=["/ckpt"])
    scanned(tier, listing(shard_map(10), shard_map(20)))
    elsewhere = RootMark(mount_point="/ckpt", device=900, inode=2)
    scan = scanned(tier, listing(shard_map(20), root_mark=elsewhere), agent=other)
    assert (scan.doubt, scan.missing_count) == ("", 1)


def test_a_folder_of_the_tier_is_compared_with_the_file_system_that_the_tier_is_on(tier: Any) -> None:
    scanned(tier, listing(shard_map(10)))
    within = RootMark(mount_point="/ckpt", device=ROOT_MARK.device, inode=77)
    assert scanned(tier, listing(root_mark=BARE), root="/ckpt/llama-70b").doubt
    assert scanned(tier, listing(root_mark=within), root="/ckpt/llama-70b").missing_count == 1


def test_what_the_lister_counted_is_kept(tier: Any) -> None:
    scan = scanned(tier, listing(shard_map(10), entries=12, unchanged=1, seconds=0.5))
    assert (scan.entry_count, scan.unchanged_count, scan.seconds) == (12, 1, 0.5)
    assert scan.root_mark == {"mount_point": "/ckpt", "device": 64, "inode": 2}
    assert scanned(tier, listing(shard_map(10), entries=2**70, unchanged=-4)).entry_count is None


def test_the_layout_of_a_checkpoint_is_kept(tier: Any) -> None:
    layout = {"dp": 2, "tp": 2, "pp": 4, "ep": 1, "must_match": ("world_size", "tp")}
    scanned(tier, listing(shard_map(10, format="a_format_of_tomorrow", **layout)))
    checkpoint = Placement.objects.get().checkpoint
    assert (checkpoint.dp, checkpoint.tp, checkpoint.pp, checkpoint.ep) == (2, 2, 4, 1)
    assert (checkpoint.must_match, checkpoint.format) == (["world_size", "tp"], "a_format_of_tomorrow")
    scanned(tier, listing(shard_map(10, tp=2**40)))
    checkpoint.refresh_from_db()
    assert (checkpoint.tp, checkpoint.must_match) == (None, [])


def test_the_api_lists_the_changes_of_a_scan(tier: Any) -> None:
    scanned(tier, listing(shard_map(10)))
    scan = scanned(tier, listing(shard_map(10, mtime_ns=5), shard_map(20)))
    viewer = caller(Role.VIEWER)
    body = viewer.get(f"scans/{scan.pk}/changes").json()
    assert {(row["step"], row["kind"], row["run_name"]) for row in body["items"]} == {
        (10, "changed", "llama-70b"),
        (20, "appeared", "llama-70b"),
    }
    (changed,) = viewer.get(f"scans/{scan.pk}/changes?kind=changed").json()["items"]
    assert changed["before"].keys() == changed["after"].keys() == {"fingerprint"}
    assert viewer.get(f"scans/{scan.pk}").json()["changed_count"] == 1


def test_two_inventories_of_a_tier_are_compared_over_all_scans_between_them(tier: Any) -> None:
    first = scanned(tier, listing(shard_map(10), shard_map(20)))
    scanned(tier, listing(shard_map(10), shard_map(20), shard_map(30)))
    scanned(tier, listing(changed_shard(shard_map(20), size_bytes=9), shard_map(30)))
    last = scanned(tier, listing(changed_shard(shard_map(20), size_bytes=8), shard_map(40)))
    viewer = caller(Role.VIEWER)
    body = viewer.get(f"scans/{last.pk}/diff?since={first.pk}").json()
    assert [(row["step"], row["kind"]) for row in body["changes"]] == [
        (10, "vanished"), (20, "changed"), (40, "appeared"),
    ]  # fmt: skip
    assert (body["vanished_count"], body["changed_count"], body["appeared_count"], body["left_out"]) == (1, 1, 1, 0)
    grown = body["changes"][1]
    assert (grown["before"]["total_bytes"], grown["after"]["total_bytes"]) == (4000, 3008)
    assert viewer.get(f"scans/{last.pk}/diff?since={last.pk}").json()["changes"] == []


def test_scans_that_cannot_be_compared_are_refused_with_the_reason(tier: Any) -> None:
    first, last = scanned(tier, listing(shard_map(10))), scanned(tier, listing(shard_map(10)))
    elsewhere = factories.tier(tier.cluster, "nas", "/ckpt/nas")
    other = scanned(elsewhere, listing(root="/ckpt/nas"))
    running = scans.request_scan(tier=tier, actor="olga")
    viewer = caller(Role.VIEWER)
    statuses = {
        query: viewer.get(f"scans/{last.pk}/diff?{query}").status_code
        for query in (f"since={other.pk}", f"since={running.pk}", "since=scn_none", "")
    }
    assert list(statuses.values()) == [422, 409, 422, 400]
    assert viewer.get(f"scans/{first.pk}/diff?since={last.pk}").status_code == 422


def test_a_comparison_shows_so_many_and_counts_the_rest(tier: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(scan_diffs, "MAX_SHOWN", 2)
    first = scanned(tier, listing(shard_map(1)))
    found = scan_diffs.diff(first, scanned(tier, listing(*(shard_map(step) for step in range(2, 6)))))
    assert [one.kind for one in found.shown] == ["vanished", "appeared"] and found.left_out == 3
    assert [one.placement.checkpoint.step for one in found.shown] == [1, 5], "newest step first"


def ended(scan: InventoryScan, hours_ago: float) -> InventoryScan:
    scan.finished_at = scan.created_at = timezone.now() - timedelta(hours=hours_ago)
    scan.save()
    return scan


def test_an_inventory_is_compared_with_the_one_that_stood_at_a_time_or_an_age_ago(tier: Any) -> None:
    old = ended(scanned(tier, listing(shard_map(10))), 30)
    newer = ended(scanned(tier, listing(shard_map(10), shard_map(20))), 25)
    ended(scanned(tier, listing(shard_map(10), shard_map(20), shard_map(30))), 2)
    last = scanned(tier, listing(shard_map(40)))
    viewer = caller(Role.VIEWER)

    def since(text: str) -> Any:
        return viewer.get(f"scans/{last.pk}/diff", since=text)

    body = since("24h").json()
    assert body["since"] == newer.pk
    assert [(row["step"], row["kind"]) for row in body["changes"]] == [
        (20, "vanished"), (10, "vanished"), (40, "appeared"),
    ]  # fmt: skip
    at = timezone.now() - timedelta(hours=27)
    assert since(at.isoformat()).json()["since"] == since(f"{at:%Y-%m-%dT%H:%M:%SZ}").json()["since"] == old.pk
    assert since(f"{at:%Y-%m-%d %H:%M}").json()["since"] == old.pk, "UTC where no zone is named"
    too_early = since("90d")
    assert too_early.status_code == 422 and "the oldest that is kept ended at" in too_early.json()["detail"]
    for nonsense in ("banana", "24 h", "-3h", "2026-13-01", "\u0663h", "999999999d"):
        assert since(nonsense).status_code == 422, nonsense
    assert viewer.get(f"scans/{last.pk}/diff?since=24h&since=1h").status_code == 400


def test_a_step_that_retention_took_is_told_from_one_that_was_lost(tier: Any) -> None:
    scanned(tier, listing(shard_map(10), shard_map(20), shard_map(30), shard_map(10, run="other")))
    scan = scanned(tier, listing(shard_map(30), shard_map(20, status=Status.UNCOMMITTED)))
    taken = dict(Placement.objects.filter(status="missing").values_list("path", "rotated_away"))
    assert taken == {"/ckpt/llama-70b/step-10": True, "/ckpt/other/step-10": False}, "nothing of the other run is left"
    assert scan.missing_count == 2
    scanned(tier, listing(shard_map(30), shard_map(10)))
    back = Placement.objects.get(path="/ckpt/llama-70b/step-10")
    assert (back.status, back.rotated_away) == ("complete", False)


def test_the_newest_step_and_the_last_proven_one_are_never_taken_for_rotated(tier: Any) -> None:
    scanned(tier, listing(shard_map(10), shard_map(20), shard_map(30)))
    Placement.objects.filter(path="/ckpt/llama-70b/step-10").update(trust="verified")
    held = Placement.objects.get(path="/ckpt/llama-70b/step-20")
    PlacementHold.objects.create(placement=held, source_kind="drill", source_id="d", created_at=timezone.now())
    scanned(tier, listing(shard_map(30)))
    assert not Placement.objects.filter(rotated_away=True).exists()
    scanned(tier, listing(shard_map(5)))
    assert not Placement.objects.filter(rotated_away=True).exists(), "step 30 was the newest"


@pytest.mark.parametrize(
    ("step", "newest", "verified", "newest_verified", "expected"),
    [
        (10, 30, False, None, True), (10, 30, True, 30, True), (10, 30, True, None, False), (10, 30, True, 5, False),
        (30, 30, False, None, False), (40, 30, False, 30, False), (10, None, False, None, False),
    ],
)  # fmt: skip
def test_rotation_needs_a_newer_whole_step_and_where_it_was_proven_a_newer_proven_one(
    step: int, newest: int | None, verified: bool, newest_verified: int | None, expected: bool
) -> None:
    assert is_rotated(step, newest, verified, newest_verified) is expected
