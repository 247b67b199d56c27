"""Misconfiguration found at start, each with an id and a hint. Errors refuse to start; warnings are printed."""

from __future__ import annotations

import os
from pathlib import Path
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
def host_names_are_names(app_configs: Any, **_kwargs: Any) -> list[CheckMessage]:
    """`https://muster.example` or `muster.example:443` would match no request at all."""
    wrong = [host for host in settings.ALLOWED_HOSTS if "/" in host or (":" in host and not host.endswith("]"))]
    if not wrong:
        return []
    hint = "Give host names alone, such as muster.example; origins with a scheme go into MUSTER_TRUSTED_ORIGINS."
    return [Error(f"MUSTER_ALLOWED_HOSTS holds {wrong[0]!r}, which is no host name.", hint=hint, id="muster.E006")]


@register()
def sqlite_folder_is_writable(app_configs: Any, **_kwargs: Any) -> list[CheckMessage]:
    database = settings.DATABASES["default"]
    folder = Path(database["NAME"]).parent
    if "sqlite" not in database["ENGINE"] or os.access(folder, os.W_OK | os.X_OK):
        return []
    what = f"The SQLite database's folder {folder} is not there or not writable."
    hint = "Make it for the user who runs Muster (SQLite writes files beside the database), or change DATABASE_URL."
    return [Error(what, hint=hint, id="muster.E007")]


@register()
def worker_roots_are_absolute(app_configs: Any, **_kwargs: Any) -> list[CheckMessage]:
    wrong = [root for root in settings.WORKER_ROOTS if not root.startswith(("/", "s3://"))]
    if not wrong:
        return []
    hint = "Name folders from / on, and buckets as s3://bucket/prefix; a tier's place is compared with them."
    return [Error(f"MUSTER_WORKER_ROOTS holds {wrong[0]!r}, which is not absolute.", hint=hint, id="muster.E008")]


@register()
def hashed_files_are_collected(app_configs: Any, **_kwargs: Any) -> list[CheckMessage]:
    if not settings.HASHED_STATIC or (Path(settings.STATIC_ROOT) / "staticfiles.json").exists():
        return []
    hint = "Run `manage.py collectstatic --noinput`, or unset MUSTER_HASHED_STATIC."
    return [Error("MUSTER_HASHED_STATIC is on, and no static files were collected.", hint=hint, id="muster.E009")]


@register()
def sqlite_is_for_one_host(app_configs: Any, **_kwargs: Any) -> list[CheckMessage]:
    if not _is_public() or "sqlite" not in settings.DATABASES["default"]["ENGINE"]:
        return []
    hint = "Set DATABASE_URL to a PostgreSQL server; SQLite suits the demo and small single-host installs."
    return [Warning("SQLite is used on an address others can reach.", hint=hint, id="muster.W001")]
