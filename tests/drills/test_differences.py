"""Drills side by side: what counts as a difference, which phase is to blame, and what may be why."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from apps.drills.differences import FIELDS, Fact, Subject, changes, differences, verdict

AT = datetime(2026, 11, 1, tzinfo=UTC)


def subject(name: str, seconds: float | None = 70.0, *, restored: bool = True, **facts: Fact) -> Subject:
    kind = facts.pop("kind", "Reload")
    return Subject(
        drill_id=name,
        at=AT,
        restored=restored,
        is_storage_only=kind != "Failover",
        facts={"kind": kind, "seconds": seconds, **facts},
    )


def differing(one: Subject, other: Subject) -> set[str]:
    return {change.field.name for change in changes(one, other)}


@pytest.mark.parametrize(
    ("name", "one", "other", "differs"),
    [
        ("seconds", 100.0, 104.0, False),
        ("seconds", 100.0, 106.0, True),
        ("read", 0.01, 0.05, False),  # five times, but no tenth of a second
        ("total_bytes", 64_000_000_000, 65_000_000_000, False),
        ("total_bytes", 64_000_000_000, 128_000_000_000, True),
        ("cached_ratio_before", 0.0, 0.04, False),
        ("cached_ratio_before", 0.0, 0.9, True),
        ("checkpoint_step", 12_000, 12_001, True),
        ("client_count", 4, 5, True),
        ("nodes", ("gpu-1", "gpu-2"), ("gpu-1", "gpu-3"), True),
        ("verified", True, False, True),
        ("effective", ("gds",), ("gds",), False),
        ("read", None, 3.0, True),
        ("bytes_per_second", 0.0, 2e9, True),
    ],
)
def test_what_differs_goes_by_its_unit(name: str, one: Fact, other: Fact, differs: bool) -> None:
    found = differing(subject("a", **{name: one}), subject("b", **{name: other}))
    assert (name in found) is differs


def test_fields_that_nobody_knows_are_left_out_and_the_rest_keeps_its_order() -> None:
    found = [one.field.name for one in differences([subject("a", read=3.0), subject("b", tier_name="nvme")])]
    assert found == ["kind", "tier_name", "read", "seconds"]
    assert found == [field.name for field in FIELDS if field.name in found]


def test_the_verdict_names_the_phase_and_what_else_differs() -> None:
    fast = subject("a", 70.0, read=30.0, verify=2.0, effective=("gds",), cached_ratio_before=0.0)
    slow = subject("b", 105.0, read=64.0, verify=3.0, effective=("host_buffered",), cached_ratio_before=0.0)
    assert verdict([fast, slow]) == (
        "B took 105 s, 1.50 times the 70 s of A. Read took 34 s longer, of 35 s in all. "
        "Between the two differ backend used (gds, host_buffered)."
    )


def test_equal_times_are_called_equal_and_nobody_is_blamed() -> None:
    assert verdict([subject("a", 70.0), subject("b", 72.0)]) == "Both took about the same, 70 s to 72 s."
    assert verdict([subject("a", 70.0), subject("b", 72.0), subject("c", 71.0)]).startswith("All 3 took about the same")


def test_late_ones_are_named_however_close_the_times_are() -> None:
    close = [subject("a", 88.0, objective_state="met"), subject("b", 91.0, objective_state="breached")]
    assert verdict(close) == "Both took about the same, 88 s to 91 s; B was late for its objective."


def test_a_slower_drill_without_a_reason_on_record_says_so() -> None:
    words = verdict([subject("a", 70.0), subject("b", 140.0)])
    assert words.endswith("No phase was measured in both. Nothing else that was recorded of the two differs.")


def test_storage_only_times_are_never_weighed_against_restarts() -> None:
    words = verdict([subject("a", 12.0), subject("b", 90.0, kind="Failover")])
    assert "these times answer different questions" in words and "Read" not in words


def test_a_drill_that_did_not_restore_has_no_time_to_compare() -> None:
    failed = subject("b", 300.0, restored=False)
    assert verdict([subject("a", 70.0), failed]) == (
        "B did not restore; only A was timed, so there are no times to compare."
    )
    assert verdict([subject("a", None), subject("b", None)]).startswith("None of them was timed")


def test_a_change_reads_as_before_and_now() -> None:
    change = next(one for one in changes(subject("a", read=31.0), subject("b", read=98.0)) if one.field.name == "read")
    assert change.sentence == "Read: 31 s, now 98 s"
