"""A tier that the Celery workers list themselves: a real broker, a real worker with its processes, and kill -9."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from live import REPOSITORY, LiveServer, wait_until
from servers.valkey import Valkey

from tests.bench.metadata_writer import Shape, write_metadata

pytestmark = pytest.mark.slow

CHECKPOINTS = 14
SHAPE = Shape(100, 64)
"""Metadata of 1.5 MiB, which is read in a child process: a few of these fill a slice on any machine."""
SLICE_SECONDS, LEASE_SECONDS = 4, 8


def write_checkpoints(folder: Path) -> None:
    first = folder / "step-1"
    first.mkdir(parents=True)
    write_metadata(first / ".metadata", SHAPE)
    for rank in range(SHAPE.ranks):
        (first / f"__{rank}_0.distcp").touch()
        os.truncate(first / f"__{rank}_0.distcp", SHAPE.file_bytes)
    for step in range(2, CHECKPOINTS + 1):
        other = folder / f"step-{step}"
        other.mkdir()
        shutil.copy(first / ".metadata", other)
        for rank in range(SHAPE.ranks):
            os.link(first / f"__{rank}_0.distcp", other / f"__{rank}_0.distcp")
    for path in folder.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))


class Workers:
    """A control plane with beat, and a worker that can be killed with all of its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.valkey = Valkey()
        self.server = LiveServer(
            folder,
            REDIS_URL=self.valkey.url,
            MUSTER_WORKER_ROOTS=str(folder),
            MUSTER_CONTRACT_SLICE_SECONDS=str(SLICE_SECONDS),
            MUSTER_CONTRACT_SCAN_LEASE_SECONDS=str(LEASE_SECONDS),
        )
        self.log_path = folder / "worker.log"
        self.beat = self._celery("beat", "--schedule", str(folder / "beat"), "--pidfile", "")
        self.worker = self.start_worker()
        self._headers = {"Authorization": f"Bearer {self.server.call('api_token', 'ada', 'admin')}"}

    def start_worker(self) -> subprocess.Popen[bytes]:
        options = ("-Q", "control,scan,move,notify", "-c", "2", "--without-gossip", "--without-mingle")
        self.worker = self._celery("worker", *options)
        return self.worker

    def _celery(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "celery", "-A", "controlplane", *arguments, "-l", "WARNING"]
        with open(self.log_path, "ab") as log:
            return subprocess.Popen(
                command, env=self.server.environment, cwd=REPOSITORY, stdout=log, stderr=log, start_new_session=True
            )

    def kill_worker(self) -> None:
        os.killpg(self.worker.pid, signal.SIGKILL)
        self.worker.wait()

    def call(self, method: str, path: str, **body: Any) -> Any:
        url = f"{self.server.url}/api/v1/{path}"
        reply = urllib3.request(method, url, headers=self._headers, json=body or None, timeout=20.0)
        assert reply.status < 300, reply.data.decode()
        return json.loads(reply.data)

    def stop(self) -> None:
        for process in (self.worker, self.beat):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.server.stop()
        self.valkey.stop()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    write_checkpoints(tmp_path / "mounted" / "llama")
    running = Workers(tmp_path)
    yield running
    running.stop()


def test_a_worker_lists_in_slices_and_after_kill_9_another_goes_on_where_it_was(workers: Workers) -> None:
    fields = {"cluster": workers.server.call("cluster", "contract"), "name": "mounted", "kind": "parallel_fs"}
    uri = str(workers.folder / "mounted")
    tier = workers.call("POST", "tiers/", **fields, uri=uri, scanned_by="workers")["id"]
    path = f"scans/{workers.call('POST', 'scans/', tier=tier)['id']}/"
    told = workers.log_path.read_text

    def kept_and_running() -> bool:
        """One slice has ended and the next one has begun."""
        scan = workers.call("GET", path)
        assert scan["state"] in ("queued", "running"), f"{scan}; worker: {told()[-2000:]}"
        return bool(workers.server.call("remembered_bytes", tier)) and bool(scan["progress"].get("checkpoints"))

    wait_until(kept_and_running, 120, "a slice ends, and the next one begins")
    workers.kill_worker()
    scan = workers.call("GET", path)
    assert scan["state"] == "running" and scan["checkpoint_count"] == 0
    workers.start_worker()

    def finished() -> Any:
        found = workers.call("GET", path)
        return found if found["state"] not in ("queued", "running") else None

    scan = wait_until(finished, 150, f"the scan ends; worker: {told()[-2000:]}")
    assert (scan["state"], scan["error"], scan["agent"]) == ("finished", "", None)
    assert (scan["checkpoint_count"], scan["new_count"]) == (CHECKPOINTS, CHECKPOINTS)
    assert scan["unchanged_count"] > 0, "what an earlier slice had read was read again"
    copies = workers.call("GET", "placements/?limit=100")["items"]
    assert len(copies) == CHECKPOINTS and {one["tier"] for one in copies} == {tier}
