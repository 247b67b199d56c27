"""Clock times as agents send them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from apps.core.moments import utc_moment


def test_a_time_of_a_clock_is_that_moment_in_utc() -> None:
    assert utc_moment(1_700_000_000.5) == datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=UTC)


@pytest.mark.parametrize("seconds", [-1.0, 999_999_999_999.0, 1e300, float("inf"), float("nan")])
def test_a_time_that_no_clock_shows_is_no_moment(seconds: float) -> None:
    assert utc_moment(seconds) is None
