"""The adapter against a real slurmrestd beside a real Slurm, and, for what Debian's 22.05 cannot do, a stand-in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from servers.slurm import Slurm as SlurmServer

from apps.fleet.schedulers.base import SchedulerError
from apps.fleet.schedulers.slurm import Slurm
from apps.fleet.schedulers.slurm_parsing import parse_partitions_json
from apps.fleet.schedulers.slurm_rest import SlurmRest

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def configured(folder: Path, **values: str) -> SlurmRest:
    path = folder / "rest.json"
    path.write_text(json.dumps(values))
    return SlurmRest(str(path))


@pytest.fixture(scope="module")
def rest(slurm: SlurmServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmRest]:
    """slurmrestd refuses to run as root, so it runs as nobody then."""
    program = shutil.which("slurmrestd") or shutil.which("slurmrestd", path="/usr/sbin")
    if program is None:
        reason = "the program slurmrestd is missing: install Debian's package slurmrestd"
        (pytest.fail if os.environ.get("MUSTER_CI") == "1" else pytest.skip)(reason)
    folder = slurm.folder / "rest"
    folder.mkdir()
    folder.chmod(0o777)
    command = [*(NOBODY if os.getuid() == 0 else ()), program, "-s", "openapi/v0.0.38", "-a", "rest_auth/local"]
    environment = {**slurm.environment, "SLURMRESTD_SECURITY": "disable_user_check"}
    with open(slurm.folder / "log" / "slurmrestd.log", "ab") as log:
        process = subprocess.Popen([*command, f"unix:{folder}/s"], env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 20
        while not (folder / "s").exists():
            told = (slurm.folder / "log" / "slurmrestd.log").read_text()
            assert process.poll() is None and time.monotonic() < deadline, told
            time.sleep(0.05)
        yield configured(tmp_path_factory.mktemp("rest"), server=f"unix:{folder}/s")
    finally:
        process.terminate()
        process.wait(10)


def test_it_tells_what_slurms_own_programs_tell(slurm: SlurmServer, rest: SlurmRest, tmp_path: Path) -> None:
    programs = Slurm(str(slurm.configuration))
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\nsleep 60\n")
    job_id = slurm.submit(script, "--job-name=llama", "--nodes=2", "--output=/dev/null")
    programs.drain("gpu-4", "muster standby")
    try:
        slurm.wait_for_state("mixed", count=2)
        told, asked, job = rest.snapshot(), programs.snapshot(), rest.job(job_id)
        spare = rest.node("gpu-4")
    finally:
        slurm.run("scancel", job_id)
        programs.resume("gpu-4")
    assert told.nodes == asked.nodes
    assert told.jobs == asked.jobs
    assert told.partitions == asked.partitions
    assert (told.version, job) == (asked.version, asked.jobs[0])
    assert (spare.parked, spare.reason) == (True, "muster standby")


def test_a_server_that_is_too_old_to_change_nodes_says_so(rest: SlurmRest) -> None:
    with pytest.raises(SchedulerError, match=r"slurm/v0.0.38\) cannot change nodes"):
        rest.drain("gpu-1", "muster standby")


def test_what_it_does_not_know_is_an_error_and_never_empty(rest: SlurmRest, tmp_path: Path) -> None:
    with pytest.raises(SchedulerError):
        rest.node("gpu-9")
    assert rest.job("4711") is None
    with pytest.raises(SchedulerError, match="does not answer"):
        configured(tmp_path, server="unix:/nowhere/rest.sock").snapshot()
    with pytest.raises(SchedulerError, match="only sent over https"):
        configured(tmp_path, server="http://slurm.example:6820")
    with pytest.raises(SchedulerError, match="https://host:port or unix:/path"):
        configured(tmp_path, server="slurm.example")
    with pytest.raises(SchedulerError, match="does not say how"):
        SlurmRest(str(tmp_path / "absent.json"))


class LaterServer:
    """Speaks the shapes of v0.0.40 as its OpenAPI document describes them: composed here, not recorded."""

    def __init__(self) -> None:
        self.node: dict[str, Any] = {"name": "gpu-1", "state": ["IDLE"], "reason": "", "gres": "gpu:8"}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.headers: dict[str, str] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.headers = dict(self.headers.items())
                one = {"get": {}, "post": {}}
                paths = {f"/slurm/v0.0.{number}/node/{{node_name}}": one for number in (39, 40)}
                told = {"paths": paths} if self.path == "/openapi/v3" else {"nodes": [server.node], "errors": []}
                self._answer(told)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.asked.append((self.path, body))
                if self.path.endswith("gpu-9"):
                    return self._answer({"errors": [{"description": "Invalid node name specified"}]})
                state = {"DRAIN": ["IDLE", "DRAIN"], "DOWN": ["DOWN"], "RESUME": ["IDLE"]}[body["state"][0]]
                server.node = {**server.node, "state": state, "reason": body.get("reason", "")}
                return self._answer({"errors": []})

            def _answer(self, document: dict[str, Any]) -> None:
                data = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_words: Any) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def later() -> Iterator[LaterServer]:
    running = LaterServer()
    yield running
    running.http.shutdown()
    running.http.server_close()


def test_a_later_server_drains_sets_down_and_resumes_nodes_with_a_token(later: LaterServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("eyJ.first\n")
    adapter = configured(tmp_path, server=later.url, user="muster", token_file=str(tmp_path / "token"))
    adapter.drain("gpu-1", "muster standby")
    assert adapter.node("gpu-1").parked
    assert later.headers["X-SLURM-USER-NAME"] == "muster"
    assert later.headers["X-SLURM-USER-TOKEN"] == "eyJ.first"
    (tmp_path / "token").write_text("eyJ.renewed\n")
    adapter.resume("gpu-1")
    adapter.resume("gpu-1")  # what is in use already stays so
    assert later.headers["X-SLURM-USER-TOKEN"] == "eyJ.renewed"
    adapter.fail("gpu-1", "muster drill drl_1")
    path = "/slurm/v0.0.40/node/gpu-1"
    assert later.asked == [
        (path, {"state": ["DRAIN"], "reason": "muster standby"}),
        (path, {"state": ["RESUME"]}),
        (path, {"state": ["DOWN"], "reason": "muster drill drl_1"}),
    ]
    with pytest.raises(SchedulerError, match="Invalid node name"):
        adapter.drain("gpu-9", "no such node")


def test_partitions_of_both_shapes() -> None:
    old = {"name": "train", "state": "UP", "total_nodes": 4}
    new = {"name": "train", "partition": {"state": ["UP"]}, "nodes": {"total": 4}}
    for row in (old, new):
        [one] = parse_partitions_json(json.dumps({"partitions": [row]}))
        assert (one.name, one.state, one.node_count) == ("train", "up", 4)
