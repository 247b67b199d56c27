"""How numbers read."""

from __future__ import annotations

import pytest

from apps.core import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "not measured"),
        (0, "0.00 s"),
        (0.4211, "0.42 s"),
        (9.26, "9.3 s"),
        (78.2, "78 s"),
        (119.6, "2 min 00 s"),
        (245, "4 min 05 s"),
        (3780, "1 h 03 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations_read_as_people_say_them(seconds: float | None, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "unknown"), (0, "0 B"), (999, "999 B"), (287_654_321, "288 MB"), (1_300_000_000_000, "1.30 TB")],
)
def test_sizes_are_decimal(count: int | None, text: str) -> None:
    assert units.size(count) == text


def test_a_ratio_just_below_one_is_never_shown_as_all() -> None:
    assert units.percent(0.99996) == ">99.9 %"
    assert units.percent(1.0) == "100.0 %"
    assert units.percent(0.0001) == "<0.1 %"
