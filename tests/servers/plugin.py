"""A pytest plugin (`-p tests.servers.plugin`): the suite's real servers, started before Django reads its settings.

Redis always; PostgreSQL when MUSTER_TEST_DATABASE=postgres, else SQLite.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))  # `servers` and `factories` are imported by these names

from servers.valkey import Valkey

_servers: list[object] = []


def _start_servers() -> None:
    valkey = Valkey()
    _servers.append(valkey)
    os.environ["REDIS_URL"] = valkey.url
    if os.environ.get("MUSTER_TEST_DATABASE") == "postgres":
        from servers.postgres import Postgres

        postgres = Postgres()
        _servers.append(postgres)
        os.environ["DATABASE_URL"] = postgres.url
    else:
        os.environ["DATABASE_URL"] = f"sqlite:////tmp/muster-tests-{os.getpid()}.sqlite3"


_start_servers()


def pytest_unconfigure(config: pytest.Config) -> None:
    for server in reversed(_servers):
        server.stop()  # type: ignore[attr-defined]
    _servers.clear()
