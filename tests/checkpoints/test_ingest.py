"""Taking in listings: what is written, what is kept, what is never taken for gone."""

from __future__ import annotations

import dataclasses
import threading
from datetime import timedelta
from typing import Any

import factories
import listings
import msgspec
import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from listings import MTIME_NS, changed_shard, finding, listing, manifest_of, scanned, shard_map
from muster_agent.decide.model import Pointer, ResumeRequest
from muster_agent.formats.base import Status

from apps.checkpoints import evidence, intake, resume
from apps.checkpoints.ingest import ingest
from apps.checkpoints.intake import sort_listing
from apps.checkpoints.missing import mark_missing
from apps.checkpoints.models import (
    Checkpoint,
    Finding,
    InventoryScan,
    Manifest,
    Placement,
    RunPointer,
    Shard,
    TrainingRun,
    TrustEvidence,
)
from apps.core.models import Transition

pytestmark = pytest.mark.django_db


def one() -> Placement:
    return Placement.objects.select_related("checkpoint__run").get()


def test_a_first_listing_makes_the_run_its_checkpoints_and_their_shards(tier: Any) -> None:
    scan = scanned(tier, listing(shard_map(20), shard_map(10)))
    assert (scan.state, scan.checkpoint_count, scan.new_count, scan.changed_count, scan.missing_count) == (
        "finished", 2, 2, 0, 0,
    )  # fmt: skip
    assert TrainingRun.objects.get().name == "llama-70b"
    assert list(Checkpoint.objects.order_by("step").values_list("step", "total_bytes", "world_size")) == [
        (10, 4000, 4),
        (20, 4000, 4),
    ]
    placement = Placement.objects.get(checkpoint__step=20)
    assert (placement.status, placement.listed_status, placement.trust) == ("complete", "complete", "complete")
    assert placement.path == "/ckpt/llama-70b/step-20" and placement.fingerprint and placement.shard_count == 4
    assert list(placement.shards.order_by("rank").values_list("rank", "size_bytes")) == [(r, 1000) for r in range(4)]
    assert placement.checkpoint.saved_at == placement.newest_mtime_at
    assert set(Transition.objects.filter(owner_kind="placement").values_list("old", "new")) == {("", "complete")}


def test_an_unchanged_listing_writes_nothing_but_when_it_was_seen(tier: Any) -> None:
    body = listing(shard_map(10), shard_map(20), findings=())
    scanned(tier, body)
    before = {row.pk: row for row in Placement.objects.all()}
    transitions = Transition.objects.filter(owner_kind="placement").count()
    shards = set(Shard.objects.values_list("pk", flat=True))
    with CaptureQueriesContext(connection) as queries:
        scan = scanned(tier, body)
    assert (scan.new_count, scan.changed_count) == (0, 0)
    assert set(Shard.objects.values_list("pk", flat=True)) == shards
    assert Transition.objects.filter(owner_kind="placement").count() == transitions
    tables = [f'"checkpoints_{name}"' for name in ("placement", "shard", "checkpoint", "finding", "trustevidence")]
    statements = [query["sql"].split("WHERE")[0] for query in queries.captured_queries]
    written = [
        statement
        for statement in statements
        if statement.startswith(("INSERT", "UPDATE", "DELETE")) and any(table in statement for table in tables)
    ]
    assert len(written) == 1 and "last_seen_at" in written[0]
    for row in Placement.objects.all():
        assert row.last_seen_at > before[row.pk].last_seen_at
        assert row.fingerprint == before[row.pk].fingerprint


def test_the_same_listing_taken_in_twice_changes_nothing(tier: Any) -> None:
    scan = scanned(tier, listing(shard_map(10), findings=()))
    listed_at = Placement.objects.get().last_seen_at
    again = sort_listing(listing(shard_map(10)), "/ckpt")
    ingest(scan, again, listed_at)
    assert (scan.changes.count(), mark_missing(scan, [], listed_at)) == (1, [])
    assert Placement.objects.count() == Checkpoint.objects.count() == 1


