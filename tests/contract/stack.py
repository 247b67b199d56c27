"""The whole stack for tests over REST alone: web process, broker, and a Celery worker with beat."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import urllib3
from live import REPOSITORY, LiveAgent, LiveServer, wait_until
from servers.valkey import Valkey


class Stack:
    """A control plane with its own broker and worker; `get` and `post` speak REST as an admin."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.agents: list[LiveAgent] = []
        self.valkey = Valkey()
        self.server = LiveServer(folder, REDIS_URL=self.valkey.url, MUSTER_CONTRACT_LEASE_SECONDS="8", **environment)
        self.log_path = folder / "worker.log"
        self.start_worker()
        self._headers = {"Authorization": f"Bearer {self.server.call('api_token', 'ada', 'admin')}", "If-Match": "*"}

    def start_worker(self) -> None:
        command = [sys.executable, "-m", "celery", "-A", "controlplane", "worker", "--beat", "--pool", "threads"]
        schedule = str(self.server.folder / "beat")
        queues = ["-Q", "control,scan,move,notify", "-c", "4", "-s", schedule, "-l", "WARNING"]
        with open(self.log_path, "ab") as log:
            self.worker = subprocess.Popen(
                [*command, *queues],
                env=self.server.environment,
                cwd=REPOSITORY,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill_worker(self) -> None:
        """With its beat, a process of its own that would outlive it."""
        os.killpg(self.worker.pid, signal.SIGKILL)
        self.worker.wait()

    def get(self, path: str) -> Any:
        return self._call("GET", path, None)

    def post(self, path: str, **body: Any) -> Any:
        return self._call("POST", path, body)

    def patch(self, path: str, **body: Any) -> Any:
        return self._call("PATCH", path, body)

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        url = f"{self.server.url}/api/v1/{path}"
        reply = urllib3.request(method, url, headers=self._headers, json=body, timeout=20.0)
        assert reply.status < 300, reply.data.decode()
        return json.loads(reply.data)

    def finished(self, path: str, seconds: float = 40) -> Any:
        def look() -> Any:
            found = self.get(path)
            return found if found["state"] == "finished" else None

        return wait_until(look, seconds, f"{path} finishes; worker: {self.log_path.read_text()[-2000:]}")

    def stop(self) -> None:
        for agent in self.agents:
            agent.stop()
        self.worker.terminate()
        try:
            self.worker.wait(20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.worker.pid, signal.SIGKILL)
        self.server.stop()
        self.valkey.stop()
