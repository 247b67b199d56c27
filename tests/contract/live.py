"""The live control plane and real agents, as processes. See conftest.py for the fixtures."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import urllib3

REPOSITORY = Path(__file__).resolve().parents[2]
MUSTER = str(Path(sys.executable).parent / "muster")
START_SECONDS = 120.0


def wait_until(condition: Callable[[], Any], seconds: float = 15.0, what: str = "") -> Any:
    """The condition's first truthy value, looked for 20 times a second."""
    ends_at = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > ends_at:
            raise AssertionError(f"not within {seconds} s: {what or condition}")
        time.sleep(0.05)


def own_database(folder: Path) -> str:
    """A fresh SQLite file in `folder`, or a database of its own on the suite's PostgreSQL."""
    suite_url = os.environ.get("DATABASE_URL", "")
    if not suite_url.startswith("postgres"):
        return f"sqlite:///{folder / 'live.sqlite3'}"
    import psycopg

    name = f"live_{uuid.uuid4().hex}"
    with psycopg.connect(suite_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return urlsplit(suite_url)._replace(path=f"/{name}").geturl()


class LiveServer:
    """uvicorn with the real ASGI application, its own database (`own_database`), and a process beside it for `call`.

    `call("create_task", agent_id, "inventory", {...})` runs a function of server_side.py in the server's database.
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self._calls = threading.Lock()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {
            **os.environ,
            "DATABASE_URL": own_database(folder),
            "DJANGO_SETTINGS_MODULE": "tests.contract.live_settings",
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
            **environment,
        }
        self._side = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.server_side"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.environment,
            cwd=REPOSITORY,
            text=True,
        )
        self.call("migrate")
        self.log_path = folder / "server.log"
        self.start()

    def start(self) -> None:
        """Start (or start again) on the same port and database, and wait until it answers."""
        arguments = ["-m", "uvicorn", "controlplane.asgi:application", "--host", "127.0.0.1", "--port", str(self.port)]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *arguments, "--no-access-log", "--timeout-graceful-shutdown", "1"],
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=REPOSITORY,
            )
        wait_until(self._answers, START_SECONDS, "the server answers")

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the server ended:\n{self.log_path.read_text()}")
        try:
            urllib3.request("GET", f"{self.url}/agent/v1/poll", retries=False, timeout=5.0)
        except urllib3.exceptions.HTTPError:
            return False
        return True

    def call(self, function: str, *args: Any, **kwargs: Any) -> Any:
        """A function of server_side.py; any thread may call."""
        assert self._side.stdin is not None
        assert self._side.stdout is not None
        with self._calls:
            self._side.stdin.write(json.dumps({"function": function, "args": args, "kwargs": kwargs}) + "\n")
            self._side.stdin.flush()
            answer = json.loads(self._side.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def kill(self) -> None:
        """As a crash does it."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        for process in (self._side, self.process):
            process.terminate()
            process.wait(10)


def done(server: LiveServer, task_id: str, seconds: float = 20) -> dict[str, Any]:
    """The task once it has ended."""

    def finished() -> dict[str, Any] | None:
        found: dict[str, Any] = server.call("task", task_id)
        return found if found["state"] in ("done", "lost") else None

    found: dict[str, Any] = wait_until(finished, seconds, f"task {task_id} ends")
    return found


class LiveAgent:
    """`muster agent join` and `run` as processes, with a state folder of its own."""

    def __init__(
        self,
        server: LiveServer,
        folder: Path,
        *,
        name: str,
        roots: Sequence[Path | str],
        token: str = "",
        url: str = "",
        options: tuple[str, ...] = (),
    ) -> None:
        self.server = server
        self.name = name
        self.state = folder / f"agent-{name}"
        self.hooks = folder / f"hooks-{name}"
        self.log_path = folder / f"agent-{name}.log"
        if not token:
            token = server.call("join_token", server.call("cluster", "contract"))
        self.environment = {**os.environ, "MUSTER_JOIN_TOKEN": token, "MUSTER_HOOK_DIR": str(self.hooks)}
        root_options = [word for root in roots for word in ("--root", str(root))]
        joined = self.muster("join", "--server", url or server.url, "--name", name, *root_options, *options)
        self.id: str = json.loads(joined)["agent_id"]
        self.process: subprocess.Popen[bytes] | None = None

    def muster(self, *arguments: str, code: int = 0) -> str:
        """The stdout of `muster agent ...`, which must exit with `code`."""
        done = subprocess.run(
            [MUSTER, "agent", *arguments, "--state-dir", str(self.state)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    def start(self) -> LiveAgent:
        command = [MUSTER, "agent", "run", "--verbose", "--state-dir", str(self.state)]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        wait_until(lambda: self._is_polling(), 20, f"agent {self.name} polls:\n{self.log_path.read_text()}")
        return self

    def _is_polling(self) -> bool:
        found = self.server.call("agent", self.id)
        return found["state"] in ("online", "busy", "pending") and bool(found["boot_id"])

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        """SIGTERM; gives the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def log(self) -> str:
        return self.log_path.read_text()
