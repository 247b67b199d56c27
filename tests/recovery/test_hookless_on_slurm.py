"""A job under a real Slurm that imports nothing of Muster: steps from its log, requeues from Slurm itself, and the
incidents and failover drills that come of them. The agent's follower, the rows and the drill's engine are the real
ones, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import factories
import pytest
from muster_agent.hooks.log_follower import LogFollower
from muster_agent.hooks.step_patterns import StepLog
from servers.slurm import Slurm

from apps.checkpoints.hooks import ingest_records
from apps.checkpoints.models import RunAttempt, TrainingRun
from apps.checkpoints.scheduler_events import follow_jobs
from apps.drills import engine, preview, services
from apps.drills.models import Drill
from apps.fleet import cluster_inventory
from apps.recovery.models import Incident, Recovery
from apps.recovery.services import follow_runs

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
TRAINER = """#!/bin/bash
# "Trains" by counting; what it has saved is a number in a file.
step=$(cat "$SAVED" 2>/dev/null || echo 0)
echo "loaded checkpoint from $SAVED [ t 1, p 1 ] at iteration $step"
while :; do
  sleep 0.1
  step=$((step + 1))
  echo " iteration $step/ 1000000 | lm loss: 2.5"
  [ $((step % 10)) = 0 ] && echo "$step" > "$SAVED"
done
"""


class Job:
    """The job, the cluster with an agent on each node, and the agent that reads the log."""

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        self.slurm, self.folder = slurm, folder
        self.cluster = factories.cluster("demo", scheduler="slurm", allows_disruption=True)
        self.agents = [factories.agent(factories.node(self.cluster, name)) for name in slurm.node_names]
        log = StepLog(
            run="megatron",
            path=str(folder / "slurm-%j.out"),
            step=r"iteration\s+(?P<step>\d+)/",
            resumed=r"loaded checkpoint from (?P<path>\S+).* at iteration (?P<step>\d+)",
        )
        self.follower = LogFollower((log,), folder / "state.json")
        self.follower.read_new()
        (folder / "trainer.sh").write_text(TRAINER)
        options = ("--requeue", "--open-mode=append", f"--output={folder}/slurm-%j.out")
        self.id = slurm.submit(folder / "trainer.sh", *options, SAVED=str(folder / "saved"))

    def pump(self) -> None:
        """What the agent's forwarder does every fifth of a second."""
        records = self.follower.read_new()
        ingest_records(agent=self.agents[0], records=records)
        self.follower.sent(records)

    def until(self, done: Callable[[], Any], what: str, seconds: float = 90.0) -> Any:
        deadline = time.monotonic() + seconds
        while True:
            self.pump()
            if found := done():
                return found
            assert time.monotonic() < deadline, f"{what}; {list(RunAttempt.objects.values())}"
            time.sleep(0.1)

    def trains(self, restart_count: int) -> Callable[[], bool]:
        """Twelve steps of the launch after so many requeues: it has saved, and goes on."""
        mine = RunAttempt.objects.filter(job_id=self.id, job_restart_count=restart_count)
        return lambda: any((one.last_step or 0) >= (one.resumed_from_step or 0) + 12 for one in mine.all())

    def inventory(self) -> None:
        cluster_inventory.take_inventory(self.cluster.pk)
        follow_jobs(self.cluster.pk)


@pytest.fixture
def job(slurm: Slurm, tmp_path: Path, settings: Any) -> Iterator[Job]:
    settings.SCHEDULERS = {"demo": str(slurm.configuration)}
    running = Job(slurm, tmp_path)
    yield running
    slurm.run("scancel", running.id)


def test_a_requeue_by_hand_is_an_incident_with_the_way_back_that_log_and_scheduler_tell(job: Job) -> None:
    job.until(job.trains(0), "the job trains")
    began = time.time()
    job.until(lambda: time.time() > began + 2, "two seconds more, as Slurm tells whole ones")
    job.slurm.run("scontrol", "requeue", job.id)

    def closed() -> Recovery | None:
        job.inventory()
        follow_runs()
        return Recovery.objects.filter(state=Recovery.State.CLOSED).first()

    recovery = job.until(closed, "the recovery is closed")
    incident = Incident.objects.get()
    assert incident.ended_attempt is not None and incident.ended_attempt.job_restart_count == 0
    assert incident.detected_at is not None, "Slurm's requeue is what detected it"
    print(recovery.time_to_resume_seconds, recovery.phases, recovery.unattributed_seconds)
    assert job.slurm.cred_expire_seconds <= recovery.time_to_resume_seconds <= time.time() - began + 1
    # Slurm tells whole seconds: what a job did in the second in which it died may be unknown, and is then not guessed.
    assert recovery.checkpoint_step % 10 == 0 and (recovery.lost_steps is None or recovery.lost_steps >= 0)


def test_a_failover_of_its_node_is_measured_to_the_first_step_beyond_the_checkpoint(job: Job) -> None:
    job.until(job.trains(0), "the job trains")
    job.inventory()
    [before] = job.slurm.job(job.id)["nodes"].split(",")
    run = TrainingRun.objects.get(name="megatron")
    told = preview.preview(run, {"kind": "failover", "fault": "node"})
    assert (told.refusals, told.outlook.candidates) == ((), (before,)), "the node of its job, wherever its log is read"
    drill = services.create_drill(run=run, spec={"kind": "failover", "fault": "node"}, actor="olga")

    def finished() -> bool:
        engine.advance(drill.pk)
        drill.refresh_from_db()
        return drill.state == Drill.State.FINISHED and not drill.restore_node

    job.until(finished, "the drill has finished")
    assert drill.outcome == "passed", drill.reason
    assert (drill.facts["node"], drill.checkpoint_step is not None) == (before, True)
    assert drill.facts["first_step"] == (drill.checkpoint_step or 0) + 1
    print(drill.seconds, drill.phases, drill.unattributed_seconds)
    assert {"detect", "first_step"} <= set(drill.phases)
    assert sum(drill.phases.values()) + (drill.unattributed_seconds or 0) == pytest.approx(drill.seconds)
    assert "launch" not in drill.phases, "nobody told of it, so it is not measured"
    job.slurm.wait_for_state("down", count=0)
    follow_runs()
    assert not Incident.objects.exists(), "a drill's fault is no incident"
