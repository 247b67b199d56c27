"""Transfers as workers carry them on: real folders, real rows, trouble of every kind."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from muster_agent.decide.keeping import COMPLETE
from muster_agent.jobs import copy_posix
from muster_agent.manifest.beside import read_beside

from apps.alerts.models import Alert
from apps.alerts.services import evaluate
from apps.checkpoints import placements
from apps.checkpoints.models import Finding, Placement, RunAttempt, RunPointer
from apps.core.errors import Conflict, InvalidInput
from apps.core.models import Transition
from apps.transfers import marks, moving, services
from apps.transfers.models import Transfer, TransferCursor
from apps.transfers.services import request_transfer
from tests.transfers.conftest import Tiers, drive

pytestmark = pytest.mark.django_db


def move(tiers: Tiers, step: int, **wishes: Any) -> Transfer:
    wanted = {"kind": "move", "target_tier": tiers.cold, "actor": "olga", **wishes}
    return request_transfer(placement=tiers.placement(step), **wanted)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".muster")}


def states(transfer: Transfer) -> list[str]:
    rows = Transition.objects.filter(owner_kind="transfer", owner_id=transfer.pk).order_by("pk")
    return [row.new for row in rows]


def test_a_move_ends_with_one_verified_copy_on_the_colder_tier(tiers: Tiers) -> None:
    tiers.save(10, 20, 30)
    before = bytes_of(tiers.path(10))
    done = drive(move(tiers, 10))
    assert (done.state, done.problem) == ("done", "")
    assert states(done) == ["planned", "copying", "proving", "switching", "retiring", "done"]
    assert not tiers.path(10).exists() and bytes_of(tiers.cold_path(10)) == before
    made = tiers.placement(10, tiers.cold)
    assert (made.status, made.trust, made.pk) == (COMPLETE, "verified", done.target_id)
    gone = tiers.placement(10)
    assert (gone.status, gone.rotated_away) == ("missing", True)
    assert (done.copied_bytes, done.proven_bytes) == (done.total_bytes, done.total_bytes)
    assert done.proof_detail["by"] == "read_back" and done.is_clean
    assert not TransferCursor.objects.exists()


def test_a_scan_of_both_tiers_changes_nothing_of_what_a_move_recorded(tiers: Tiers) -> None:
    tiers.save(10, 20)
    drive(move(tiers, 10))
    recorded = Placement.objects.get(tier=tiers.cold)
    tiers.scan()
    tiers.scan(tiers.cold)
    seen = Placement.objects.get(tier=tiers.cold)
    assert (seen.trust, seen.fingerprint, seen.manifest_id) == ("verified", recorded.fingerprint, recorded.manifest_id)
    assert seen.checkpoint.run == tiers.run
    assert tiers.placement(10).status == "missing"


def test_an_unsealed_source_is_sealed_by_being_copied(tiers: Tiers) -> None:
    tiers.save(10, 20, sealed=False)
    done = drive(move(tiers, 10, kind="copy"))
    assert done.state == "done" and tiers.path(10).exists()
    source, made = tiers.placement(10), tiers.placement(10, tiers.cold)
    assert source.manifest_id == made.manifest_id is not None
    assert source.evidence.filter(rung="sealed", source_kind="transfer").exists()
    there = read_beside(made.path)
    assert there is not None and there.root_xxh3_128 == made.manifest.root_xxh3_128  # type: ignore[union-attr]


def test_staging_brings_a_cold_checkpoint_up_and_keeps_the_cold_one(tiers: Tiers) -> None:
    tiers.save(10, 20)
    drive(move(tiers, 10))
    cold = tiers.placement(10, tiers.cold)
    done = drive(request_transfer(placement=cold, kind="stage", target_tier=tiers.hot, actor="olga"))
    assert done.state == "done" and tiers.path(10).is_dir() and tiers.cold_path(10).is_dir()
    assert tiers.placement(10).trust == "verified"


def test_a_copy_that_is_verified_below_is_only_removed(tiers: Tiers) -> None:
    tiers.save(10, 20)
    drive(move(tiers, 10, kind="copy"))
    done = drive(move(tiers, 10, kind="retire", target_tier=None))
    assert (done.state, states(done)) == ("done", ["planned", "retiring", "done"])
    assert not tiers.path(10).exists() and tiers.cold_path(10).is_dir()


# -- what keeps the source ---------------------------------------------------------------------------------------------
def pin(tiers: Tiers) -> None:
    marks.pin(checkpoint=tiers.placement(10).checkpoint, reason="paper", actor="olga")


def hold(tiers: Tiers) -> None:
    placements.hold(placement=tiers.placement(10), source_kind="drill", source_id="drl_1")


def point(tiers: Tiers) -> None:
    RunPointer.objects.create(
        run=tiers.run, tier=tiers.hot, path=str(tiers.path(10).parent / "latest"), step=10, seen_at=timezone.now()
    )


def point_unreadably(tiers: Tiers) -> None:
    path = str(tiers.path(10).parent / "latest")
    RunPointer.objects.create(run=tiers.run, tier=tiers.hot, path=path, problem="is empty", seen_at=timezone.now())


def train(tiers: Tiers) -> None:
    now = timezone.now()
    RunAttempt.objects.create(run=tiers.run, launch_id="j1", resumed_from_step=10, started_at=now, last_report_at=now)


def spoil_colder(tiers: Tiers) -> None:
    Placement.objects.filter(tier=tiers.cold).update(status="corrupt")


def unverify_newer(tiers: Tiers) -> None:
    Placement.objects.filter(checkpoint__step=20).update(trust="sealed")


def remove_colder(tiers: Tiers) -> None:
    (tiers.cold_path(10) / "checkpoint.json").unlink()


def rewrite_colder(tiers: Tiers) -> None:
    os.utime(tiers.cold_path(10) / "checkpoint.json", ns=(7, 7))


def before_the_removal(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    real = moving.removal_of

    def removal_of(*args: Any) -> Any:
        change()
        return real(*args)

    monkeypatch.setattr(moving, "removal_of", removal_of)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (pin, "pinned (olga: paper)"),
        (hold, "needed by drill drl_1"),
        (point, "latest names it"),
        (point_unreadably, "cannot be read, so it may name this one"),
        (train, "running job j1"),
        (spoil_colder, "its colder copy on"),
        (unverify_newer, "newest verified"),
        (remove_colder, "lacks checkpoint.json"),
        (rewrite_colder, "has another checkpoint.json"),
    ],
)
def test_every_rule_is_asked_again_at_the_last_moment(
    tiers: Tiers, change: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change comes when the copy has been made and proven already."""
    tiers.save(10, 20)
    transfer = move(tiers, 10)
    before_the_removal(monkeypatch, lambda: change(tiers))
    done = drive(transfer)
    assert (done.state, done.problem_code) == ("done", "source_stays"), done.problem
    assert told in done.problem
    assert len(bytes_of(tiers.path(10))) == 3 and tiers.placement(10).status == COMPLETE


