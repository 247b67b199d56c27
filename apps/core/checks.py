"""Misconfiguration found at start, each with an id and a hint. Errors refuse to start; warnings are printed."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

LOOPBACK = {"127.0.0.1", "localhost", "[::1]", "testserver"}


def _is_public() -> bool:
    return any(host not in LOOPBACK for host in settings.ALLOWED_HOSTS)


@register()
def secret_key_is_own(app_configs: Any, **_kwargs: Any) -> list[CheckMessage]:
    if settings.SECRET_KEY != settings.DEFAULT_SECRET_KEY or not _is_public():
        return []
    hint = "Set MUSTER_SECRET_KEY or MUSTER_SECRET_KEY_FILE to at least 50 random characters."
    return [Error("The default secret key is used on an address others can reach.", hint=hint, id="muster.E001")]


@register()
def debug_is_off_in_public(app_configs: Any, **_kwargs: Any) -> list[CheckMessage]:
    if not settings.DEBUG or not _is_public():
        return []
    hint = "Unset MUSTER_DEBUG, or set MUSTER_ALLOWED_HOSTS to loopback names only."
    return [Error("MUSTER_DEBUG is on at an address others can reach.", hint=hint, id="muster.E002")]


@register()
def secret_key_is_long(app_configs: Any, **_kwargs: Any) -> list[CheckMessage]:
    if len(settings.SECRET_KEY) >= 50 or settings.SECRET_KEY == settings.DEFAULT_SECRET_KEY:
        return []
    hint = "Use at least 50 random characters; sessions and cursors are signed with it."
    return [Error("MUSTER_SECRET_KEY is too short.", hint=hint, id="muster.E003")]


@register()
def redis_url_is_known(app_configs: Any, **_kwargs: Any) -> list[CheckMessage]:
    if settings.REDIS_URL.startswith(("redis://", "rediss://", "unix://")):
        return []
    hint = "Use redis://host:port/0, rediss://host:port/0 or unix:///path/to/redis.sock."
    return [Error("REDIS_URL has an unknown scheme.", hint=hint, id="muster.E004")]


@register()
def agent_times_are_ordered(app_configs: Any, **_kwargs: Any) -> list[CheckMessage]:
    if settings.AGENT_POLL_SECONDS < settings.AGENT_STALE_SECONDS < settings.AGENT_LOST_SECONDS:
        return []
    hint = "Keep MUSTER_AGENT_POLL_SECONDS < MUSTER_AGENT_STALE_SECONDS < MUSTER_AGENT_LOST_SECONDS."
    return [Error("A healthy agent would be called stale or lost.", hint=hint, id="muster.E005")]


@register()
def sqlite_is_for_one_host(app_configs: Any, **_kwargs: Any) -> list[CheckMessage]:
    if not _is_public() or "sqlite" not in settings.DATABASES["default"]["ENGINE"]:
        return []
    hint = "Set DATABASE_URL to a PostgreSQL server; SQLite suits the demo and small single-host installs."
    return [Warning("SQLite is used on an address others can reach.", hint=hint, id="muster.W001")]