def test_a_changed_time_voids_the_evidence_with_a_reason(tier: Any) -> None:
    listed = shard_map(10)
    scanned(tier, listing(listed))
    row = one()
    assert evidence.add_evidence(
        placement=row, rung="verified", source_kind="audit", source_id="aud_1", fingerprint=row.fingerprint
    )
    assert one().trust == "verified"
    scan = scanned(tier, listing(changed_shard(listed, 2, mtime_ns=listings.MTIME_NS + 5_000_000_000)))
    proof = TrustEvidence.objects.get()
    assert proof.voided_at is not None and "rank-00002.safetensors was written again at" in proof.void_reason
    assert (one().trust, one().trust_at, scan.changed_count) == ("complete", None, 1)


def test_a_changed_size_voids_the_evidence_and_names_both_sizes(tier: Any) -> None:
    listed = shard_map(10)
    scanned(tier, listing(listed))
    row = one()
    evidence.add_evidence(
        placement=row, rung="sealed", source_kind="audit", source_id="aud_1", fingerprint=row.fingerprint
    )
    scanned(tier, listing(changed_shard(listed, 0, size_bytes=999)))
    assert TrustEvidence.objects.get().void_reason == "rank-00000.safetensors had 1000 bytes and has 999"
    assert Shard.objects.get(rank=0).size_bytes == 999


def test_damage_of_old_bytes_is_resolved_when_the_files_change(tier: Any) -> None:
    listed = shard_map(10)
    scanned(tier, listing(listed))
    row = one()
    evidence.mark_damage(
        placement=row, findings=[finding("digest_mismatch", "damage", "rank-00001.safetensors")],
        source_kind="audit", source_id="aud_1", fingerprint=row.fingerprint,
    )  # fmt: skip
    assert (one().status, one().trust) == ("corrupt", "complete")
    scanned(tier, listing(listed))
    assert one().status == "corrupt", "a listing cannot see damaged bytes, so it does not lift damage"
    scanned(tier, listing(shard_map(10, mtime_ns=listings.MTIME_NS + 10**9)))
    assert (one().status, one().damaged_at) == ("complete", None)
    assert Finding.objects.get().resolved_at is not None


def test_damage_found_in_newer_files_outlives_the_scan_that_first_sees_them(tier: Any) -> None:
    listed = shard_map(10)
    scanned(tier, listing(listed))
    newer = changed_shard(listed, 0, mtime_ns=listings.MTIME_NS + 1)
    seen = intake.sort_listing(listing(newer), "/ckpt").accepted[0].fingerprint
    evidence.mark_damage(
        placement=one(), findings=[finding("digest_mismatch", "damage")],
        source_kind="audit", source_id="aud_1", fingerprint=seen,
    )  # fmt: skip
    scanned(tier, listing(newer))
    assert (one().status, one().fingerprint) == ("corrupt", seen)
    assert Finding.objects.get().resolved_at is None


def test_evidence_for_files_not_scanned_yet_counts_from_the_scan_that_sees_them(tier: Any) -> None:
    listed = shard_map(10)
    scanned(tier, listing(listed))
    newer = changed_shard(listed, 0, mtime_ns=listings.MTIME_NS + 1)
    seen = intake.sort_listing(listing(newer), "/ckpt").accepted[0].fingerprint
    now = evidence.add_evidence(
        placement=one(), rung="verified", source_kind="audit", source_id="aud_1", fingerprint=seen
    )
    assert not now and one().trust == "complete"
    scanned(tier, listing(newer))
    assert one().trust == "verified"


def test_what_a_successful_listing_does_not_find_is_missing(tier: Any) -> None:
    scanned(tier, listing(shard_map(10), shard_map(20)))
    scan = scanned(tier, listing(shard_map(20)))
    gone = Placement.objects.get(checkpoint__step=10)
    assert (gone.status, gone.trust, gone.resumable, scan.missing_count) == ("missing", "listed", False, 1)
    assert Transition.objects.filter(owner_id=gone.pk, old="complete", new="missing").count() == 1
    assert scanned(tier, listing(shard_map(20))).missing_count == 0, "it is told once"


def damaged(tier: Any) -> Placement:
    """A copy at step 10 in which an audit found damage, and a listing a strange file."""
    scanned(tier, listing(shard_map(10, findings=(finding(),))))
    row = one()
    evidence.mark_damage(
        placement=row, findings=[finding("digest_mismatch", "damage", "rank-00001.safetensors")],
        source_kind="audit", source_id="aud_1", fingerprint=row.fingerprint,
    )  # fmt: skip
    return row


