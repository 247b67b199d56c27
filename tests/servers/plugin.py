"""A pytest plugin (`-p tests.servers.plugin`): the suite's real servers, started before Django reads its settings.

Redis always; PostgreSQL when MUSTER_TEST_DATABASE=postgres, else SQLite.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent.parent))  # `servers` and `factories` are imported by these names

from servers.valkey import Valkey

# How long an example takes says how busy the machine is; how many there are bounds the time.
settings.register_profile("muster", deadline=None)
settings.load_profile("muster")

pytest_plugins = ["tests.servers.kubernetes", "tests.servers.s3", "tests.servers.slurm"]
_servers: list[object] = []


def _start_servers() -> None:
    valkey = Valkey()
    _servers.append(valkey)
    os.environ["REDIS_URL"] = valkey.url
    os.environ.setdefault("MUSTER_API_RATE_PER_MINUTE", "0")  # tests/accounts/test_rate_limit.py sets its own
    if os.environ.get("MUSTER_TEST_DATABASE") == "postgres":
        from servers.postgres import Postgres

        postgres = Postgres()
        _servers.append(postgres)
        os.environ["DATABASE_URL"] = postgres.url
    else:
        os.environ["DATABASE_URL"] = f"sqlite:////tmp/muster-tests-{os.getpid()}.sqlite3"


_start_servers()


def pytest_configure(config: pytest.Config) -> None:
    """Hashing a password is slow on purpose; the tests make hundreds of accounts."""
    from django.conf import settings as django_settings

    django_settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What `sampled` leaves out is slow."""
    seen: Counter[str] = Counter()
    for item in items:
        if (mark := item.get_closest_marker("sampled")) is not None:
            name = item.nodeid.partition("[")[0]
            if seen[name] % mark.args[0]:
                item.add_marker(pytest.mark.slow)
            seen[name] += 1


@pytest.fixture(scope="session", autouse=True)
def _activity_can_be_flushed() -> None:
    """Django empties every table after a test with transactions of its own; the database refuses that of the activity
    log, so the refusal is lifted for just those statements."""
    from django.core.management.commands import flush

    from apps.accounts.migrations import _append_only

    own_flush = flush.sql_flush

    def sql_flush(style: Any, connection: Any, **options: Any) -> list[str]:
        vendor = connection.vendor
        return [*_append_only.OFF[vendor], *own_flush(style, connection, **options), *_append_only.ON[vendor]]

    flush.sql_flush = sql_flush


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI nothing outside may be missing: a skip for want of a program is a failure there."""
    report = yield
    if os.environ.get("MUSTER_CI") and report.skipped and "the program" in str(report.longrepr):
        report.outcome = "failed"
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    for server in reversed(_servers):
        server.stop()  # type: ignore[attr-defined]
    _servers.clear()
