"""When disruptive drills may begin."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from apps.drills.windows import BadWindow, is_open, opens_at, parse

BERLIN = ZoneInfo("Europe/Berlin")
OFFICE = ["mon-fri 09:00-17:00", "sat 08:00-12:00"]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("moment", "open_"),
    [
        ("2026-05-04 08:59", False),  # Monday
        ("2026-05-04 09:00", True),
        ("2026-05-08 16:59", True),
        ("2026-05-08 17:00", False),
        ("2026-05-09 08:00", True),
        ("2026-05-10 10:00", False),
    ],
)
def test_a_window_holds_on_the_wall_clock_of_its_zone(moment: str, open_: bool) -> None:
    assert is_open(OFFICE, BERLIN, at(moment)) is open_
    assert is_open(OFFICE, BERLIN, at(moment).astimezone(ZoneInfo("Asia/Tokyo"))) is open_


def test_without_windows_it_is_always_open() -> None:
    assert is_open([], BERLIN, at("2026-05-10 03:00"))


def test_the_next_opening_is_named_across_the_weekend_and_a_change_of_clocks() -> None:
    assert opens_at(OFFICE, BERLIN, at("2026-05-09 12:00")) == at("2026-05-11 09:00")
    assert opens_at(["sun 10:00-11:00"], BERLIN, at("2026-03-28 12:00")) == at("2026-03-29 10:00")
    assert opens_at(["mon 09:00-10:00"], BERLIN, at("2026-05-04 09:00")) == at("2026-05-04 09:00") + timedelta(days=7)


def test_days_wrap_over_the_week_and_a_day_ends_at_24() -> None:
    assert parse("fri-mon 00:00-24:00").days == frozenset({4, 5, 6, 0})
    assert is_open(["sun 23:00-24:00"], BERLIN, at("2026-05-10 23:59"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mon",
        "mon 9-17",
        "mon 22:00-06:00",
        "foo 09:00-10:00",
        "mon 09:00-09:00",
        "mon 09:70-10:00",
        "mon 09:00-24:01",
    ],
)
def test_what_is_no_window_is_refused_with_what_would_be_one(text: str) -> None:
    with pytest.raises(BadWindow):
        parse(text)
