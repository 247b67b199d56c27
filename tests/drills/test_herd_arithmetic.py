from __future__ import annotations

import pytest

from apps.drills.herd import Rung, default_ladder, gain_per_doubling, knee, ladder_problem


@pytest.mark.parametrize(
    ("count", "ladder"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 4]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])]
)
def test_the_default_ladder_doubles_and_ends_at_every_client(count: int, ladder: list[int]) -> None:
    assert default_ladder(count) == ladder


@pytest.mark.parametrize(
    ("before", "after", "gain"),
    [((1, 1.0), (2, 2.0), 1.0), ((2, 2.0), (8, 8.0), 1.0), ((1, 4.0), (2, 4.0), 0.0), ((2, 4.0), (4, 3.0), -0.25)],
)
def test_gain_is_per_doubling_of_clients(before: tuple[int, float], after: tuple[int, float], gain: float) -> None:
    assert gain_per_doubling(Rung(*before), Rung(*after)) == pytest.approx(gain)


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({1: 1.0, 2: 2.0, 4: 4.0}, None),
        ({1: 1.0, 2: 1.9, 4: 2.2, 8: 2.3}, 4),
        ({1: 1.0, 2: 1.1, 4: 2.2}, 2),
        ({1: 1.0, 2: 1.21, 4: 1.47}, None),
        ({1: 1.0}, None),
        ({}, None),
        ({1: 3.0, 2: 2.0}, 2),
    ],
)
def test_the_knee_is_the_first_rung_that_gains_under_a_fifth_per_doubling(
    rates: dict[int, float], expected: int | None
) -> None:
    found = knee([Rung(count, rate) for count, rate in rates.items()])
    assert (found.client_count if found else None) == expected


@pytest.mark.parametrize(
    ("ladder", "fault"),
    [
        ([1, 2, 4], None),
        ([], None),
        ([0, 1], "whole client counts"),
        ([1, "2"], "whole client counts"),
        ([True, 2], "whole client counts"),
        ([2, 1], "ascending"),
        ([1, 1], "ascending"),
        (list(range(1, 30)), "at most 20"),
    ],
)
def test_what_is_wrong_with_a_ladder_is_said(ladder: list[object], fault: str | None) -> None:
    problem = ladder_problem(ladder)
    assert (problem is None) if fault is None else fault in str(problem)