def test_nothing_is_wrong_any_more_with_a_copy_that_is_gone(tier: Any) -> None:
    damaged(tier)
    scanned(tier, listing())
    assert not Finding.objects.filter(resolved_at=None).exists()
    assert set(Finding.objects.values_list("resolved_reason", flat=True)) == {"the copy is no longer there"}


def test_damage_is_back_when_the_very_files_are_back(tier: Any) -> None:
    damaged(tier)
    for _time in range(2):
        scanned(tier, listing())
        scanned(tier, listing(shard_map(10)))
        found = Finding.objects.get(code="digest_mismatch")
        assert (one().status, one().trust, found.resolved_at, found.resolved_reason) == (
            "corrupt",
            "complete",
            None,
            "",
        )
    scanned(tier, listing(shard_map(10)))
    assert one().status == "corrupt"


def test_damage_of_a_copy_that_was_gone_does_not_stick_to_other_files(tier: Any) -> None:
    damaged(tier)
    scanned(tier, listing())
    scanned(tier, listing(shard_map(10, mtime_ns=listings.MTIME_NS + 1)))
    assert (one().status, one().damaged_at) == ("complete", None)
    assert not Finding.objects.filter(resolved_at=None).exists()
    scanned(tier, listing())
    scanned(tier, listing(shard_map(10)))
    assert one().status == "corrupt" and one().damaged_at is not None, "the damaged files came back after all"


def test_a_missing_copy_that_returns_unchanged_has_its_trust_again(tier: Any) -> None:
    scanned(tier, listing(shard_map(10), shard_map(20)))
    row = Placement.objects.get(checkpoint__step=10)
    evidence.add_evidence(
        placement=row, rung="verified", source_kind="audit", source_id="aud_1", fingerprint=row.fingerprint
    )
    scanned(tier, listing(shard_map(20)))
    scanned(tier, listing(shard_map(10), shard_map(20)))
    row.refresh_from_db()
    assert (row.status, row.trust, row.resumable) == ("complete", "verified", True)


def test_a_root_that_is_suddenly_empty_is_reported_as_perhaps_unmounted(tier: Any) -> None:
    scanned(tier, listing(shard_map(10)))
    scan = scanned(tier, listing())
    assert scan.missing_count == 1
    assert "unmounted" in scan.findings[0]["detail"]


def test_a_runs_folder_that_is_suddenly_empty_beside_others_is_reported_as_perhaps_unmounted(tier: Any) -> None:
    scanned(tier, listing(shard_map(10), shard_map(20), shard_map(10, run="mounted"), shard_map(20, run="mounted")))
    scan = scanned(tier, listing(shard_map(20, run="mounted")))
    assert scan.missing_count == 3
    assert [(found["code"], found["path"]) for found in scan.findings] == [("listing_failed", "/ckpt/llama-70b")]
    assert "2 copies were" in scan.findings[0]["detail"] and "unmounted" in scan.findings[0]["detail"]
    lost = Placement.objects.get(path="/ckpt/llama-70b/step-10")
    assert lost.not_resumable_reasons == ["not there when last listed"]
    went = Transition.objects.get(owner_kind="placement", owner_id=lost.pk, new="missing")
    assert went.reason == f"not there when {scan.pk} listed /ckpt"
    assert scanned(tier, listing(shard_map(20, run="mounted"))).findings == []


def test_one_step_that_is_gone_raises_no_doubt_about_its_run(tier: Any) -> None:
    scanned(tier, listing(shard_map(10), shard_map(20)))
    assert scanned(tier, listing(shard_map(20))).findings == []


def test_paths_that_differ_in_case_only_are_different_places(tier: Any) -> None:
    scanned(tier, listing(shard_map(10, run="Llama"), shard_map(10, run="llama")))
    scanned(tier, listing(), root="/ckpt/llama")
    assert dict(Placement.objects.values_list("path", "status")) == {
        "/ckpt/Llama/step-10": "complete",
        "/ckpt/llama/step-10": "missing",
    }


