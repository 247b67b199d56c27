"""The predictor against arithmetic, and against a simulated storage that it knows only from drills."""

from __future__ import annotations

import random
from statistics import mean

import pytest
from recovery.storage_simulator import SYSTEMS, System, read_seconds

from apps.recovery.scaling import (
    SIZES,
    Ceiling,
    Checked,
    Model,
    Rates,
    Reading,
    check,
    error,
    fit,
    need,
    rates,
)

GB = 1e9
LIMITS = Rates((Ceiling(1, 2 * GB), Ceiling(4, 8 * GB), Ceiling(8, 10 * GB)))


def test_readers_scale_until_the_storage_gives_no_more() -> None:
    assert [LIMITS.of(count) / GB for count in (1, 2, 4, 6, 8, 4096)] == [2, 4, 8, 9, 10, 10]
    assert (LIMITS.one_reader, LIMITS.together, LIMITS.measured_readers, LIMITS.has_knee) == (2 * GB, 10 * GB, 8, True)


def test_fewer_readers_than_were_measured_get_their_share() -> None:
    assert Rates((Ceiling(8, 16 * GB),)).of(2) == 4 * GB


@pytest.mark.parametrize(("wanted", "readers"), [(0.1, 1), (2, 1), (2.1, 2), (8, 4), (8.1, 5), (10, 8), (10.1, None)])
def test_the_fewest_readers_for_a_rate(wanted: float, readers: int | None) -> None:
    assert LIMITS.readers_for(wanted * GB) == readers


def test_ceilings_give_the_best_of_one_reader_and_of_all_together() -> None:
    found = rates([Ceiling(1, 2 * GB), Ceiling(1, 1 * GB), Ceiling(8, 10 * GB), Ceiling(4, 8 * GB)])
    assert found == LIMITS
    growing = rates([Ceiling(1, 2 * GB), Ceiling(8, 15.5 * GB)])
    assert growing is not None and not growing.has_knee
    sinking = rates([Ceiling(1, 2 * GB), Ceiling(8, 10 * GB), Ceiling(16, 9 * GB)])
    assert sinking is not None and sinking.of(16) == 10 * GB
    assert rates([]) is None


def test_without_a_drill_the_floor_is_all_that_is_known() -> None:
    model = fit(LIMITS, [])
    assert (model.reading_count, model.seconds(100 * GB, 1)) == (0, 50)


def test_drills_of_one_size_give_the_efficiency_and_of_several_also_the_fixed_part() -> None:
    one = fit(LIMITS, [Reading(int(100 * GB), 8, 20.0)] * 3)
    assert (one.fixed_seconds, one.efficiency_ratio) == (0, pytest.approx(0.5))
    drills = [Reading(int(size * GB), 8, 3 + size / 10 / 0.8) for size in (50, 100, 200, 400)]
    several = fit(LIMITS, drills)
    assert (several.fixed_seconds, several.efficiency_ratio) == (pytest.approx(3), pytest.approx(0.8))


def test_one_odd_drill_moves_nothing() -> None:
    drills = [Reading(int(size * GB), 8, 3 + size / 8) for size in (50, 80, 100, 150, 200, 300, 400)]
    odd = [*drills, Reading(int(120 * GB), 8, 400.0)]
    assert fit(LIMITS, odd).seconds(500 * GB, 8) == pytest.approx(fit(LIMITS, drills).seconds(500 * GB, 8), rel=0.02)


def test_the_error_compares_each_drill_with_those_before_it() -> None:
    drills = [Reading(int(size * GB), 8, size / 5) for size in (100, 100, 100, 100, 200)]
    assert [one.predicted_seconds for one in check(LIMITS, drills)] == pytest.approx([20, 40])
    found = error([Checked(Reading(1, 1, 10.0), 12.0), Checked(Reading(1, 1, 10.0), 9.0)])
    assert found is not None
    assert (found.count, found.mape_ratio, found.bias_ratio) == (2, pytest.approx(0.15), pytest.approx(0.05))
    assert error([]) is None


def test_backwards_an_objective_needs_a_rate_and_readers() -> None:
    model = Model(LIMITS, fixed_seconds=2, efficiency_ratio=0.8, reading_count=5)
    found = need(model, 100 * GB, 32, other_seconds=5)
    assert (found.bytes_per_second, found.reader_count) == (pytest.approx(5 * GB), 3)
    assert model.seconds(100 * GB, 3) + 5 <= 32 < model.seconds(100 * GB, 2) + 5
    fast = need(model, 100 * GB, 10)
    assert (fast.bytes_per_second, fast.reader_count) == (pytest.approx(15.625 * GB), None)
    assert need(model, 100 * GB, 6, other_seconds=5).bytes_per_second is None


# -- calibration -------------------------------------------------------------------------------------------------------
LADDER = (1, 2, 4, 8, 16, 32, 64)
HELD_OUT_READERS = (8, 48)


def drilled(system: System, seed: int) -> Model:
    """A model from a ladder and eight drills of everyday sizes, as a fleet would have them."""
    dice = random.Random(seed)
    ladder = [Ceiling(count, 200e9 / read_seconds(system, 200e9, count, seed + count)) for count in LADDER]
    limits = rates(ladder)
    assert limits is not None
    drills = []
    for number in range(8):
        size, count = dice.choice((60e9, 120e9, 400e9, 1000e9)), dice.choice((4, 8, 16, 32, 64))
        drills.append(Reading(int(size), count, read_seconds(system, size, count, seed + 100 + number)))
    return fit(limits, drills)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_it_is_calibrated_on_each_simulated_tier(system: System) -> None:
    ratios = _ratios(system)
    assert mean(abs(ratio) for ratio in ratios) <= 0.20, ratios


def test_over_five_tiers_and_four_sizes_the_error_is_20_percent_and_the_bias_5_at_most() -> None:
    ratios = [ratio for system in SYSTEMS for ratio in _ratios(system)]
    assert len(ratios) == len(SYSTEMS) * len(SIZES) * len(HELD_OUT_READERS)
    assert mean(abs(ratio) for ratio in ratios) <= 0.20
    assert abs(mean(ratios)) <= 0.05


def _ratios(system: System) -> list[float]:
    model = drilled(system, seed=7)
    return [
        model.seconds(size, count) / read_seconds(system, size, count, 9000 + count) - 1
        for _name, size in SIZES
        for count in HELD_OUT_READERS
    ]
