"""Cron texts in named time zones. Pure but for the time zone database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, takewhile
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError


class BadSchedule(ValueError):
    """A cron text or a time zone that cannot be used; `field` is `cron` or `time_zone`."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(detail)
        self.field = field
        self.detail = detail


def next_times(cron: str, time_zone: str, after: datetime, count: int = 1) -> list[datetime]:
    """The next `count` times after `after`, in UTC. Follows Debian's cron over a clock change: a time that the change
    skips happens right after it, one that happens twice happens once. Raises BadSchedule."""
    found = list(islice(_times(cron, time_zone, after), count))
    if not found:
        raise BadSchedule("cron", f"`{cron}` never happens; check its day and month.")
    return found


def times_between(cron: str, time_zone: str, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """The latest `limit` times later than `after` and not later than `until`, in UTC and in order. The cost does not
    depend on how long ago `after` was. Raises BadSchedule."""
    backwards = _times(cron, time_zone, until + timedelta(seconds=1), reverse=True)
    return list(islice(takewhile(lambda moment: moment > after, backwards), limit))[::-1]


def next_time(cron: str, time_zone: str, after: datetime) -> datetime:
    return next_times(cron, time_zone, after)[0]


def require_zone(name: str) -> ZoneInfo:
    """The zone of that name. Raises BadSchedule."""
    if name not in _zone_names():
        raise BadSchedule("time_zone", f"There is no time zone {name!r}; use a name such as Europe/Berlin or UTC.")
    return ZoneInfo(name)


@cache
def _zone_names() -> set[str]:
    """Looking them up reads hundreds of files, and a tick asks every second."""
    return available_timezones()


def _times(cron: str, time_zone: str, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
    zone = require_zone(time_zone)
    if len(cron.split()) != 5:
        raise BadSchedule("cron", "A schedule has five fields: minute, hour, day of month, month, day of week.")
    try:
        simulated = CronSim(cron, start.astimezone(zone), reverse=reverse)
    except CronSimError as error:
        raise BadSchedule("cron", f"{error}: `{cron}` is not a schedule; use for example `0 3 * * *`.") from error
    return (moment.astimezone(UTC) for moment in simulated)