def test_only_what_lies_inside_the_scanned_root_can_go_missing(tier: Any) -> None:
    scanned(tier, listing(shard_map(10), shard_map(10, run="llama-70b-b")))
    scanned(tier, listing(), root="/ckpt/llama-70b")
    assert dict(Placement.objects.values_list("path", "status")) == {
        "/ckpt/llama-70b/step-10": "missing",
        "/ckpt/llama-70b-b/step-10": "complete",
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"findings": (finding("permission_denied", path="/ckpt/llama-70b"),)},
        {"findings": (finding("listing_failed", path="llama-70b"),)},
        {"findings": (finding("link_broken", path="llama-70b"),)},
    ],
)
def test_a_place_that_could_not_be_looked_at_is_not_taken_for_gone(tier: Any, fields: dict[str, Any]) -> None:
    scanned(tier, listing(shard_map(10), shard_map(10, run="other")))
    scan = scanned(tier, listing(shard_map(10, run="other"), **fields))
    assert scan.missing_count == 0
    assert set(Placement.objects.values_list("status", flat=True)) == {"complete"}


def test_a_run_folder_that_may_not_be_read_hides_its_checkpoints_and_loses_none(tier: Any) -> None:
    scanned(tier, listing(shard_map(10)))
    closed = shard_map(None, path="/ckpt/llama-70b", status=Status.UNREADABLE, shards=0)
    scan = scanned(tier, listing(closed))
    assert (scan.missing_count, one().status) == (0, "complete")
    assert scan.findings[0]["code"] == "step_mismatch"


def test_an_unreadable_checkpoint_keeps_what_was_known_of_its_files(tier: Any) -> None:
    scanned(tier, listing(shard_map(10)))
    row = one()
    evidence.add_evidence(
        placement=row, rung="verified", source_kind="audit", source_id="aud_1", fingerprint=row.fingerprint
    )
    denied = shard_map(
        10, status=Status.UNREADABLE, shards=0, findings=(finding("permission_denied", path="/ckpt/llama-70b/step-10"),)
    )
    scanned(tier, listing(denied))
    now = one()
    assert (now.status, now.resumable, now.fingerprint) == ("unreadable", False, row.fingerprint)
    assert now.shards.count() == 4 and TrustEvidence.objects.get().voided_at is None
    scanned(tier, listing(shard_map(10)))
    assert (one().status, one().trust) == ("complete", "verified")


def test_a_checkpoint_without_a_step_is_kept_out_with_a_finding(tier: Any) -> None:
    scan = scanned(tier, listing(shard_map(None, path="/ckpt/weights.safetensors")))
    assert not Placement.objects.exists()
    assert scan.findings[0]["path"] == "/ckpt/weights.safetensors" and "step" in scan.findings[0]["detail"]


@pytest.mark.parametrize("path", ["/elsewhere/step-1", "/ckpt/../etc/step-1", "/ckptx/step-1", "/ckpt/a\0b/step-1"])
def test_a_path_outside_the_root_is_refused_whatever_the_agent_says(tier: Any, path: str) -> None:
    scan = sort_listing(listing(shard_map(1, path=path)), "/ckpt")
    assert not scan.accepted and scan.left_out[0].code == "path_unsafe"


def test_hostile_numbers_and_texts_reach_no_column(tier: Any) -> None:
    hostile = shard_map(
        10, world_size=2**40, format="f" * 100,
        findings=(finding(path="a\0b", tensor="t\0" * 600, begin_byte=2**70, end_byte=-(2**70)),),
    )  # fmt: skip
    hostile = changed_shard(hostile, 0, promised_bytes=2**80, rank=2**40)
    scan = scanned(tier, listing(hostile, shard_map(2**70), shard_map(-3), findings=(finding(path="n\0ul"),)))
    assert scan.state == "finished" and scan.checkpoint_count == 1
    found = Finding.objects.get()
    assert (found.begin_byte, found.end_byte, len(found.tensor)) == (None, None, 512)
    assert Shard.objects.filter(promised_bytes=None, rank=None).count() == 1


def test_findings_open_once_and_are_resolved_when_they_vanish(tier: Any) -> None:
    orphan = finding(path="left.safetensors")
    scanned(tier, listing(shard_map(10, findings=(orphan, finding("rng_missing")))))
    scanned(tier, listing(shard_map(10, findings=(orphan,))))
    scanned(tier, listing(shard_map(10, findings=(orphan,))))
    still_open = {found.code: found.resolved_at is None for found in Finding.objects.all()}
    assert still_open == {"shard_orphaned": True, "rng_missing": False}
    assert Finding.objects.count() == 2


