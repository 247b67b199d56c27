"""Pages over a large fleet in PostgreSQL: their queries, their bytes, and no plan that reads a large table to its end.

The fleet is made by `manage.py seed_fleet`; with ALL=1 it has the size that the promises are made for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.postgres import Postgres

ROOT = Path(__file__).resolve().parents[2]
MAX_QUERIES = 12
MAX_BYTES = 300_000
MAX_CHART_BYTES = 1_000_000
LARGE = 10_000
SMALL_FLEET = ["--checkpoints=1500", "--shards-each=40", "--drills=2500", "--nodes=200", "--runs=30"]
FULL_FLEET: list[str] = []

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(
    scope="module", params=[SMALL_FLEET, pytest.param(FULL_FLEET, marks=pytest.mark.slow)], ids=["small", "full"]
)
def looked(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """What `seeded_pages look` tells of each page."""
    postgres = Postgres()
    try:
        environment = {
            **os.environ,
            "DATABASE_URL": postgres.url,
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "workers/agent/src"), str(ROOT), str(ROOT / "tests")]),
        }

        def run(*arguments: str) -> str:
            command = [sys.executable, "-m", "tests.servers.seeded_pages", *arguments]
            return subprocess.run(
                command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
            ).stdout

        run("seed", *request.param)
        yield json.loads(run("look").splitlines()[-1])
    finally:
        postgres.stop()


@pytest.mark.slow
def test_every_page_of_a_large_fleet_holds_its_budgets(looked: dict[str, Any]) -> None:
    assert len(looked) > 50
    assert {url: page["status"] for url, page in looked.items() if page["status"] != 200} == {}
    assert {url: page["queries"] for url, page in looked.items() if page["queries"] > MAX_QUERIES} == {}
    heavy = {url: page["bytes"] for url, page in looked.items() if page["bytes"] > MAX_BYTES}
    assert {url: size for url, size in heavy.items() if "/charts/" not in url} == {}
    assert {url: size for url, size in heavy.items() if size > MAX_CHART_BYTES} == {}


@pytest.mark.slow
def test_no_plan_reads_a_large_table_from_end_to_end(looked: dict[str, Any]) -> None:
    found = {
        (url.partition("?")[0], table) for url, page in looked.items() for table, rows in page["scans"] if rows > LARGE
    }
    assert found == set()
