"""Slows password guessing: after some failures a name, and more slowly an address, has to wait."""

from __future__ import annotations

import logging

import redis
from django.conf import settings

log = logging.getLogger(__name__)

WINDOW_SECONDS = 300
FAILURES_PER_NAME = 10
FAILURES_PER_ADDRESS = 50


def _keys(username: str, address: str) -> tuple[tuple[str, int], ...]:
    return (
        (f"muster:sign-in:name:{username.casefold()[:150]}", FAILURES_PER_NAME),
        (f"muster:sign-in:address:{address}", FAILURES_PER_ADDRESS),
    )


def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)


def wait_seconds(username: str, address: str) -> int:
    """How long this name and address must wait; 0 when they may try now, or when Redis cannot be asked."""
    try:
        client = _client()
        waits = [client.ttl(key) for key, limit in _keys(username, address) if int(client.get(key) or 0) >= limit]
    except redis.RedisError as error:
        log.warning("sign-in throttling is off: %s", error)
        return 0
    return max([int(wait) for wait in waits if int(wait) > 0], default=0)


def note_failure(username: str, address: str) -> None:
    """Count one failed sign-in; counts vanish a window after the first of them."""
    try:
        pipeline = _client().pipeline()
        for key, _limit in _keys(username, address):
            pipeline.incr(key)
            pipeline.expire(key, WINDOW_SECONDS, nx=True)
        pipeline.execute()
    except redis.RedisError as error:
        log.warning("could not count a failed sign-in: %s", error)
