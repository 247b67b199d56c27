"""A drill of a checkpoint in a real bucket: scanned, sealed, verified and read back by REST and agents alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import write_checkpoint
from live import LiveAgent
from stack import Stack

from tests.servers.s3 import S3Server

SHARD_BYTES = 5 * 1024 * 1024
SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@pytest.fixture
def start(tmp_path: Path, s3_server: S3Server) -> Iterator[Callable[..., Stack]]:
    """A stack whose tier is the bucket, with one checkpoint of two ranks in it, and the named agents."""
    write_checkpoint(tmp_path / "local" / "run-1", 10, ranks=2, shard_bytes=SHARD_BYTES)
    s3_server.put_folder(tmp_path / "local", "ckpt")
    running: list[Stack] = []

    def begin(*, without_keys: tuple[str, ...] = (), **environment: str) -> Stack:
        stack = Stack(tmp_path, **environment)
        running.append(stack)
        for name in ("gpu-1", "gpu-2"):
            agent = LiveAgent(stack.server, tmp_path, name=name, roots=[f"{s3_server.place}/ckpt"])
            for secret in SECRETS if name in without_keys else ():
                agent.environment[secret] = ""
            stack.agents.append(agent.start())
        place = f"{s3_server.place}/ckpt"
        tier = stack.post("tiers/", cluster="contract", name="bucket", kind="object_store", uri=place)
        scan = stack.finished(f"scans/{stack.post('scans', tier=tier['id'])['id']}/")
        assert scan["state"] == "finished" and not scan["error"], scan
        [placement] = stack.get("placements/")["items"]
        for mode in ("seal", "verify"):
            audit = stack.finished(f"audits/{stack.post('audits', placement=placement['id'], mode=mode)['id']}/")
            assert audit["outcome"] == "passed", audit
        return stack

    yield begin
    for stack in running:
        stack.stop()


def ended(stack: Stack) -> dict[str, Any]:
    asked = stack.post("drills", run="run-1", kind="reload")
    drill: dict[str, Any] = stack.finished(f"drills/{asked['id']}")
    assert (drill["outcome"], drill["verified"]) == ("passed", True), drill["reason"]
    assert stack.get("runs/run-1/resume-point")["trust"] == "reloaded"
    assert drill["total_bytes"] >= 2 * SHARD_BYTES
    return drill


def evidence(stack: Stack, drill: dict[str, Any]) -> list[dict[str, Any]]:
    rows = stack.get(f"drills/{drill['id']}/ranks")["items"]
    assert [row["effective"] for row in rows] == ["s3", "s3"]
    return [row["evidence"]["s3"] for row in rows]


def test_nodes_sign_with_their_own_credentials(start: Callable[..., Stack]) -> None:
    stack = start()
    drill = ended(stack)
    assert [found["signed_by"] for found in evidence(stack, drill)] == ["node", "node"]


def test_a_node_without_credentials_reads_what_the_control_plane_signed(
    start: Callable[..., Stack], s3_server: S3Server
) -> None:
    stack = start(without_keys=("gpu-2",), MUSTER_S3_PRESIGN="true", MUSTER_S3_ENDPOINTS=s3_server.url)
    drill = ended(stack)
    assert [found["signed_by"] for found in evidence(stack, drill)] == ["control_plane", "control_plane"]
    kept = json.dumps([drill, stack.get("activity")]) + stack.server.log_path.read_text() + stack.log_path.read_text()
    kept += "".join(agent.log() for agent in stack.agents)
    for file in stack.server.folder.rglob("*.sqlite3*"):
        kept += file.read_bytes().decode("latin-1")
    assert "X-Amz-Signature" not in kept