def test_a_file_that_appears_in_the_source_keeps_it(tiers: Tiers, monkeypatch: pytest.MonkeyPatch) -> None:
    tiers.save(10, 20)
    transfer = move(tiers, 10)
    before_the_removal(monkeypatch, lambda: (tiers.path(10) / "late").write_text("x"))
    done = drive(transfer)
    assert (done.state, done.problem_code) == ("failed", "source_changed")
    assert (tiers.path(10) / "late").exists() and tiers.cold_path(10).is_dir()


def test_what_the_colder_copy_lacks_is_not_removed_with_the_rest(tiers: Tiers) -> None:
    tiers.save(10, 20)
    drive(move(tiers, 10, kind="copy"))
    (tiers.path(10) / "notes.txt").write_text("why")
    done = drive(move(tiers, 10, kind="retire", target_tier=None))
    assert done.state == "cancelled" and "lacks notes.txt" in done.problem
    assert (tiers.path(10) / "notes.txt").exists()


# -- trouble -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, "no_space"), (errno.EDQUOT, "quota"), (errno.EROFS, "read_only")]
)
def test_trouble_of_the_target_pauses_it_and_it_goes_on_by_itself(
    tiers: Tiers, number: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers.save(10, 20)
    transfer = move(tiers, 10)

    def full(*_args: Any) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken:
        broken.setattr(copy_posix.os, "pwrite", full)
        move_slice_once(transfer)
    transfer.refresh_from_db()
    assert (transfer.state, transfer.problem_code, transfer.resume_to) == ("paused", code, "copying")
    assert transfer.next_attempt_at is not None and transfer.attempts == 1
    assert transfer.pk not in moving.due()
    Transfer.objects.update(next_attempt_at=timezone.now())
    assert moving.due() == [transfer.pk]
    move_slice_once(transfer)
    assert drive(transfer).state == "done"


def move_slice_once(transfer: Transfer) -> None:
    moving.work(transfer.pk)


def test_a_vanishing_mount_pauses_it_and_nothing_is_written_into_the_mount_point(tiers: Tiers) -> None:
    tiers.save(10, 20)
    transfer = move(tiers, 10)
    away = Path(tiers.cold.uri).rename(Path(tiers.cold.uri).with_name("away"))
    move_slice_once(transfer)
    transfer.refresh_from_db()
    assert (transfer.state, transfer.problem_code) == ("paused", "target_unreachable")
    assert not Path(tiers.cold.uri).exists()
    away.rename(tiers.cold.uri)
    services.resume(transfer=transfer, actor="olga")
    assert drive(transfer).state == "done"


def test_a_source_whose_mount_is_gone_is_not_taken_for_removed(tiers: Tiers) -> None:
    tiers.save(10, 20)
    drive(move(tiers, 10, kind="copy"))
    transfer = move(tiers, 10, kind="retire", target_tier=None)
    away = Path(tiers.hot.uri).rename(Path(tiers.hot.uri).with_name("away"))
    move_slice_once(transfer)
    transfer.refresh_from_db()
    assert (transfer.state, transfer.problem_code) == ("paused", "source_unreachable")
    assert tiers.placement(10).status == COMPLETE
    away.rename(tiers.hot.uri)
    services.resume(transfer=transfer, actor="olga")
    assert drive(transfer).state == "done" and tiers.placement(10).status == "missing"


def test_damage_met_on_the_way_marks_the_source_and_leaves_nothing_behind(tiers: Tiers) -> None:
    tiers.save(10, 20)
    shard = next(tiers.path(10).glob("*.safetensors"))
    at = shard.stat().st_mtime_ns
    data = bytearray(shard.read_bytes())
    data[-9] ^= 4
    shard.write_bytes(data)
    os.utime(shard, ns=(at, at))
    failed = drive(move(tiers, 10))
    assert (failed.state, failed.problem_code, failed.is_clean) == ("failed", "source_damaged", True)
    assert tiers.placement(10).status == "corrupt"
    found = Finding.objects.get(source_kind="transfer")
    assert (found.code, found.path) == ("digest_mismatch", shard.name)
    assert list(Path(tiers.cold.uri).rglob(".muster-*")) == [] and not tiers.cold_path(10).exists()


def test_a_copy_that_reads_back_wrong_is_made_again_and_then_given_up(
    tiers: Tiers, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers.save(10, 20)
    real, spoiled = copy_posix.PosixTarget.close, []

    def close(self: Any, cursor: Any, check: Any) -> None:
        real(self, cursor, check)
        if len(spoiled) < 1:
            spoiled.append(1)
            path = Path(self._at(cursor.files[-1]))
            path.write_bytes(b"\0" * path.stat().st_size)

    monkeypatch.setattr(copy_posix.PosixTarget, "close", close)
    done = drive(move(tiers, 10))
    assert (done.state, done.proof_attempts) == ("done", 1)
    assert states(done)[:5] == ["planned", "copying", "proving", "copying", "proving"]
    spoiled.extend([1] * 9)

    def spoil(self: Any, cursor: Any, check: Any) -> None:
        spoiled.clear()
        close(self, cursor, check)

    monkeypatch.setattr(copy_posix.PosixTarget, "close", spoil)
    failed = drive(request_transfer(placement=tiers.placement(20), kind="copy", target_tier=tiers.cold, actor="olga"))
    assert (failed.state, failed.problem_code, failed.is_clean) == ("failed", "proof_failed", True)
    assert tiers.path(20).is_dir() and not tiers.cold_path(20).exists()


# -- people ------------------------------------------------------------------------------------------------------------
def test_it_waits_when_told_and_goes_on_where_it_was(tiers: Tiers) -> None:
    tiers.save(10, 20)
    transfer = move(tiers, 10)
    services.pause(transfer=transfer, actor="olga")
    assert (transfer.state, transfer.next_attempt_at, transfer.resume_to) == ("paused", None, "planned")
    move_slice_once(transfer)
    assert not tiers.cold_path(10).exists()
    services.resume(transfer=transfer, actor="olga")
    assert drive(transfer).state == "done"
    with pytest.raises(Conflict, match="only what is being copied"):
        services.pause(transfer=transfer, actor="olga")


def test_cancelled_in_the_middle_it_leaves_no_part_behind(
    tiers: Tiers, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers.save(10, 20)
    transfer = move(tiers, 10)
    with monkeypatch.context() as slow:
        slow.setattr(settings, "TRANSFER_SLICE_SECONDS", -1.0)
        move_slice_once(transfer)
        move_slice_once(transfer)
    transfer.refresh_from_db()
    assert transfer.state == "copying" and list(Path(tiers.cold.uri).rglob(".muster-copy-*"))
    services.cancel(transfer=transfer, actor="olga")
    assert transfer.state == "cancelled" and not transfer.is_clean
    done = drive(transfer)
    assert done.is_clean and done.next_attempt_at is None
    assert list(Path(tiers.cold.uri).rglob(".muster-*")) == [] and tiers.path(10).is_dir()
    assert move(tiers, 10).state == "planned"  # the place is free again


def test_two_workers_and_late_messages_move_once(tiers: Tiers) -> None:
    tiers.save(10, 20)
    transfer = move(tiers, 10)
    Transfer.objects.update(lease_expires_at=timezone.now() + timedelta(minutes=2), lease_token="lse_other")
    move_slice_once(transfer)
    transfer.refresh_from_db()
    assert transfer.state == "planned"
    Transfer.objects.update(lease_expires_at=timezone.now())
    assert drive(transfer).state == "done"
    move_slice_once(transfer)
    moving.work("trf_none")


@pytest.mark.parametrize(
    ("wishes", "error", "told"),
    [
        ({"kind": "teleport"}, InvalidInput, "Use one of move"),
        ({"target_tier": None}, InvalidInput, "Name the tier"),
        ({"kind": "stage"}, InvalidInput, "faster tier"),
        ({"kind": "retire"}, InvalidInput, "leave the tier out"),
        ({"proof": "trust me"}, InvalidInput, "checksum"),
        ({"max_bytes_per_second": 0}, InvalidInput, "at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(tiers: Tiers, wishes: Any, error: type[Exception], told: str) -> None:
    tiers.save(10)
    with pytest.raises(error, match=told):
        move(tiers, 10, **wishes)


def test_one_transfer_at_a_time_and_only_where_the_workers_reach(tiers: Tiers, settings: Any) -> None:
    tiers.save(10)
    move(tiers, 10)
    with pytest.raises(Conflict, match="already"):
        move(tiers, 10, kind="copy")
    settings.WORKER_ROOTS = []
    Transfer.objects.all().delete()
    with pytest.raises(Conflict, match="MUSTER_WORKER_ROOTS"):
        move(tiers, 10)


def test_a_link_that_leads_out_of_the_workers_folders_is_not_followed(tiers: Tiers, settings: Any) -> None:
    tiers.save(10, 20)
    transfer = move(tiers, 10)
    outside = Path(tiers.cold.uri).parent / "outside"
    outside.mkdir()
    (Path(tiers.cold.uri) / "llama").symlink_to(outside)
    settings.WORKER_ROOTS = [tiers.hot.uri, tiers.cold.uri]
    failed = drive(transfer)
    assert (failed.state, failed.problem_code) == ("failed", "out_of_reach")
    assert list(outside.iterdir()) == []


# -- what people are told ----------------------------------------------------------------------------------------------
def test_a_transfer_that_failed_or_is_stuck_raises_an_alert_until_a_later_one_is_well(tiers: Tiers) -> None:
    def standing() -> list[tuple[str, str]]:
        evaluate()
        return [(row.rule, row.subject_id) for row in Alert.objects.exclude(state="resolved")]

    tiers.save(10, 20)
    transfer = move(tiers, 10, kind="copy")
    trouble = {"state": "paused", "problem_code": "no_space", "problem": "there is no space left"}
    Transfer.objects.filter(pk=transfer.pk).update(**trouble, attempts=2)
    assert standing() == []
    Transfer.objects.filter(pk=transfer.pk).update(attempts=3)
    assert standing() == [("transfer_stuck", transfer.pk)]
    assert "no space left" in Alert.objects.get().summary
    Transfer.objects.filter(pk=transfer.pk).update(state="failed")
    assert standing() == [("transfer_stuck", transfer.pk)]
    assert drive(move(tiers, 10, kind="copy")).state == "done"
    assert standing() == []
