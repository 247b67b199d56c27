"""When disruptive drills may run: `mon-fri 09:00-17:00`, in a time zone. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WINDOW = re.compile(r"([a-z]{3})(?:-([a-z]{3}))? (\d{2}):(\d{2})-(\d{2}):(\d{2})")


class BadWindow(ValueError):
    """The text is no window; the message shows one."""


@dataclass(frozen=True)
class Window:
    """On `days` (0 is Monday) from `begins` up to, not including, `ends`; 24:00 is the day's end."""

    days: frozenset[int]
    begins_minute: int
    ends_minute: int

    def holds(self, local: datetime) -> bool:
        return local.weekday() in self.days and self.begins_minute <= _minute(local.time()) < self.ends_minute


def parse(text: str) -> Window:
    """Raises BadWindow. A window does not pass midnight: write it as two."""
    match = _WINDOW.fullmatch(text.strip().lower())
    if match is None:
        raise BadWindow(f"{text!r} is no window; write such as mon-fri 09:00-17:00, or sat 08:00-12:00.")
    first, last = match[1], match[2] or match[1]
    if first not in DAYS or last not in DAYS:
        raise BadWindow(f"{text!r} names no day; the days are {', '.join(DAYS)}.")
    start, length = DAYS.index(first), (DAYS.index(last) - DAYS.index(first)) % 7 + 1
    begins, ends = (int(match[n]) * 60 + int(match[n + 1]) for n in (3, 5))
    if int(match[4]) > 59 or int(match[6]) > 59 or ends > 24 * 60 or begins >= ends:
        raise BadWindow(f"{text!r} does not end after it begins on the same day; a night is two windows.")
    return Window(frozenset((start + day) % 7 for day in range(length)), begins, ends)


def is_open(windows: Sequence[str], zone: ZoneInfo, now: datetime) -> bool:
    """Whether any window holds now; without windows it is always open."""
    local = now.astimezone(zone)
    return not windows or any(parse(text).holds(local) for text in windows)


def opens_at(windows: Sequence[str], zone: ZoneInfo, now: datetime) -> datetime:
    """The next moment at which a window begins (on the wall clock of `zone`), within the coming eight days."""
    local = now.astimezone(zone)
    begins = [
        datetime.combine(local.date() + timedelta(days=day), time(*divmod(window.begins_minute, 60)), tzinfo=zone)
        for window in map(parse, windows)
        for day in range(9)
        if (local.weekday() + day) % 7 in window.days
    ]
    return min(moment for moment in begins if moment > local)


def _minute(at: time) -> int:
    return at.hour * 60 + at.minute
