"""Typed reading of environment variables: a bad value stops the start with the variable's name and what it may be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from muster_agent.storage import addresses

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def text(name: str, default: str = "") -> str:
    return os.environ.get(name, default)


def secret(name: str, default: str = "") -> str:
    """The value of NAME, or the content of the file that NAME_FILE names; a named file must exist."""
    file_name = os.environ.get(f"{name}_FILE")
    if not file_name:
        return os.environ.get(name, default)
    try:
        return Path(file_name).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ImproperlyConfigured(f"{name}_FILE names {file_name}, which cannot be read: {error.strerror}.") from error


def redis(name: str, default: str) -> str:
    """A URL as the Redis client and Celery take it; its scheme is a system check's."""
    value = secret(name, default)
    _split(name, value)
    return value


def boolean(name: str, default: bool) -> bool:
    value = os.environ.get(name)
    if value is None or value == "":
        return default
    if value.lower() in {"1", "true", "yes", "on"}:
        return True
    if value.lower() in {"0", "false", "no", "off"}:
        return False
    raise ImproperlyConfigured(f"{name} is {value!r}; use true or false.")


def integer(name: str, default: int, *, minimum: int = 0) -> int:
    value = os.environ.get(name, str(default))
    try:
        number = int(value)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} is {value!r}; use a whole number.") from error
    if number < minimum:
        raise ImproperlyConfigured(f"{name} is {number}; it must be at least {minimum}.")
    return number


def networks(name: str) -> addresses.Networks:
    """Networks such as 10.0.0.0/8."""
    try:
        return addresses.networks_of(os.environ.get(name, ""))
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} is not valid: {error}. Write networks such as 10.0.0.0/8.") from error


def level(name: str, default: str) -> str:
    """The name of one of logging's levels."""
    value = os.environ.get(name) or default
    if value.upper() in LEVELS:
        return value.upper()
    raise ImproperlyConfigured(f"{name} is {value!r}; use one of {', '.join(LEVELS)}.")


def choice(name: str, default: str, choices: tuple[str, ...]) -> str:
    """One of `choices`."""
    value = os.environ.get(name) or default
    if value.lower() in choices:
        return value.lower()
    raise ImproperlyConfigured(f"{name} is {value!r}; use {' or '.join(choices)}.")


def words(name: str, default: str) -> list[str]:
    """A comma-separated list without blanks."""
    return [word.strip() for word in os.environ.get(name, default).split(",") if word.strip()]


def pairs(name: str) -> dict[str, str]:
    """Comma-separated `key=value`."""
    given = [word.partition("=") for word in words(name, "")]
    for key, equals, value in given:
        if not (key.strip() and equals and value.strip()):
            raise ImproperlyConfigured(f"{name} holds {key + equals + value!r}; write it as NAME=VALUE,NAME=VALUE.")
    return {key.strip(): value.strip() for key, _equals, value in given}


def database(name: str, default: str) -> dict[str, Any]:
    """Django's settings for `sqlite:///relative`, `sqlite:////absolute` or `postgresql://user:password@host:port/name`.

    A PostgreSQL socket folder goes into the query: `postgresql:///name?host=/run/postgresql&user=muster`.
    """
    url = _split(name, secret(name, default))
    if url.scheme not in {"sqlite", "postgresql", "postgres"}:
        raise ImproperlyConfigured(f"{name} begins with {url.scheme!r}; use sqlite:/// or postgresql://.")
    path = unquote(url.path[1:])
    if not path:
        raise ImproperlyConfigured(f"{name} names no database; use sqlite:////path or postgresql://host/database.")
    if url.scheme == "sqlite":
        # Tests use a file as well: a database in memory locks whole tables, which no user's database does.
        test = {"NAME": f"{path}.test"}
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": SQLITE_OPTIONS, "TEST": test}
    query = dict(parse_qsl(url.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": path,
        "USER": unquote(url.username or query.pop("user", "")),
        "PASSWORD": unquote(url.password or ""),
        "HOST": url.hostname or query.pop("host", ""),
        "PORT": str(url.port or ""),
        "OPTIONS": {"pool": {"min_size": 1, "max_size": 10, "timeout": 20}, **query},
    }


def origin(name: str) -> str:
    """Scheme and host of an address, without a path; empty where it is not set."""
    value = os.environ.get(name, "").rstrip("/")
    url = _split(name, value)
    if value and (url.scheme not in {"http", "https"} or not url.hostname or url.path or url.query):
        raise ImproperlyConfigured(f"{name} is {value!r}; write it as https://muster.example.")
    return value


def smtp(name: str) -> dict[str, Any]:
    """Django's settings for `smtp://host:25`, `smtp+starttls://user:password@host:587` or `smtps://host:465`. Without
    the variable no mail is sent."""
    url = _split(name, secret(name))
    ports = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}
    if url.scheme and (url.scheme not in ports or not url.hostname):
        raise ImproperlyConfigured(f"{name} begins with {url.scheme!r}; use smtp://, smtp+starttls:// or smtps://.")
    return {
        "EMAIL_HOST": url.hostname or "",
        "EMAIL_PORT": url.port or ports.get(url.scheme, 25),
        "EMAIL_HOST_USER": unquote(url.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(url.password or ""),
        "EMAIL_USE_TLS": url.scheme == "smtp+starttls",
        "EMAIL_USE_SSL": url.scheme == "smtps",
        "EMAIL_TIMEOUT": 10,
    }


def _split(name: str, value: str) -> SplitResult:
    """The parts of a URL whose port, where it has one, is a number. The value stays unsaid: it may hold a password."""
    try:
        url = urlsplit(value)
        _ = url.port
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} is not a URL: {error}.") from error
    return url


# IMMEDIATE takes the write lock at BEGIN: two writers queue for up to 20 s instead of one failing in mid-transaction.
SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;",
}