def test_a_flood_of_findings_is_bounded_and_counted(tier: Any) -> None:
    flood = tuple(finding("shard_missing", "damage", f"rank-{n}") for n in range(3000))
    scanned(tier, listing(shard_map(10, findings=flood, status=Status.INCOMPLETE)))
    assert Finding.objects.count() == 500
    assert Finding.objects.filter(detail__contains="2501 more findings were left out").count() == 1


def test_a_manifest_beside_the_data_gives_the_seal_back(tier: Any) -> None:
    listed = shard_map(10)
    body = listing(listed, manifests={listed.path: manifest_of(listed, origin="writer")})
    scanned(tier, body)
    row = one()
    assert (row.trust, row.manifest.origin, row.manifest.shard_count) == ("sealed", "writer", 4)  # type: ignore[union-attr]
    assert row.trust_at is not None and row.trust_at.year == 2026 and row.trust_at.month == 1
    scanned(tier, body)
    assert TrustEvidence.objects.count() == Manifest.objects.count() == 1


def test_a_manifest_of_other_files_gives_no_seal(tier: Any) -> None:
    listed = shard_map(10)
    changed = changed_shard(listed, 1, mtime_ns=listings.MTIME_NS + 1)
    scanned(tier, listing(changed, manifests={listed.path: manifest_of(listed)}))
    assert (one().trust, one().manifest is not None) == ("complete", True), "it can still be verified against"
    assert Finding.objects.get().code == "changed_since_sealing"
    assert not TrustEvidence.objects.exists()


def test_a_step_saved_again_is_not_measured_by_the_old_seal(tier: Any) -> None:
    listed = shard_map(10)
    body = {"manifests": {listed.path: manifest_of(listed)}}
    scanned(tier, listing(listed, **body))
    scanned(tier, listing(shard_map(10, mtime_ns=listings.MTIME_NS + 10**9), **body))
    assert one().manifest is None and one().trust == "complete"
    assert not Finding.objects.exists()


def test_a_manifest_that_came_with_a_copied_folder_is_ignored(tier: Any) -> None:
    ten, twenty = shard_map(10), shard_map(20)
    manifest = manifest_of(ten)
    scanned(tier, listing(ten, twenty, manifests={ten.path: manifest, twenty.path: manifest}))
    assert dict(Placement.objects.values_list("checkpoint__step", "trust")) == {10: "sealed", 20: "complete"}


def test_a_manifest_that_contradicts_itself_is_reported_and_not_kept(tier: Any) -> None:
    listed = shard_map(10)
    forged = msgspec.structs.replace(manifest_of(listed), root_xxh3_128="f" * 32)
    scanned(tier, listing(listed, manifests={listed.path: forged}))
    assert (one().trust, one().manifest, Manifest.objects.count()) == ("complete", None, 0)
    assert Finding.objects.get().code == "metadata_unreadable"


def test_another_step_at_the_same_path_is_another_checkpoint(tier: Any) -> None:
    scanned(tier, listing(shard_map(10, path="/ckpt/llama-70b/latest.safetensors")))
    scanned(tier, listing(shard_map(30, path="/ckpt/llama-70b/latest.safetensors", mtime_ns=listings.MTIME_NS + 9)))
    assert (one().checkpoint.step, Checkpoint.objects.count()) == (30, 2)


def test_a_checkpoint_describes_itself_by_its_first_complete_copy(tier: Any) -> None:
    scanned(tier, listing(shard_map(10, shards=2, status=Status.IN_PROGRESS)))
    scanned(tier, listing(shard_map(10, mtime_ns=listings.MTIME_NS + 10**9)))
    checkpoint = Checkpoint.objects.get()
    assert (checkpoint.total_bytes, checkpoint.world_size) == (4000, 4)
    other = factories.tier(tier.cluster, name="nas", uri="/nas")
    scanned(other, listing(shard_map(10, root="/nas", mtime_ns=listings.MTIME_NS + 10**12), root="/nas"))
    assert Checkpoint.objects.get().saved_at == checkpoint.saved_at, "a copy made later is no later save"
    assert Placement.objects.filter(checkpoint=checkpoint).count() == 2


def test_pointers_follow_the_disk(tier: Any) -> None:
    pointer = Pointer(path="/ckpt/llama-70b/latest", step=10, binding=True)
    stray = Pointer(path="/ckpt/nobody/latest", step=1)
    scanned(tier, listing(shard_map(10), pointers=(pointer, stray)))
    assert list(RunPointer.objects.values_list("run__name", "step", "binding")) == [("llama-70b", 10, True)]
    scanned(tier, listing(shard_map(10), pointers=(msgspec.structs.replace(pointer, step=20),)))
    assert RunPointer.objects.get().step == 20
    scanned(tier, listing(shard_map(10)))
    assert not RunPointer.objects.exists()


