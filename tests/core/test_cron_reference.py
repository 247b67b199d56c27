"""Schedules over clock changes and leap days, against a reference that looks at every minute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from apps.core.cron import next_times, times_between

MINUTE = timedelta(minutes=1)
CHANGES = {
    "Europe/Berlin": ((2026, 3, 29, 1), (2026, 10, 25, 1)),
    "America/New_York": ((2026, 3, 8, 7), (2026, 11, 1, 6)),
    "America/Santiago": ((2026, 9, 6, 4), (2026, 4, 5, 3)),
    "Australia/Sydney": ((2026, 10, 3, 16), (2026, 4, 4, 16)),
    "Australia/Lord_Howe": ((2026, 10, 3, 15, 30), (2026, 4, 4, 15)),
    "Pacific/Auckland": ((2026, 9, 26, 14), (2026, 4, 4, 14)),
}
"""UTC moments of the jump forward and the jump back; Lord Howe's are of half an hour."""


def field(lowest: int, highest: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A field's text and the numbers that it stands for."""
    every = range(lowest, highest + 1)
    some = st.sets(st.integers(lowest, highest), min_size=1, max_size=3)
    listed = some.map(lambda found: (",".join(map(str, sorted(found))), frozenset(found)))
    steps = st.sampled_from((7, 10, 15)).map(lambda step: (f"*/{step}", frozenset(every[::step])))
    return st.one_of(listed, steps, st.just(("*", frozenset(every))))


def local_minutes(zone: ZoneInfo, after: datetime, until: datetime) -> Iterator[tuple[datetime, datetime, bool]]:
    """(the local time, the UTC moment that a wall clock first shows it or, where it is skipped, that of the jump;
    whether it is shown for the second time), for every minute of the wall clock."""
    moment, shown = after, after.astimezone(zone).replace(tzinfo=None)
    while moment < until:
        moment += MINUTE
        local = moment.astimezone(zone)
        wall, expected = local.replace(tzinfo=None), shown + MINUTE
        while expected < wall:
            yield expected, moment, False
            expected += MINUTE
        yield wall, moment, bool(local.fold)
        shown = wall


def follows_the_wall(*texts: str) -> bool:
    return any(text.startswith("*") for text in texts)


def reference(minutes: tuple[str, frozenset[int]], hours: tuple[str, frozenset[int]], zone: str,
              after: datetime, until: datetime) -> list[datetime]:  # fmt: skip
    """Debian's rule: with a star in minutes or hours a job follows the clock on the wall, minute by minute; without,
    what is skipped comes right after the jump, and what is repeated comes once."""
    follows = follows_the_wall(minutes[0], hours[0])
    found = set()
    real = ZoneInfo(zone)
    for local, moment, is_repeated in local_minutes(real, after, until):
        is_real = moment.astimezone(real).replace(tzinfo=None) == local
        if local.minute not in minutes[1] or local.hour not in hours[1]:
            continue
        if is_real if follows else not is_repeated:
            found.add(moment)
    return sorted(found)


@settings(max_examples=120)
@given(
    zone=st.sampled_from(sorted(CHANGES)), forward=st.booleans(), minutes=field(0, 59), hours=field(0, 23),
    before_hours=st.integers(2, 20),
)  # fmt: skip
def test_around_a_clock_change_every_time_is_the_references(
    zone: str, forward: bool, minutes: tuple[str, frozenset[int]], hours: tuple[str, frozenset[int]], before_hours: int
) -> None:
    # The library steps by whole hours: with a star it misses up to half an hour where the clock changes by half of one.
    assume(zone != "Australia/Lord_Howe" or not follows_the_wall(minutes[0], hours[0]))
    change = datetime(*CHANGES[zone][0 if forward else 1], tzinfo=UTC)  # type: ignore[misc,arg-type]
    after, until = change - timedelta(hours=before_hours), change + timedelta(hours=26)
    expected = reference(minutes, hours, zone, after, until)
    cron = f"{minutes[0]} {hours[0]} * * *"
    found = [moment for moment in next_times(cron, zone, after, len(expected) + 1) if moment <= until]
    assert found == expected
    assert times_between(cron, zone, after, until, len(expected) + 1) == expected


def test_the_clock_changes_are_where_the_table_says() -> None:
    for zone, changes in CHANGES.items():
        for moment in (datetime(*change, tzinfo=UTC) for change in changes):  # type: ignore[misc,arg-type]
            before, after = ((moment + apart).astimezone(ZoneInfo(zone)).utcoffset() for apart in (-MINUTE, MINUTE))
            assert before != after, (zone, moment)


@settings(max_examples=30)
@given(zone=st.sampled_from([*sorted(CHANGES), "Asia/Kolkata", "UTC"]), year=st.integers(2025, 2048))
def test_the_29th_of_february_comes_in_leap_years_only(zone: str, year: int) -> None:
    [found] = next_times("30 4 29 2 *", zone, datetime(year, 3, 1, tzinfo=UTC))
    local = found.astimezone(ZoneInfo(zone))
    leap = next(one for one in range(year + 1, year + 9) if one % 4 == 0 and (one % 100 or one % 400 == 0))
    assert (local.year, local.month, local.day, local.hour, local.minute) == (leap, 2, 29, 4, 30)
