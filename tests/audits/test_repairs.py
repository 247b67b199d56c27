"""From damage that an audit finds to its repair: corrupt, skipped, alerted, rewritten, proven, whatever is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import pytest
from django.utils import timezone
from muster_agent.decide.model import ResumeRequest
from muster_agent.formats.codes import finding
from muster_agent.formats.places import bucket_and_prefix
from muster_agent.jobs.checkpoint_place import place_at
from muster_agent.jobs.failpoints import REPAIR_POINTS

from apps.accounts.models import ActivityEntry
from apps.alerts import services as alerts
from apps.alerts.models import Alert
from apps.audits import policies, repairing, repairs, rounds
from apps.audits.models import Repair
from apps.checkpoints import resume
from apps.checkpoints.evidence import mark_damage
from apps.checkpoints.manifests import load_manifest, store_manifest
from apps.checkpoints.models import Finding, Placement, PlacementHold
from apps.core.errors import Conflict
from apps.core.models import WorkCursor
from apps.transfers import stores
from apps.transfers.services import request_transfer
from tests.agent.jobs.test_verify_job import overwrite
from tests.audits.conftest import Tiers
from tests.audits.test_rounds import ask, policy
from tests.servers.s3 import S3Server
from tests.transfers.conftest import drive as drive_transfer
from tests.transfers.test_crashes import in_a_worker
from workers.tasks.move import audit_slice

BIG = {"rank_bytes": 9_000_000}


def drive(repair: Repair, slices: int = 20) -> Repair:
    """Slice after slice, as the workers take them, until it has ended or waits."""
    for _ in range(slices):
        repair.refresh_from_db()
        if repair.finished_at is not None or repair.problem_code:
            return repair
        repairing.work(repair.pk)
    raise AssertionError(f"it is still {repair.state}")


def audited(tiers: Tiers, step: int) -> Placement:
    audit_slice(ask(tiers, step).pk)
    return tiers.placement(step)


def damaged(tiers: Tiers) -> tuple[Placement, bytes]:
    """Step 20 on two tiers, verified on both, then damaged on the hot one; an older step is good."""
    tiers.save(10)
    tiers.save(20, **BIG)
    drive_transfer(request_transfer(placement=tiers.placement(20), kind="copy", target_tier=tiers.cold, actor="olga"))
    shard = shard_of(tiers)
    good = shard.read_bytes()
    overwrite(shard, 8_500_000, b"\x01\x02\x03")
    return audited(tiers, 20), good


def shard_of(tiers: Tiers) -> Path:
    return sorted(tiers.path(20).glob("*.safetensors"))[0]


@pytest.mark.django_db
def test_damage_is_skipped_alerted_repaired_and_proven(tiers: Tiers) -> None:
    copy, good = damaged(tiers)
    assert copy.status == "corrupt"
    decision = resume.resume_decision(tiers.run, ResumeRequest())
    assert (decision.step, decision.tier) == (20, "nas") and str(tiers.path(20)) in [
        one.path for one in decision.skipped
    ]
    alerts.evaluate()
    alert = Alert.objects.get(rule="damage", state="open")
    assert "bytes" in alert.summary and alert.subject_id == copy.checkpoint_id
    repair = drive(repairs.request_repair(placement=copy, actor="olga"))
    entry = ActivityEntry.objects.get(action="repair.start")
    assert (entry.actor, entry.target_id, entry.cluster_id) == ("olga", repair.pk, copy.tier.cluster_id)
    assert repair.state == "done", repair.problem
    assert shard_of(tiers).read_bytes() == good
    assert repair.chunk_count == 1 and 0 < repair.written_bytes <= 4 * 1024 * 1024
    copy = tiers.placement(20)
    assert (copy.status, copy.trust, copy.damaged_at) == ("complete", "verified", None)
    assert not Finding.objects.filter(severity="damage", resolved_at=None).exists()
    alerts.evaluate()
    alert.refresh_from_db()
    assert alert.state == "resolved" and not WorkCursor.objects.exists()
    assert not PlacementHold.objects.filter(source_kind="repair", released_at=None).exists()
    tiers.scan()
    assert tiers.placement(20).trust == "verified", "the next scan finds the files that were proven"


@pytest.mark.django_db
def test_a_policy_repairs_by_itself_where_it_says_so(tiers: Tiers) -> None:
    tiers.save(20, **BIG)
    drive_transfer(request_transfer(placement=tiers.placement(20), kind="copy", target_tier=tiers.cold, actor="olga"))
    overwrite(shard_of(tiers), 8_500_000, b"\x01\x02\x03")
    nightly = policy(tiers, repairs=True, tier=tiers.hot)
    row = rounds.run_policy(policy=nightly, actor="olga")
    audit_slice(row.audits.get().pk)
    repair = Repair.objects.get()
    assert repair.requested_by == "policy nightly" and repair.audit == row.audits.get()
    assert drive(repair).state == "done" and tiers.placement(20).trust == "verified"
    policies.update_policy(policy=nightly, changes={"repairs": False}, actor="olga")


@pytest.mark.django_db
def test_without_a_proven_copy_nothing_is_repaired_and_the_reason_is_said(tiers: Tiers) -> None:
    tiers.save(20)
    shard = shard_of(tiers)
    overwrite(shard, 1000, b"\x01\x02\x03")
    copy = audited(tiers, 20)
    with pytest.raises(Conflict, match="No other copy of this step"):
        repairs.request_repair(placement=copy, actor="olga")
    tiers.save(10)
    with pytest.raises(Conflict, match="nothing to repair"):
        repairs.request_repair(placement=tiers.placement(10), actor="olga")


@pytest.mark.django_db
def test_a_source_that_rotted_meanwhile_is_never_written_from(tiers: Tiers) -> None:
    copy, _good = damaged(tiers)
    before = shard_of(tiers).read_bytes()
    overwrite(tiers.cold_path(20) / shard_of(tiers).name, 8_600_000, b"\x09\x09")
    repair = drive(repairs.request_repair(placement=copy, actor="olga"))
    assert (repair.state, repair.problem_code) == ("failed", "source_damaged")
    assert shard_of(tiers).read_bytes() == before and tiers.placement(20).status == "corrupt"


@pytest.mark.django_db
def test_a_cancelled_repair_writes_nothing_more(tiers: Tiers) -> None:
    copy, _good = damaged(tiers)
    before = shard_of(tiers).read_bytes()
    repair = repairs.request_repair(placement=copy, actor="olga")
    with pytest.raises(Conflict, match="under way"):
        repairs.request_repair(placement=copy, actor="olga")
    repairs.cancel_repair(repair=repair, actor="olga")
    repairing.work(repair.pk)
    assert shard_of(tiers).read_bytes() == before
    with pytest.raises(Conflict, match="ended already"):
        repairs.cancel_repair(repair=repair, actor="olga")


def require_never_worse(now: bytes, bad: bytes, good: bytes) -> None:
    """Every byte is either as it was found or as it was sealed, and the file is no longer than it should be."""
    assert len(now) <= max(len(bad), len(good))
    assert all(
        one in (bad[at : at + 1], good[at : at + 1]) for at in range(0, len(now), 4093) for one in (now[at : at + 1],)
    )


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
@pytest.mark.parametrize("point", REPAIR_POINTS)
def test_a_worker_killed_at_a_boundary_leaves_nothing_worse_and_the_next_one_ends_it(
    tiers: Tiers, point: str, damage: str
) -> None:
    copy, good = damaged(tiers)
    shard = shard_of(tiers)
    at = shard.stat()
    if damage == "cut":
        shard.write_bytes(good[:5_000_000])
    if damage == "gone":
        shard.unlink()
    else:
        os.utime(shard, ns=(at.st_atime_ns, at.st_mtime_ns))
    bad = shard.read_bytes() if shard.exists() else b""
    repair = repairs.request_repair(placement=copy, actor="olga")
    assert in_a_worker(lambda: repairing.work(repair.pk), failpoint=point) == signal.SIGKILL
    require_never_worse(shard.read_bytes() if shard.exists() else b"", bad, good)
    assert (tiers.cold_path(20) / shard.name).read_bytes() == good
    Repair.objects.update(lease_expires_at=timezone.now())
    assert drive(repair).state == "done", repair.problem
    assert shard.read_bytes() == good and tiers.placement(20).trust == "verified"


# -- in a bucket -------------------------------------------------------------------------------------------------------
def rotten_object(tiers: Tiers, server: S3Server) -> tuple[Placement, str, bytes]:
    tiers.save(20, rank_bytes=30_000_000)
    drive_transfer(request_transfer(placement=tiers.placement(20), kind="copy", target_tier=tiers.cold, actor="olga"))
    key = next(key for key in sorted(server.keys("cold/")) if key.endswith("00000-of-00002.safetensors"))
    good = server.get(key)
    server.put(key, good[:17_000_000] + b"\x01\x02\x03" + good[17_000_003:])
    copy = tiers.placement(20, tiers.cold)
    _seal_as_it_is_dated(copy)
    found = finding("digest_mismatch", path=key.rpartition("/")[2], detail="it rotted")
    mark_damage(placement=copy, findings=[found], source_kind="audit", source_id="aud_x", fingerprint=copy.fingerprint)
    return tiers.placement(20, tiers.cold), key, good


def _seal_as_it_is_dated(copy: Placement) -> None:
    """An object cannot be made to rot under its time here, so the seal gets the time of the rotten one."""
    assert copy.manifest is not None
    sealed, place = load_manifest(copy.manifest), place_at(copy.path, stores.store_for(copy.path, copy.tier.store))
    times = {one.path: one.mtime_ns for one in place.stat_all([shard.path for shard in sealed.shards])}
    shards = tuple(msgspec.structs.replace(shard, mtime_ns=times[shard.path]) for shard in sealed.shards)
    renewed = store_manifest(checkpoint=copy.checkpoint, manifest=msgspec.structs.replace(sealed, shards=shards))
    Placement.objects.filter(pk=copy.pk).update(manifest=renewed)


@pytest.mark.django_db
def test_a_rotten_object_is_made_anew_of_its_good_ranges_and_good_chunks(
    bucket_tiers: Tiers, s3_server: S3Server
) -> None:
    copy, key, good = rotten_object(bucket_tiers, s3_server)
    repair = drive(repairs.request_repair(placement=copy, actor="olga"))
    assert repair.state == "done", repair.problem
    assert s3_server.get(key) == good and repair.written_bytes == 8 * 1024 * 1024
    assert bucket_tiers.placement(20, bucket_tiers.cold).trust == "verified"
    bucket, prefix = bucket_and_prefix(s3_server.place)
    store = stores.store_for(s3_server.place, copy.tier.store)
    assert store is not None and store.unfinished(bucket, prefix) == []


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("point", REPAIR_POINTS)
def test_a_worker_killed_over_an_object_leaves_the_old_or_the_good_one_and_no_parts(
    bucket_tiers: Tiers, s3_server: S3Server, point: str
) -> None:
    copy, key, good = rotten_object(bucket_tiers, s3_server)
    bad = s3_server.get(key)
    repair = repairs.request_repair(placement=copy, actor="olga")
    assert in_a_worker(lambda: repairing.work(repair.pk), failpoint=point) == signal.SIGKILL
    assert s3_server.get(key) in (bad, good)
    Repair.objects.update(lease_expires_at=timezone.now())
    assert drive(repair).state == "done", repair.problem
    assert s3_server.get(key) == good
    bucket, prefix = bucket_and_prefix(s3_server.place)
    store = stores.store_for(s3_server.place, copy.tier.store)
    assert store is not None and store.unfinished(bucket, prefix) == []
