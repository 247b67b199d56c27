"""Misconfiguration is refused at start, with a hint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.checks import run_checks
from pytest_django.fixtures import Settings


def ids() -> set[str]:
    return {message.id or "" for message in run_checks()}


def test_the_default_secret_is_refused_where_others_can_reach_it(settings: Settings) -> None:
    assert "muster.E001" not in ids()
    settings.ALLOWED_HOSTS = ["muster.example"]
    assert "muster.E001" in ids()


def test_debug_is_refused_where_others_can_reach_it(settings: Settings) -> None:
    settings.DEBUG = True
    assert "muster.E002" not in ids()
    settings.ALLOWED_HOSTS = ["10.0.0.5"]
    assert "muster.E002" in ids()


def test_a_short_secret_and_an_unknown_redis_scheme_are_refused(settings: Settings) -> None:
    settings.SECRET_KEY = "short"
    settings.REDIS_URL = "http://127.0.0.1"
    assert {"muster.E003", "muster.E004"} <= ids()


def test_agent_times_must_be_in_order(settings: Settings) -> None:
    settings.AGENT_STALE_SECONDS = settings.AGENT_LOST_SECONDS
    assert "muster.E005" in ids()


@pytest.mark.parametrize(
    ("hosts", "wrong"),
    [
        (["muster.example", "10.0.0.5", "[::1]", ".example", "*"], False),
        (["https://muster.example"], True),
        (["muster.example:8443"], True),
        (["muster.example/app"], True),
    ],
)
def test_a_host_name_that_no_request_could_match_is_refused(settings: Settings, hosts: list[str], wrong: bool) -> None:
    settings.ALLOWED_HOSTS = hosts
    assert ("muster.E006" in ids()) is wrong


def test_a_folder_that_cannot_hold_the_sqlite_database_is_refused(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", "django.db.backends.sqlite3")
    monkeypatch.setitem(settings.DATABASES["default"], "NAME", str(tmp_path / "not there" / "x.sqlite3"))
    assert "muster.E007" in ids()
    (tmp_path / "not there").mkdir()
    assert "muster.E007" not in ids()


def test_a_worker_root_that_is_not_absolute_is_refused(settings: Settings) -> None:
    settings.WORKER_ROOTS = ["/ckpt", "scratch/ckpt"]
    assert "muster.E008" in ids()


def test_hashed_static_files_that_were_never_collected_are_refused(settings: Settings, tmp_path: Path) -> None:
    settings.HASHED_STATIC, settings.STATIC_ROOT = True, tmp_path
    assert "muster.E009" in ids()
    (tmp_path / "staticfiles.json").write_text("{}")
    assert "muster.E009" not in ids()


@pytest.mark.parametrize("module", ["controlplane.asgi", "controlplane.wsgi"])
def test_the_servers_themselves_refuse_to_start_with_the_default_secret_in_public(module: str) -> None:
    environment = {**os.environ, "MUSTER_ALLOWED_HOSTS": "muster.example"}
    environment.pop("MUSTER_SECRET_KEY", None)
    done = subprocess.run(
        [sys.executable, "-c", f"import {module}"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "muster.E001" in done.stderr
    assert "MUSTER_SECRET_KEY" in done.stderr


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("MUSTER_DEBUG", "perhaps", "use true or false"),
        ("MUSTER_AGENT_POLL_SECONDS", "soon", "use a whole number"),
        ("DATABASE_URL", "mysql://x", "use sqlite:/// or postgresql://"),
        ("MUSTER_SECRET_KEY_FILE", "/nowhere", "cannot be read"),
        ("DATABASE_URL", "postgresql://muster:hidden@host:port/x", "is not a URL"),
        ("DATABASE_URL", "postgresql://host", "names no database"),
        ("DATABASE_URL", "sqlite:///", "names no database"),
        ("REDIS_URL", "redis://host:port/0", "is not a URL"),
        ("MUSTER_LOG_LEVEL", "LOUD", "use one of DEBUG, INFO"),
    ],
)
def test_a_bad_variable_stops_the_start_with_its_name(name: str, value: str, words: str) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        env={**os.environ, name: value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert words in done.stderr
    assert name in done.stderr
    assert "Traceback" not in done.stderr
    assert "hidden" not in done.stderr