def test_what_a_pointer_names_and_why_it_cannot_be_followed_is_kept_for_the_decision(tier: Any) -> None:
    dangling = Pointer(path="/ckpt/llama-70b/latest", step=30, target="step-30", problem="step-30 is not\0there" * 99)
    scanned(tier, listing(shard_map(10), shard_map(20), pointers=(dangling,)))
    row = RunPointer.objects.get()
    assert row.target == "step-30" and row.problem is not None and len(row.problem) == 500 and "\0" not in row.problem
    choice = resume.resume_decision(row.run, ResumeRequest()).pointer_choice
    assert choice is not None and (choice.step, choice.is_same) == (30, False)
    assert "latest cannot be followed: step-30 is not" in choice.reason


def test_the_time_of_most_files_is_kept_beside_that_of_the_newest(tier: Any) -> None:
    scanned(tier, listing(changed_shard(shard_map(10), 0, mtime_ns=MTIME_NS + 10**12)))
    row = Placement.objects.get()
    assert row.middle_mtime_at is not None and row.middle_mtime_at.timestamp() == MTIME_NS / 1e9


def test_an_older_listing_that_arrives_late_changes_nothing(tier: Any) -> None:
    scan = scanned(tier, listing(shard_map(10), shard_map(20)))
    earlier = Placement.objects.first().last_seen_at - timedelta(seconds=5)  # type: ignore[union-attr]
    late = sort_listing(listing(shard_map(10, shards=2, status=Status.IN_PROGRESS)), "/ckpt")
    ingest(scan, late, earlier)
    assert (scan.changes.exclude(kind="appeared").count(), mark_missing(scan, [], earlier)) == (0, [])
    assert set(Placement.objects.values_list("status", flat=True)) == {"complete"}


def test_queries_do_not_grow_with_the_listing(tier: Any) -> None:
    def cost(count: int, run: str) -> tuple[int, int]:
        bodies = [sort_listing(listing(*(shard_map(n, run=run, shards=2) for n in range(count))), "/ckpt")] * 2
        scan = InventoryScan.objects.create(
            tier=tier, agent=tier.cluster.nodes.get().agent, root="/ckpt", state="finished", created_at=timezone.now()
        )
        taken = []
        for body in bodies:
            with CaptureQueriesContext(connection) as queries:
                ingest(scan, body, timezone.now())
            taken.append(len(queries))
        return taken[0], taken[1]

    small, large = cost(3, "a"), cost(30, "b")
    assert large == small, f"{small} queries for 3 checkpoints, {large} for 30"
    assert small[0] <= 32 and small[1] <= 18


