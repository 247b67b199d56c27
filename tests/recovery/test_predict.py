from __future__ import annotations

import pytest

from apps.recovery.predict import Measured, ceiling, prediction, rate_needed, read_floor_seconds


def drill(run: str = "r1", tier: str = "t1", size: int = 1000, restart: bool = False, **phases: float) -> Measured:
    total = sum(phases.values())
    return Measured(run_id=run, tier_id=tier, total_bytes=size, seconds=total, phases=phases, is_restart=restart)


def test_the_floor_is_the_slowest_of_storage_rank_and_node() -> None:
    assert read_floor_seconds(1000, 100) == 10
    assert read_floor_seconds(1000, 100, ranks=[(500, 40), (500, 50)]) == 12.5
    assert read_floor_seconds(1000, 100, ranks=[(500, 40)], nodes=[(1000, 20)]) == 50


def test_the_floor_inverted_gives_the_rate_that_an_objective_needs() -> None:
    assert rate_needed(1000, 12, 2) == 100
    assert rate_needed(1000, 2, 2) is None


def test_the_ceiling_is_the_best_rate_read_on_that_tier_by_any_run() -> None:
    drills = [drill(read=10.0), drill("r2", read=4.0, verify=3.0), drill("r2", "t2", read=0.1)]
    assert ceiling(drills, "t1") == 250
    assert ceiling(drills, "t1", [300.0]) == 300
    assert ceiling(drills, "t3") is None


def test_a_prediction_is_the_floor_and_the_medians_of_what_was_measured() -> None:
    drills = [drill(read=5.0, verify=1.0), drill(read=4.0, verify=3.0), drill(read=8.0, verify=2.0, allocate=0.5)]
    guess = prediction(run_id="r1", total_bytes=2000, tier_id="t1", drills=drills)
    assert guess is not None
    assert guess.phases == {"allocate": 0.5, "read": 8.0, "verify": 4.0}
    assert guess.seconds == pytest.approx(12.5)
    assert list(guess.phases) == ["allocate", "read", "verify"]
    assert guess.is_storage_only


def test_once_a_restart_was_timed_storage_drills_no_longer_dilute_its_phases() -> None:
    restart = drill(restart=True, detect=1.0, allocate=5.0, read=2.0, first_step=0.5)
    drills = [drill(allocate=0.1, read=0.2), drill(allocate=0.1, read=0.2), restart]
    guess = prediction(run_id="r1", total_bytes=1000, tier_id="t1", drills=drills)
    assert guess is not None
    assert guess.phases == {"detect": 1.0, "allocate": 5.0, "read": 2.0, "first_step": 0.5}
    assert not guess.is_storage_only


def test_reading_from_a_tier_that_no_restart_read_is_the_floor_of_that_tier() -> None:
    drills = [drill(restart=True, detect=1.0, read=2.0), drill("r2", "t2", read=4.0)]
    guess = prediction(run_id="r1", total_bytes=500, tier_id="t2", drills=drills)
    assert guess is not None
    assert guess.phases == {"detect": 1.0, "read": 2.0}


def test_a_run_that_was_never_drilled_has_no_prediction() -> None:
    assert prediction(run_id="r2", total_bytes=2000, tier_id="t1", drills=[drill(read=5.0)]) is None


def test_a_tier_that_nothing_read_has_no_prediction() -> None:
    assert prediction(run_id="r1", total_bytes=2000, tier_id="t9", drills=[drill(read=5.0)]) is None


def test_only_the_ten_newest_measurements_of_a_phase_count() -> None:
    drills = [drill(read=1.0, verify=1.0)] * 10 + [drill(read=1.0, verify=9.0)] * 30
    guess = prediction(run_id="r1", total_bytes=1000, tier_id="t1", drills=drills)
    assert guess is not None and guess.phases["verify"] == 1.0
