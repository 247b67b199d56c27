"""Drills over the whole stack: web process, broker, Celery worker with beat, four real agents; only REST calls.

One stack serves all tests of this file, in order; the last one kills an agent.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from checkpoint_files import write_checkpoint
from live import REPOSITORY, LiveAgent, wait_until
from stack import Stack

SHARD_BYTES = 4 * 1024 * 1024


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Four agents, a tier, and one checkpoint that was scanned, sealed and verified."""
    folder = tmp_path_factory.mktemp("stack")
    running = Stack(folder)
    write_checkpoint(folder / "tier" / "run-1", 10, ranks=4, shard_bytes=SHARD_BYTES)
    names = [f"gpu-{number}" for number in range(1, 5)]
    running.agents = [LiveAgent(running.server, folder, name=name, roots=[folder / "tier"]).start() for name in names]
    tier = running.post("tiers/", cluster="contract", name="nvme", kind="local_nvme", uri=str(folder / "tier"))
    running.finished(f"scans/{running.post('scans', tier=tier['id'])['id']}/")
    [placement] = running.get("placements/")["items"]
    for mode in ("seal", "verify"):
        audit = running.finished(f"audits/{running.post('audits', placement=placement['id'], mode=mode)['id']}/")
        assert audit["outcome"] == "passed", audit
    yield running
    running.stop()


def test_a_reload_and_a_herd_drill_pass_and_answer_the_resume_point(stack: Stack) -> None:
    asked_at = time.time()
    reload = stack.finished(f"drills/{stack.post('drills', run='run-1', kind='reload')['id']}")
    assert (reload["outcome"], reload["verified"]) == ("passed", True), reload["reason"]
    assert reload["total_bytes"] >= 4 * SHARD_BYTES
    measured = [seconds for seconds in reload["phases"].values() if seconds is not None]
    assert sum(measured) + reload["unattributed_seconds"] == pytest.approx(reload["seconds"])
    ranks = stack.get(f"drills/{reload['id']}/ranks")["items"]
    assert [(row["ranks"], row["node_name"]) for row in ranks] == [([n], f"gpu-{n + 1}") for n in range(4)]
    starts = [datetime.fromisoformat(row["started_at"]).timestamp() for row in ranks]
    print(f"from POST to all four reading: {max(starts) - asked_at:.2f} s; skew {reload['start_skew_seconds']:.3f} s")
    assert max(starts) - asked_at <= 4.0  # the goal is 2 s on an idle machine; a busy suite may double it

    herd = stack.finished(f"drills/{stack.post('drills', run='run-1', kind='herd')['id']}")
    assert herd["outcome"] == "passed", herd["reason"]
    assert [rung["client_count"] for rung in herd["rungs"]] == [1, 2, 4]

    point = stack.get("runs/run-1/resume-point")
    assert (point["outcome"], point["step"], point["trust"]) == ("found", 10, "reloaded")
    assert point["predicted_seconds"] > 0


def test_a_running_drill_is_cancelled_within_ten_seconds(stack: Stack) -> None:
    drill = stack.post("drills", run="run-1", kind="reload", max_bytes_per_second=1_000_000)
    wait_until(lambda: stack.get(f"drills/{drill['id']}")["state"] == "running", 10, "the drill runs")
    time.sleep(1.0)
    asked_at = time.monotonic()
    stack.post(f"drills/{drill['id']}/cancel")
    assert stack.finished(f"drills/{drill['id']}")["outcome"] == "cancelled"
    assert time.monotonic() - asked_at <= 10


@pytest.fixture
def training(stack: Stack) -> Iterator[None]:
    """The demo's scheduler keeps a small job training on the first agent's node."""
    folder = stack.server.folder / "tier" / "demo"
    folder.mkdir()
    command = [sys.executable, "-m", "deploy.demo.scheduler", str(folder), "--run", "demo", "--slots", "one,two"]
    trainer = ["--size", "tiny", "--save-every", "10", "--min-step-seconds", "0.05"]
    with open(stack.server.folder / "scheduler.log", "ab") as log:
        scheduler = subprocess.Popen(
            [*command, "--", "--fresh-if-empty", "--", *trainer],
            env={**stack.agents[0].environment, "OMP_NUM_THREADS": "1"},
            cwd=REPOSITORY,
            stdout=log,
            stderr=log,
        )
    yield
    scheduler.terminate()
    scheduler.wait(30)


@pytest.mark.slow
def test_a_failover_of_a_really_training_job_is_timed_by_its_own_records(stack: Stack, training: None) -> None:
    cluster = stack.server.call("cluster", "contract")
    stack.patch(f"clusters/{cluster}/", allows_disruption=True)

    def is_training() -> bool:
        runs = stack.get("runs?name=demo")["items"]
        attempts = stack.get(f"runs/{runs[0]['id']}/attempts")["items"] if runs else []
        return any((attempt["last_step"] or 0) >= 25 for attempt in attempts)

    wait_until(is_training, 60, "the job trains")
    drill = stack.post("drills", run="demo", kind="failover", objective_seconds=120, deadline_seconds=60)
    ended = stack.finished(f"drills/{drill['id']}", 90)
    assert (ended["outcome"], ended["objective_state"]) == ("passed", "met"), ended["reason"]
    print({name: seconds for name, seconds in ended["phases"].items() if seconds is not None}, ended["seconds"])
    for phase in ("detect", "reschedule", "launch", "resolve", "allocate", "read", "materialize", "first_step"):
        assert ended["phases"][phase] is not None and ended["phases"][phase] >= 0, phase
    assert ended["phases"]["to_device"] is None
    measured = [seconds for seconds in ended["phases"].values() if seconds is not None]
    assert sum(measured) + ended["unattributed_seconds"] == pytest.approx(ended["seconds"])
    assert ended["unattributed_seconds"] < 0.5 * ended["seconds"]
    assert ended["facts"]["first_step"] == ended["checkpoint_step"] + 1
    # the fault may come just after a save, and then no step is lost
    assert ended["lost_steps"] is not None and ended["lost_steps"] >= 0 and ended["lost_seconds"] >= 0
    assert stack.get("incidents")["items"] == []


@pytest.mark.slow
def test_an_agent_that_is_killed_in_the_middle_is_named(stack: Stack) -> None:
    drill = stack.post("drills", run="run-1", kind="reload", max_bytes_per_second=1_000_000, node_count=4)
    wait_until(lambda: stack.get(f"drills/{drill['id']}")["state"] == "running", 10, "the drill runs")
    time.sleep(1.0)
    stack.agents[2].kill()
    ended = stack.finished(f"drills/{drill['id']}", 100)
    assert ended["outcome"] == "lost"
    assert ended["reason"].startswith("gpu-3 (rank 2) was lost")
