from __future__ import annotations

from typing import Any

import pytest
from muster_agent.formats.base import Role, Severity, Status
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft, role_of
from muster_agent.formats.verdict import AgeLimit, conclude, grace_seconds_for, status_of

PLACE: dict[str, Any] = {"path": "/run/step-10", "run": "run", "named_step": 10}


def draft(*codes: str, committed: bool | None = None, undecided: str | None = None) -> Draft:
    findings = [finding(code, path="p", detail="d") for code in codes]
    return Draft("f", committed=committed, findings=findings, undecided=undecided)


@pytest.mark.parametrize(
    ("given", "recent", "status"),
    [
        (draft(), True, Status.COMPLETE),
        (draft(committed=True), True, Status.COMPLETE),
        (draft(committed=False), True, Status.IN_PROGRESS),
        (draft(committed=False), False, Status.UNCOMMITTED),
        (draft("shard_truncated", committed=False), True, Status.IN_PROGRESS),
        (draft("shard_truncated", committed=False), False, Status.CORRUPT),
        (draft("shard_truncated", committed=True), True, Status.CORRUPT),
        (draft("shard_missing"), True, Status.IN_PROGRESS),
        (draft("shard_missing"), False, Status.INCOMPLETE),
        (draft("shard_missing", committed=True), True, Status.INCOMPLETE),
        (draft("shard_missing", "permission_denied", committed=True), False, Status.INCOMPLETE),
        (draft("permission_denied", committed=True), False, Status.UNREADABLE),
        (draft("permission_denied", committed=False), True, Status.UNREADABLE),
        (draft("shard_truncated", "permission_denied", committed=True), False, Status.CORRUPT),
        (draft("metadata_unsafe"), False, Status.UNREADABLE),
        (draft(undecided="why"), False, Status.UNKNOWN),
        (draft("shard_orphaned", "size_total_mismatch", committed=True), False, Status.COMPLETE),
    ],
)
def test_the_status_follows_from_the_facts(given: Draft, recent: bool, status: Status) -> None:
    assert status_of(given, recent=recent) is status


@pytest.mark.parametrize(
    ("codes", "recent", "status"),
    [
        ((), True, Status.IN_PROGRESS),
        ((), False, Status.UNCOMMITTED),
        (("shard_missing",), True, Status.IN_PROGRESS),
        (("shard_missing",), False, Status.INCOMPLETE),
        (("shard_truncated",), False, Status.CORRUPT),
    ],
)
@pytest.mark.parametrize("committed", [None, True, False])
def test_a_sign_of_a_running_save_counts_whatever_the_marker_says(
    codes: tuple[str, ...], recent: bool, status: Status, committed: bool | None
) -> None:
    given = draft(*codes, committed=committed)
    given.settling = True
    assert status_of(given, recent=recent) is status


def test_an_empty_file_may_be_one_that_was_just_made() -> None:
    assert status_of(draft("shard_empty"), recent=True) is Status.IN_PROGRESS
    assert status_of(draft("shard_empty"), recent=False) is Status.CORRUPT
    assert status_of(draft("shard_empty", committed=True), recent=True) is Status.CORRUPT
    assert status_of(draft("shard_empty", "shard_truncated"), recent=True) is Status.CORRUPT


def test_what_is_whole_by_its_sizes_in_an_archive_is_archived_and_what_is_not_is_named() -> None:
    assert status_of(draft("archived", committed=True), recent=False) is Status.ARCHIVED
    assert status_of(draft("archived", "shard_missing", committed=True), recent=False) is Status.INCOMPLETE
    whole = conclude(draft("archived", committed=True), **PLACE, newest_mtime_ns=0, age_limit=AgeLimit(1e6, 600))
    assert whole.not_resumable_reasons[0] == "it must first be restored from the archive" and not whole.resumable


def test_code_in_a_pickle_leaves_the_known_structure_and_forbids_resuming() -> None:
    given = draft("metadata_unsafe", committed=True)
    given.structure_known = True
    given.roles = {Role.MODEL, Role.OPTIMIZER}
    found = conclude(given, **PLACE, newest_mtime_ns=0, age_limit=AgeLimit(1e6, 600))
    assert (found.status, found.resumable) == (Status.COMPLETE, False)
    assert found.not_resumable_reasons == ("loading it would run code that no checkpoint needs",)


def test_a_save_that_did_not_end_is_called_abandoned_after_the_grace_period() -> None:
    given = draft("shard_missing", committed=False)
    day_old = conclude(given, **PLACE, newest_mtime_ns=0, age_limit=AgeLimit(86_400.0, 600))
    assert day_old.not_resumable_reasons[-1] == "its save was abandoned: nothing in it has changed for 24 h"
    lost = conclude(draft("shard_missing"), **PLACE, newest_mtime_ns=0, age_limit=AgeLimit(86_400.0, 600))
    assert not any("abandoned" in reason for reason in lost.not_resumable_reasons)


@pytest.mark.parametrize(("saves", "grace"), [([], 600.0), ([30.0], 600.0), ([900.0, 30.0, 1000.0], 2700.0)])
def test_a_run_whose_saves_take_long_is_given_three_times_that(saves: list[float], grace: float) -> None:
    assert grace_seconds_for(saves) == grace


def test_what_is_only_a_note_decides_nothing() -> None:
    noted = finding("link_broken", path="p", detail="d", severity=Severity.NOTE)
    assert status_of(Draft("f", findings=[noted]), recent=False) is Status.COMPLETE


def test_a_change_a_little_in_the_future_is_recent_and_one_far_ahead_is_not() -> None:
    limit = AgeLimit(1000.0, 60.0)
    assert limit.is_recent(int(1030e9))
    assert limit.is_recent(int(950e9))
    assert not limit.is_recent(int(2000e9))
    assert not limit.is_recent(int(900e9))
    assert not limit.is_recent(None)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("optimizer.exp_avg.w", Role.OPTIMIZER),
        ("optim.state.0", Role.OPTIMIZER),
        ("rng_state/shard_0.1", Role.RNG),
        ("dataloader.dp_rank_0", Role.DATALOADER),
        ("lr_scheduler.last_epoch", Role.SCHEDULER),
        ("train_state.step", Role.OTHER),
        ("model.w", Role.MODEL),
        ("0.weight", Role.MODEL),
        ("optimizerlike.w", Role.MODEL),
    ],
)
def test_the_first_part_of_a_tensors_name_is_its_role(name: str, role: Role) -> None:
    assert role_of(name) is role