@pytest.mark.django_db(transaction=True)
def test_racing_listings_of_two_tiers_make_one_run_and_one_checkpoint(tier: Any) -> None:
    other = factories.tier(tier.cluster, name="nas", uri="/nas")
    agent = tier.cluster.nodes.get().agent
    barrier = threading.Barrier(2)
    failures: list[BaseException] = []

    def take(which: Any, root: str) -> None:
        try:
            scan = InventoryScan.objects.create(
                tier=which, agent=agent, root=root, state="finished", created_at=timezone.now()
            )
            found = sort_listing(listing(*(shard_map(n, root=root) for n in range(40)), root=root), root)
            barrier.wait(10)
            ingest(scan, found, timezone.now())
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=take, args=args) for args in ((tier, "/ckpt"), (other, "/nas"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert (TrainingRun.objects.count(), Checkpoint.objects.count(), Placement.objects.count()) == (1, 40, 80)


@pytest.mark.django_db(transaction=True)
def test_racing_listings_of_one_root_record_each_thing_once(tier: Any) -> None:
    agent = tier.cluster.nodes.get().agent
    barrier = threading.Barrier(3)
    failures: list[BaseException] = []
    body = listing(*(shard_map(n, findings=(finding(),)) for n in range(20)))

    def take() -> None:
        try:
            scan = InventoryScan.objects.create(
                tier=tier, agent=agent, root="/ckpt", state="finished", created_at=timezone.now()
            )
            barrier.wait(10)
            ingest(scan, sort_listing(body, "/ckpt"), timezone.now())
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert (Placement.objects.count(), Shard.objects.count(), Finding.objects.count()) == (20, 80, 20)


def test_batches_are_bounded_by_checkpoints_and_by_shards() -> None:
    accepted = sort_listing(listing(*(shard_map(n, shards=1) for n in range(600))), "/ckpt").accepted
    assert [len(batch) for batch in intake.batches(accepted)] == [250, 250, 100]
    wide = dataclasses.replace(accepted[0], entries=accepted[0].entries * 15_000)
    assert [len(batch) for batch in intake.batches([wide, wide, accepted[1]])] == [1, 2]


def test_the_files_of_a_batch_that_was_taken_in_are_forgotten() -> None:
    accepted = sort_listing(listing(*(shard_map(n, shards=1) for n in range(300))), "/ckpt").accepted
    for batch in intake.batches(accepted):
        assert all(item.shards for item in batch)
        assert sum("shards" in vars(item) for item in accepted) == len(batch)
    assert not any("shards" in vars(item) for item in accepted)


def test_what_is_wrong_with_a_checkpoint_without_a_step_keeps_its_code_and_severity_and_is_counted(tier: Any) -> None:
    unsafe = finding("metadata_unsafe", "damage", path="")
    gone = finding("shard_missing", "damage", path="model.bin", begin_byte=3, end_byte=9)
    loose = shard_map(None, path="/ckpt/final.pt", findings=(unsafe,))
    model = shard_map(None, path="/ckpt/model", status=Status.INCOMPLETE, findings=(finding(path="y"), gone))
    scan = scanned(tier, listing(loose, model, shard_map(10)))
    assert [(row["code"], row["severity"], row["path"]) for row in scan.findings] == [
        ("metadata_unsafe", "damage", "/ckpt/final.pt"),
        ("shard_missing", "damage", "/ckpt/model/model.bin"),
        ("step_mismatch", "warning", "/ckpt/final.pt"),
        ("shard_orphaned", "warning", "/ckpt/model/y"),
        ("step_mismatch", "warning", "/ckpt/model"),
    ]
    assert (scan.damage_count, scan.stepless_count, scan.checkpoint_count) == (2, 2, 1)
    assert (scan.findings[1]["begin_byte"], scan.findings[1]["cure"]) == (3, gone.cure)


def test_damage_is_counted_in_full_where_findings_are_left_out(tier: Any) -> None:
    many = tuple(finding("pointer_dangling", "damage", path=f"/ckpt/{number}") for number in range(600))
    scan = scanned(tier, listing(findings=(finding("shard_orphaned"), *many)))
    assert (len(scan.findings), scan.damage_count) == (500, 600)


def test_one_step_in_two_formats_is_two_copies_each_with_its_own_layout(tier: Any) -> None:
    saved = shard_map(10, format="deepspeed", must_match=("world_size",))
    universal = shard_map(
        10, format="deepspeed_universal", path="/ckpt/llama-70b/step-10_universal", shards=2, world_size=None
    )
    scanned(tier, listing(saved, universal))
    told = {row.format: (row.world_size, row.must_match, row.total_bytes) for row in Placement.objects.all()}
    assert told == {"deepspeed": (4, ["world_size"], 4000), "deepspeed_universal": (None, [], 2000)}
    run = TrainingRun.objects.get()
    decision = resume.resume_decision(run, ResumeRequest(format="deepspeed_universal"))
    assert decision.path == universal.path
    assert resume.resume_decision(run, ResumeRequest(world_size=9)).path == universal.path


def test_copies_in_two_formats_on_a_second_tier_are_each_compared_with_their_like(tier: Any) -> None:
    colder = factories.tier(tier.cluster, "nas", "/ckpt/nas", speed_order=1)

    def both(root: str) -> list[Any]:
        formats = (("deepspeed", "step-10"), ("deepspeed_universal", "step-10-universal"))
        return [shard_map(10, format=form, path=f"{root}/llama-70b/{name}") for form, name in formats]

    scanned(tier, listing(*both("/ckpt")))
    scanned(colder, listing(*both("/ckpt/nas"), root="/ckpt/nas"))
    assert Placement.objects.filter(resumable=True).count() == 4 and not Finding.objects.exists()
