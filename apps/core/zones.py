"""Which time zone a reader wants times in: UTC, the browser's, or a named one. Rows and the API stay in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from apps.core.errors import InvalidInput

PARAMETER = "tz"
COOKIE = "muster-tz"
BROWSER_COOKIE = "muster-browser-tz"
"""What the browser says of itself; written by the scripts of every page."""
UTC = "utc"
BROWSER = "browser"
COOKIE_SECONDS = 365 * 24 * 3600


@dataclass(frozen=True)
class Choice:
    """`word`: utc, browser, or the zone's name. `name`: the zone that it leads to."""

    word: str
    name: str

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.name)


def choice_of(request: Any) -> Choice:
    """By the URL, else as it was last chosen, else UTC. Raises InvalidInput for a zone in the URL that is none."""
    browsers = request.COOKIES.get(BROWSER_COOKIE, "")
    if wanted := request.GET.get(PARAMETER, ""):
        found = _choice(wanted, browsers)
        if found is None:
            told = f"There is no time zone {wanted[:64]!r}: use utc, browser, or a name like Europe/Berlin."
            raise InvalidInput(told, pointer="/tz")
        return found
    return _choice(request.COOKIES.get(COOKIE, ""), browsers) or Choice(UTC, "UTC")


def _choice(word: str, browsers: str) -> Choice | None:
    if word.lower() == UTC:
        return Choice(UTC, "UTC")
    if word == BROWSER:
        return Choice(BROWSER, browsers if browsers in _names() else "UTC")
    return Choice(word, word) if word in _names() else None


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(available_timezones())
