"""All runs in one sentence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from apps.recovery.fleet_summary import RunFigures, fleet, undrilled
from apps.recovery.verdict import Verdict

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def run(name: str = "llama", **fields: Any) -> RunFigures:
    values: dict[str, Any] = {
        "run_id": f"run_{name}",
        "verdict": Verdict.READY,
        "skipped_newest": False,
        "back_seconds": 78.0,
        "lost_gpu_hours": 10.0,
        "lost_cost": 25.0,
        "drilled_at": NOW - timedelta(hours=6),
    }
    return RunFigures(name=name, **{**values, **fields})


def test_a_fleet_that_is_ready_says_so_with_what_a_bad_hour_costs() -> None:
    found = fleet([run("a"), run("b", back_seconds=80.0)])
    assert found.sentence == (
        "All 2 runs are ready: proven, timed and within the objectives. If all died now, the last to be back would be "
        "b, after 80 s. Lost work: 20.0 GPU-hours, which cost about 50."
    )


def test_what_is_wrong_is_counted_and_what_is_not_measured_is_not_added_up() -> None:
    found = fleet(
        [
            run("a"),
            run("b", verdict=Verdict.NOTHING_RESUMABLE, back_seconds=None, lost_gpu_hours=None, lost_cost=None),
            run("c", verdict=Verdict.NOT_PROVEN, skipped_newest=True, lost_cost=None, drilled_at=None),
        ]
    )
    assert found.sentence == (
        "1 of 3 runs is ready: proven, timed and within the objectives. 1 would start over, 1 would resume from bytes "
        "that nobody has proven, 1 would pass over the newest checkpoint. If all died now, the last to be back would "
        "be c, after 78 s. Lost work: 20.0 GPU-hours, which cost about 25 for 1 of them in the 2 of 3 where that is "
        "measured."
    )
    assert (found.ready_count, found.never_drilled_count, found.lost_known_count) == (1, 1, 2)


def test_nothing_measured_is_said_and_no_zero_is_shown() -> None:
    found = fleet([run(verdict=Verdict.NEVER_DRILLED, back_seconds=None, lost_gpu_hours=None, lost_cost=None)])
    assert found.sentence == (
        "The only run is not ready (proven, timed and within the objectives). No whole restart was ever timed. "
        "Lost work is not measured."
    )
    assert (found.slowest_seconds, found.lost_gpu_hours, found.lost_cost) == (None, None, None)


def test_runs_that_were_not_rehearsed_lately_are_named_the_never_drilled_first() -> None:
    runs = [
        run("fresh"),
        run("old", drilled_at=NOW - timedelta(days=9)),
        run("never", drilled_at=None),
        run("older", drilled_at=NOW - timedelta(days=12)),
    ]
    assert [one.name for one in undrilled(runs, NOW, timedelta(days=7))] == ["never", "older", "old"]
