"""A live control plane for tests over real HTTP.

`server` (session): uvicorn on a free loopback port, its own SQLite database, short protocol times
(live_settings.py). `server.call("cluster", "east")` and the other functions of server_side.py make and read rows
in its database; `server.call("api_token", "ada", "admin")` gives a REST token.
`live_server_url` (session): its address, for those who only speak HTTP.
`make_agent(name, roots=[...])`: a joined agent process (`.start()` runs it); all of them end with the test.
`alone_server`: one that a test may kill, stop and start again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `live` is imported by this name

from live import LiveAgent, LiveServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    running = LiveServer(tmp_path_factory.mktemp("live-server"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def live_server_url(server: LiveServer) -> str:
    return server.url


@pytest.fixture
def alone_server(tmp_path: Path) -> Iterator[LiveServer]:
    running = LiveServer(tmp_path, MUSTER_CONTRACT_LEASE_SECONDS="30")  # longer than a restart takes
    yield running
    running.stop()


@pytest.fixture
def make_agent(server: LiveServer, tmp_path: Path) -> Iterator[Callable[..., LiveAgent]]:
    made: list[LiveAgent] = []

    def make(name: str, *, on: LiveServer = server, roots: list[Path] | None = None, **options: Any) -> LiveAgent:
        agent = LiveAgent(on, tmp_path, name=name, roots=roots or [tmp_path], **options)
        made.append(agent)
        return agent

    yield make
    for agent in made:
        agent.stop()
