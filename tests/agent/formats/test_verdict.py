from __future__ import annotations

import pytest
from muster_agent.formats.base import Role, Severity, Status
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft, role_of
from muster_agent.formats.verdict import AgeLimit, status_of


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
