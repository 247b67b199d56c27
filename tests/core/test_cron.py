from __future__ import annotations

from datetime import UTC, datetime

import pytest

from apps.core.cron import BadSchedule, next_time, next_times, times_between


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


def test_times_are_those_of_the_named_zone() -> None:
    assert next_time("0 3 * * *", "Europe/Berlin", utc(2026, 1, 10)) == utc(2026, 1, 10, 2)
    assert next_time("0 3 * * *", "Europe/Berlin", utc(2026, 7, 10)) == utc(2026, 7, 10, 1)
    assert next_time("0 3 * * *", "Asia/Kolkata", utc(2026, 1, 10)) == utc(2026, 1, 10, 21, 30)


def test_a_time_that_the_spring_change_skips_happens_right_after_it() -> None:
    # Berlin, 29 March 2026: 02:00 becomes 03:00
    found = next_times("30 2 * * *", "Europe/Berlin", utc(2026, 3, 28, 12), 2)
    assert found == [utc(2026, 3, 29, 1), utc(2026, 3, 30, 0, 30)]


def test_a_time_that_the_autumn_change_repeats_happens_once() -> None:
    # Berlin, 25 October 2026: 03:00 becomes 02:00
    found = next_times("30 2 * * *", "Europe/Berlin", utc(2026, 10, 24, 12), 2)
    assert found == [utc(2026, 10, 25, 0, 30), utc(2026, 10, 26, 1, 30)]


def test_every_hour_goes_on_through_a_clock_change() -> None:
    found = next_times("0 * * * *", "America/New_York", utc(2026, 11, 1, 4, 30), 3)
    assert found == [utc(2026, 11, 1, 5), utc(2026, 11, 1, 6), utc(2026, 11, 1, 7)]


def test_times_between_are_the_latest_and_in_order() -> None:
    found = times_between("0 * * * *", "Europe/Berlin", utc(2026, 5, 4, 6), utc(2026, 5, 4, 12), 3)
    assert found == [utc(2026, 5, 4, 10), utc(2026, 5, 4, 11), utc(2026, 5, 4, 12)]
    assert times_between("0 * * * *", "UTC", utc(2026, 5, 4, 11), utc(2026, 5, 4, 11, 59), 3) == []


def test_leap_day() -> None:
    assert next_time("0 0 29 2 *", "UTC", utc(2026, 1, 1)) == utc(2028, 2, 29)


def test_a_time_that_is_now_is_not_next() -> None:
    assert next_time("0 3 * * *", "UTC", utc(2026, 1, 10, 3)) == utc(2026, 1, 11, 3)


@pytest.mark.parametrize(
    ("cron", "zone", "field", "words"),
    [
        ("", "UTC", "cron", "five fields"),
        ("0 3 * *", "UTC", "cron", "five fields"),
        ("* * * * * *", "UTC", "cron", "five fields"),
        ("61 3 * * *", "UTC", "cron", "Bad minute"),
        ("0 3 * * mond", "UTC", "cron", "Bad day-of-week"),
        ("0 0 31 2 *", "UTC", "cron", "Bad day-of-month"),
        ("@daily", "UTC", "cron", "five fields"),
        ("0 3 * * *", "Mars/Olympus", "time_zone", "no time zone 'Mars/Olympus'"),
        ("0 3 * * *", "", "time_zone", "no time zone"),
        ("0 3 * * *", "../etc/passwd", "time_zone", "no time zone"),
    ],
)
def test_a_bad_schedule_names_the_field_and_what_would_do(cron: str, zone: str, field: str, words: str) -> None:
    with pytest.raises(BadSchedule, match=words) as problem:
        next_time(cron, zone, utc(2026, 1, 1))
    assert problem.value.field == field
