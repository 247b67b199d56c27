"""A job under a real Slurm that imports nothing of Muster: its steps are read from its log, its requeues from Slurm."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live import LiveAgent, wait_until
from servers.slurm import Slurm
from stack import Stack

pytestmark = pytest.mark.slow
TRAINER = """#!/bin/bash
# "Trains" by counting; what it has saved is a number in a file.
step=$(cat "$SAVED" 2>/dev/null || echo 0)
echo "loaded checkpoint $SAVED at iteration $step"
while :; do
  sleep 0.1
  step=$((step + 1))
  echo " iteration $step/ 1000000 | lm loss: 2.5"
  [ $((step % 10)) = 0 ] && echo "$step" > "$SAVED"
done
"""


def follow_log(agent: LiveAgent, folder: Path) -> None:
    """As an administrator writes it into the agent's configuration."""
    path = agent.state / "config.json"
    log = {
        "run": "megatron",
        "path": str(folder / "slurm-%j.out"),
        "step": r"iteration\s+(?P<step>\d+)/",
        "resumed": r"loaded checkpoint (?P<path>\S+) at iteration (?P<step>\d+)",
    }
    path.write_text(json.dumps({**json.loads(path.read_text()), "step_logs": [log]}))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, slurm: Slurm) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack")
    (folder / "tier").mkdir()
    running = Stack(folder, MUSTER_SCHEDULERS=f"contract={slurm.configuration}")
    running.agents = [
        LiveAgent(running.server, folder, name=name, roots=[folder / "tier"]) for name in ("gpu-1", "gpu-2")
    ]
    follow_log(running.agents[0], folder)
    for agent in running.agents:
        agent.start()
    cluster = running.server.call("cluster", "contract")
    running.patch(f"clusters/{cluster}/", scheduler="slurm", allows_disruption=True)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def job_id(stack: Stack, slurm: Slurm) -> Iterator[str]:
    """On one of two nodes; its log goes on after a requeue."""
    folder = stack.server.folder
    (folder / "trainer.sh").write_text(TRAINER)
    options = ("--requeue", "--open-mode=append", "--exclude=gpu-3,gpu-4", f"--output={folder}/slurm-%j.out")
    submitted = slurm.submit(folder / "trainer.sh", *options, SAVED=str(folder / "tier" / "saved"))
    yield submitted
    slurm.run("scancel", submitted)


def attempts(stack: Stack) -> list[dict[str, Any]]:
    runs = stack.get("runs?name=megatron")["items"]
    return list(stack.get(f"runs/{runs[0]['id']}/attempts")["items"]) if runs else []


def wait_for_steps(stack: Stack, restart_count: int, job_id: str) -> None:
    """Until the job, requeued so often, has told of twelve steps: it has saved, and goes on."""

    def is_training() -> bool:
        mine = [one for one in attempts(stack) if one["launch_id"].startswith(f"{job_id}.{restart_count}-")]
        return any(one["last_step"] and one["last_step"] >= (one["resumed_from_step"] or 0) + 12 for one in mine)

    wait_until(is_training, 60, f"launch {restart_count} trains; {attempts(stack)}")


def take_inventory(stack: Stack) -> None:
    cluster = stack.server.call("cluster", "contract")
    before = len(stack.get(f"cluster-inventories?cluster={cluster}")["items"])
    stack._call("POST", f"clusters/{cluster}/take-inventory", None)
    wait_until(lambda: len(stack.get(f"cluster-inventories?cluster={cluster}")["items"]) > before, 30, "an inventory")


def test_a_requeue_by_hand_is_an_incident_with_the_way_back_that_the_log_tells(
    stack: Stack, slurm: Slurm, job_id: str
) -> None:
    wait_for_steps(stack, 0, job_id)
    began = time.time()
    slurm.run("scontrol", "requeue", job_id)
    take_inventory(stack)
    wait_for_steps(stack, 1, job_id)
    take_inventory(stack)  # now Slurm also tells when it started the job again

    def closed() -> Any:
        [*found] = stack.get("incidents")["items"]
        return found[0] if found and found[0]["recovery"]["state"] == "closed" else None

    incident = wait_until(closed, 30, "the recovery is closed")
    assert incident["detected_at"] is not None, "Slurm's requeue is what detected it"
    recovery = incident["recovery"]
    print({name: one for name, one in recovery["phases"].items() if one is not None}, recovery)
    assert slurm.cred_expire_seconds <= recovery["time_to_resume_seconds"] <= time.time() - began
    assert recovery["checkpoint_step"] % 10 == 0 and 0 <= recovery["lost_steps"] <= 11


def test_a_failover_of_its_node_is_measured_to_the_first_step_beyond_the_checkpoint(
    stack: Stack, slurm: Slurm, job_id: str
) -> None:
    [before] = slurm.job(job_id)["nodes"].split(",")
    told = stack.post("drills/preview", run="megatron", kind="failover", fault="node")
    assert (told["refusals"], told["candidates"]) == ([], [before]), "the node of its job, wherever its log is read"
    drill = stack.post("drills", run="megatron", kind="failover", fault="node", deadline_seconds=90)
    ended = stack.finished(f"drills/{drill['id']}", 110)
    assert ended["outcome"] == "passed", ended["reason"]
    assert (ended["facts"]["node"], slurm.job(job_id)["nodes"] != before) == (before, True)
    assert ended["facts"]["first_step"] == ended["checkpoint_step"] + 1
    measured = {name: one for name, one in ended["phases"].items() if one is not None}
    print(measured, "unattributed", ended["unattributed_seconds"], "of", ended["seconds"])
    assert {"detect", "first_step"} <= set(measured)
    assert sum(measured.values()) + ended["unattributed_seconds"] == pytest.approx(ended["seconds"])
    assert measured.get("launch") is None, "nobody told of it, so it is not measured"
