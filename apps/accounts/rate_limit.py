"""How many requests a caller has sent this minute, counted in Redis. Without Redis nobody is held up."""

from __future__ import annotations

import hashlib
import logging
import time
from functools import cache
from typing import NamedTuple

import redis
from django.conf import settings

log = logging.getLogger(__name__)
WINDOW_SECONDS = 60
SILENCE_SECONDS = 10.0
"""After Redis did not answer it is not asked again for so long: a limit must not slow down what it guards."""
_silent_until = 0.0


class State(NamedTuple):
    """Where a caller stands in the present window."""

    quota: int
    used: int
    reset_seconds: int

    @property
    def is_over(self) -> bool:
        return self.used > self.quota

    def headers(self) -> dict[str, str]:
        """As draft-ietf-httpapi-ratelimit-headers has them."""
        left = max(self.quota - self.used, 0)
        return {
            "RateLimit-Policy": f'"default";q={self.quota};w={WINDOW_SECONDS}',
            "RateLimit": f'"default";r={left};t={self.reset_seconds}',
        }


def count(who: str, quota: int, *, now: float) -> State | None:
    """Count one request; None where Redis cannot be asked."""
    global _silent_until
    if time.monotonic() < _silent_until:
        return None
    window, reset = int(now // WINDOW_SECONDS), WINDOW_SECONDS - int(now % WINDOW_SECONDS)
    key = f"muster:api-rate:{who}:{window}"
    try:
        pipeline = _client(settings.REDIS_URL).pipeline(transaction=False)
        pipeline.incr(key)
        pipeline.expire(key, WINDOW_SECONDS + 5)
        used = int(pipeline.execute()[0])
    except redis.RedisError as error:
        log.warning("requests are not counted: %s", error)
        _silent_until = time.monotonic() + SILENCE_SECONDS
        return None
    return State(quota, used, reset)


def digest(authorization: str) -> str:
    """Redis learns no token."""
    return hashlib.sha256(authorization.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@cache
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=0.5, socket_connect_timeout=0.5)
