"""The statistics of few measurements, against published and computed vectors."""

from __future__ import annotations

import random
from math import comb

import pytest

from apps.recovery.rto import more_passes_needed, regression, spread, trials_needed, wilson_interval


@pytest.mark.parametrize(("misses", "needed"), [(0, 59), (1, 93), (2, 124)])
def test_trials_needed_to_claim_95_percent_at_95_percent_confidence(misses: int, needed: int) -> None:
    assert trials_needed(misses) == needed


@pytest.mark.parametrize(
    ("passes", "misses", "more"), [(0, 0, 59), (12, 0, 47), (58, 0, 1), (59, 0, 0), (80, 0, 0), (28, 1, 64), (92, 1, 0)]
)
def test_more_passes_needed(passes: int, misses: int, more: int) -> None:
    assert more_passes_needed(passes, misses) == more


def test_59_passes_are_needed_because_58_may_still_be_luck() -> None:
    assert 0.95**58 > 0.05 > 0.95**59


@pytest.mark.parametrize(
    ("passes", "count", "low", "high"),
    [(8, 10, 0.4902, 0.9433), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (1, 1, 0.2065, 1.0)],
)
def test_wilson_interval(passes: int, count: int, low: float, high: float) -> None:
    assert wilson_interval(passes, count) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_no_trial_has_no_interval() -> None:
    assert wilson_interval(0, 0) is None


@pytest.mark.parametrize(
    ("count", "p95", "p99"), [(1, None, None), (19, None, None), (20, 19.0, None), (99, 95.0, None), (100, 95.0, 99.0)]
)
def test_a_percentile_is_given_only_where_the_count_allows_it(count: int, p95: float | None, p99: float | None) -> None:
    seconds = [float(number) for number in range(1, count + 1)]
    random.Random(1).shuffle(seconds)
    found = spread(seconds)
    assert found is not None
    assert (found.count, found.p95, found.p99, found.max) == (count, p95, p99, float(count))


def test_the_median_of_an_even_count_lies_between() -> None:
    found = spread([4.0, 1.0, 3.0, 2.0])
    assert found is not None and found.p50 == 2.5


def test_nothing_measured_has_no_spread() -> None:
    assert spread([]) is None


@pytest.mark.parametrize(
    ("newest", "earlier", "flagged"),
    [
        (13.0, [10.0, 10.1, 9.9, 10.0], True),
        (12.4, [10.0, 10.1, 9.9, 10.0], False),
        (20.0, [10.0, 5.0, 15.0, 20.0, 1.0], False),
        (20.0, [10.0, 10.0], False),
        (20.0, [], False),
        (7.0, [10.0, 10.0, 10.0], False),
        (12.5, [10.0, 10.0, 10.0], True),
        (13.0, [10.0] * 10 + [30.0] * 50, True),
    ],
)
def test_a_regression_is_a_quarter_above_the_median_and_beyond_three_deviations(
    newest: float, earlier: list[float], flagged: bool
) -> None:
    assert (regression(newest, earlier) is not None) is flagged


@pytest.mark.parametrize("misses", [0, 1, 5, 11])
def test_trials_needed_are_the_fewest_that_the_exact_binomial_allows(misses: int) -> None:
    def chance(count: int) -> float:
        return sum(comb(count, k) * 0.05**k * 0.95 ** (count - k) for k in range(misses + 1))

    needed = trials_needed(misses)
    assert chance(needed) <= 0.05 < chance(needed - 1)


def test_thousands_of_misses_overflow_nothing() -> None:
    """Once a whole page failed where a run had missed some six hundred times."""
    assert 20 * 3000 < trials_needed(3000) < 21 * 3000
    assert more_passes_needed(57_000, 3000) == trials_needed(3000) - 60_000
