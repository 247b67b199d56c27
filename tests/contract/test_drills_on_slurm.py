"""Failover and standby drills of a job under a real Slurm of four nodes, each with a real agent; only REST calls."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from live import REPOSITORY, LiveAgent, wait_until
from servers.slurm import Slurm
from stack import Stack

pytestmark = pytest.mark.slow
SCRIPT = REPOSITORY / "deploy" / "slurm" / "train.sbatch"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, slurm: Slurm) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack")
    (folder / "tier").mkdir()
    running = Stack(folder, MUSTER_SCHEDULERS=f"contract={slurm.configuration}")
    running.agents = [
        LiveAgent(running.server, folder, name=name, roots=[folder / "tier"]).start() for name in slurm.node_names
    ]
    for agent in running.agents:  # as the job's HOOKS/$SLURMD_NODENAME
        agent.hooks.mkdir(exist_ok=True)
    cluster = running.server.call("cluster", "contract")
    running.patch(f"clusters/{cluster}/", scheduler="slurm", allows_disruption=True)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def job_id(stack: Stack, slurm: Slurm) -> Iterator[str]:
    """The demo trainer under the example script, saving every 10 steps of 0.05 s."""
    folder = stack.server.folder
    hooks = folder / "hooks"
    hooks.mkdir()
    for agent in stack.agents:
        (hooks / agent.name).symlink_to(agent.hooks)
    checkpoints = folder / "tier" / "demo"
    checkpoints.mkdir()
    submitted = slurm.submit(
        SCRIPT,
        f"--chdir={REPOSITORY}",
        f"--output={folder}/job.log",
        RUN="demo",
        CHECKPOINTS=str(checkpoints),
        PYTHON=sys.executable,
        HOOKS=str(hooks),
        TRAINER_ARGUMENTS="--size tiny --save-every 10 --min-step-seconds 0.05",
        OMP_NUM_THREADS="1",
        PYTHONPATH=os.environ.get("PYTHONPATH", ""),
    )
    yield submitted
    slurm.run("scancel", submitted)


def attempts(stack: Stack) -> list[dict[str, Any]]:
    runs = stack.get("runs?name=demo")["items"]
    return list(stack.get(f"runs/{runs[0]['id']}/attempts")["items"]) if runs else []


def is_training(stack: Stack, launch_id: str) -> bool:
    """It has saved, and goes on."""
    return any((one["last_step"] or 0) >= 25 for one in attempts(stack) if one["launch_id"] == launch_id)


def drilled(stack: Stack, **spec: Any) -> dict[str, Any]:
    drill = stack.post("drills", run="demo", kind="failover", objective_seconds=120, deadline_seconds=100, **spec)
    ended = stack.finished(f"drills/{drill['id']}", 120)
    log = (stack.server.folder / "job.log").read_text()[-2000:]
    assert ended["outcome"] == "passed", f"{ended['reason']}\n{log}"
    measured = {name: round(one, 3) for name, one in ended["phases"].items() if one is not None}
    print(measured, "unattributed", ended["unattributed_seconds"], "of", ended["seconds"], ended["facts"]["reschedule"])
    assert sum(v for v in ended["phases"].values() if v) + ended["unattributed_seconds"] == pytest.approx(
        ended["seconds"]
    )
    assert ended["unattributed_seconds"] <= 0.02 * ended["seconds"]
    return dict(ended)


def check_the_way_back(ended: dict[str, Any], slurm: Slurm) -> None:
    for phase in ("detect", "reschedule", "launch", "resolve", "allocate", "read", "materialize", "first_step"):
        assert ended["phases"][phase] is not None, phase
    assert ended["facts"]["first_step"] == ended["checkpoint_step"] + 1
    pieces = {one["what"]: one["seconds"] for one in ended["facts"]["reschedule"]}
    assert pieces["hold"] == pytest.approx(slurm.cred_expire_seconds + 1, abs=1.01)
    assert sum(pieces.values()) <= ended["phases"]["reschedule"] + 1.01
    assert "cred_expire" in ended["facts"]["hold_cure"]
    said = [edge["what"] for edge in ended["facts"]["boundaries"]]
    assert said[0] == "fault injected"
    for edge in ("the scheduler requeued the job", "the scheduler's hold on the job ended", "launch started"):
        assert edge in said, said


def test_a_killed_worker_comes_back_through_the_scripts_own_requeue(stack: Stack, slurm: Slurm, job_id: str) -> None:
    wait_until(lambda: is_training(stack, f"{job_id}.0"), 90, "the job trains")
    ended = drilled(stack, fault="process", worker_rank=0)
    check_the_way_back(ended, slurm)
    assert ended["facts"]["resumed_attempt"] == f"{job_id}.1"
    assert ended["facts"]["worker"].startswith("rank 0 on gpu-")


def test_a_node_set_down_moves_the_job_and_is_brought_back(stack: Stack, slurm: Slurm, job_id: str) -> None:
    wait_until(lambda: is_training(stack, f"{job_id}.1"), 90, "the job trains again")
    [before] = slurm.job(job_id)["nodes"].split(",")
    ended = drilled(stack, fault="node")
    check_the_way_back(ended, slurm)
    assert ended["facts"]["node"] == before
    assert slurm.job(job_id)["nodes"] != before
    slurm.wait_for_state("idle", count=3)  # all but the one on which it trains now
    assert stack.get("incidents")["items"] == [], "a drill's fault is no incident"


def test_a_spare_stands_in_for_a_node_and_each_step_is_timed(stack: Stack, slurm: Slurm, job_id: str) -> None:
    wait_until(lambda: is_training(stack, f"{job_id}.2"), 90, "the job trains again")
    [training_on] = slurm.job(job_id)["nodes"].split(",")
    spare, out = [name for name in slurm.node_names if name != training_on][:2]
    slurm.run("scontrol", "update", f"nodename={spare}", "state=drain", "reason=muster standby")
    drill = stack.post("drills", run="demo", kind="standby", worker_node=out, objective_seconds=60)
    ended = stack.finished(f"drills/{drill['id']}", 90)
    assert (ended["outcome"], ended["objective_state"]) == ("passed", "met"), ended["reason"]
    steps = {step["what"]: step for step in ended["steps"]}
    print({what: round(step["seconds"], 2) for what, step in steps.items()}, "spare in after", ended["seconds"])
    assert list(steps) == ["probe_spare", "drain_node", "bring_in", "gate", "return_node", "park_spare"]
    assert all(step["seconds"] >= 0 for step in steps.values())
    substitution = sum(steps[what]["seconds"] for what in ("probe_spare", "drain_node", "bring_in"))
    assert ended["seconds"] == pytest.approx(substitution, abs=0.01)
    checks = {check["name"]: check["is_fit"] for check in steps["probe_spare"]["detail"]["checks"]}
    assert checks == {"mounts": True, "free_space": True, "gpus": True, "agent_version": True, "reload_speed": None}
    assert steps["drain_node"]["detail"]["reason"] == f"muster drill {drill['id']}"
    states = {one["name"]: one for one in json.loads(slurm.run("sinfo", "--json"))["nodes"]}
    assert (states[out]["state_flags"], states[spare]["reason"]) == ([], "muster standby")
