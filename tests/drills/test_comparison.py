"""What changed between two drills, from their figures alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from apps.drills.comparison import compare
from apps.drills.differences import Subject

THEN = datetime(2026, 5, 4, 12, tzinfo=UTC)


def known(drill_id: str = "drl_1", **facts: Any) -> Subject:
    values: dict[str, Any] = {
        "checkpoint_step": 100,
        "seconds": 80.0,
        "total_bytes": 912_000_000_000,
        "bytes_per_second": 11.4e9,
        "resolve": 2.0,
        "read": 70.0,
        "verify": 8.0,
        "cached_ratio_before": 0.0,
        "effective": ("host_direct",),
        "nodes": ("gpu-1", "gpu-2"),
        "agent_versions": ("0.1.0",),
    }
    return Subject(drill_id=drill_id, at=THEN, restored=True, is_storage_only=True, facts={**values, **facts})


def test_two_equal_drills_differ_in_nothing_and_say_so() -> None:
    found = compare(known(), known("drl_2"))
    assert (found.with_drill, found.at, found.changes, found.seconds) == ("drl_1", THEN, (), 0.0)
    assert found.sentence == "As long as the last comparable drill, within 5.0 %; nothing else differs."


def test_the_phase_that_grew_most_is_named_first_with_its_seconds() -> None:
    now = known(seconds=99.0, resolve=2.1, read=84.0, verify=14.0, bytes_per_second=9.2e9)
    found = compare(known(), now)
    assert [(change.what, change.label, change.seconds) for change in found.changes[:2]] == [
        ("phase", "Read", 14.0),
        ("phase", "Verify", 6.0),
    ]
    assert found.sentence.startswith(
        "19 s longer than the last comparable drill: read took 14 s more; verify took 6.0 s more; rate 9.20 GB/s, was "
        "11.4 GB/s"
    )
    assert all(change.label != "Resolve" for change in found.changes), "a tenth of a second is noise"


def test_shorter_is_said_as_shorter() -> None:
    found = compare(known(), known(seconds=60.0, read=50.0))
    assert found.seconds == -20.0
    assert "20 s shorter" in found.sentence and "read took 20 s less" in found.sentence


def test_nodes_versions_backend_bytes_cache_and_step_are_compared() -> None:
    now = known(
        nodes=("gpu-1", "gpu-9"),
        agent_versions=("0.2.0",),
        effective=("gds",),
        total_bytes=456_000_000_000,
        cached_ratio_before=0.4,
        checkpoint_step=200,
    )
    found = {change.what: (change.before, change.after) for change in compare(known(), now).changes}
    assert found == {
        "bytes": ("912 GB", "456 GB"),
        "cached": ("0.0 %", "40.0 %"),
        "step": ("step 100", "step 200"),
        "backend": ("host_direct", "gds"),
        "nodes": ("gpu-2", "gpu-9"),
        "versions": ("0.1.0", "0.2.0"),
    }


def test_what_only_one_of_them_measured_is_no_zero() -> None:
    found = compare(known(), known(resolve=None, to_device=3.0, cached_ratio_before=None))
    told = {change.label: (change.before, change.after) for change in found.changes}
    assert told == {
        "Resolve": ("2.0 s", "not measured"),
        "To device": ("not measured", "3.0 s"),
        "Cached before": ("0.0 %", "not measured"),
    }


def test_what_was_not_recorded_then_is_not_called_a_change() -> None:
    assert compare(known(nodes=None, agent_versions=None, effective=None), known()).changes == ()
    assert compare(known(seconds=None), known()).sentence.startswith("How its time compares is not measured")
