"""A transfer between tiers that only an agent reaches, over REST alone, with a kill -9 of that agent on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import write_checkpoint
from live import LiveAgent, wait_until
from stack import Stack

pytestmark = pytest.mark.slow
SHARD_BYTES = 20 * 1024 * 1024
RATE = 8_000_000
"""Slow enough that the agent is killed in the middle."""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    for name in ("hot", "cold"):
        (tmp_path / name).mkdir()
    for step in (10, 20):
        write_checkpoint(tmp_path / "hot" / "run-1", step, ranks=2, shard_bytes=SHARD_BYTES)
    running = Stack(tmp_path)
    options = ("--copy-root", str(tmp_path / "hot"), "--copy-root", str(tmp_path / "cold"))
    agent = LiveAgent(running.server, tmp_path, name="gpu-1", roots=[tmp_path / "hot"], options=options)
    running.agents.append(agent.start())
    yield running
    running.stop()


def scanned(stack: Stack, folder: Path) -> str:
    """The cold tier, with the hot one listed, sealed and verified."""
    fields = {"cluster": "contract", "kind": "parallel_fs"}
    hot = stack.post("tiers/", **fields, name="hot", uri=str(folder / "hot"))["id"]
    cold: str = stack.post("tiers/", **fields, name="cold", uri=str(folder / "cold"), speed_order=2)["id"]
    stack.finished(f"scans/{stack.post('scans', tier=hot)['id']}/")
    for placement in stack.get("placements/")["items"]:
        for mode in ("seal", "verify"):
            audit = stack.finished(f"audits/{stack.post('audits', placement=placement['id'], mode=mode)['id']}/")
            assert audit["outcome"] == "passed", audit
    return cold


def test_an_agent_that_is_killed_in_the_middle_goes_on_and_one_verified_copy_is_left(
    stack: Stack, tmp_path: Path
) -> None:
    cold = scanned(stack, tmp_path)
    before = {path.name: path.read_bytes() for path in (tmp_path / "hot/run-1/step-10").glob("rank-*")}
    [placement] = [one for one in stack.get("placements/")["items"] if one["path"].endswith("step-10")]
    asked = {"placement": placement["id"], "kind": "move", "tier": cold, "max_bytes_per_second": RATE}
    path = f"transfers/{stack.post('transfers', **asked)['id']}"
    wait_until(lambda: stack.get(path)["state"] == "copying" and staged_bytes(tmp_path) > RATE, 60, "it copies")
    [agent] = stack.agents
    agent.kill()
    agent.start()

    def ended() -> Any:
        found = stack.get(path)
        return found if found["finished_at"] else None

    transfer = wait_until(ended, 150, f"it ends; worker: {stack.log_path.read_text()[-2000:]}; {agent.log()[-2000:]}")
    assert (transfer["state"], transfer["problem"], transfer["agent_name"]) == ("done", "", "gpu-1")
    made = tmp_path / "cold/run-1/step-10"
    assert {found.name: found.read_bytes() for found in made.glob("rank-*")} == before
    assert not (tmp_path / "hot/run-1/step-10").exists()
    assert [found.name for found in (tmp_path / "cold").rglob(".muster-*")] == [".muster-manifest.json"]
    there = [one for one in stack.get("placements/")["items"] if one["path"] == str(made)]
    assert [(one["status"], one["trust"]) for one in there] == [("complete", "verified")]


def staged_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in (folder / "cold").rglob("rank-*"))
