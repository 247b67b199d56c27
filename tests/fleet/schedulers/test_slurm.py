"""The adapter against a real Slurm of four nodes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from servers.slurm import Slurm as SlurmServer

from apps.fleet.schedulers.base import SchedulerError
from apps.fleet.schedulers.slurm import Slurm


@pytest.fixture
def adapter(slurm: SlurmServer) -> Slurm:
    return Slurm(str(slurm.configuration))


def test_nodes_partitions_and_jobs_are_listed(slurm: SlurmServer, adapter: Slurm, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\nsleep 60\n")
    job_id = slurm.submit(script, "--job-name=llama", "--nodes=2", "--output=/dev/null")
    try:
        found = adapter.snapshot()
    finally:
        slurm.run("scancel", job_id)
    assert [node.name for node in found.nodes] == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]
    assert [(job.job_id, job.name) for job in found.jobs] == [(job_id, "llama")]
    assert [(one.name, one.state, one.node_count) for one in found.partitions] == [("train", "up", 4)]
    assert found.version.count(".") == 2


def test_a_node_is_drained_and_comes_back(adapter: Slurm) -> None:
    adapter.drain("gpu-4", "muster standby")
    parked = adapter.node("gpu-4")
    assert (parked.usable, parked.parked, parked.reason) == (False, True, "muster standby")
    adapter.resume("gpu-4")
    deadline = time.monotonic() + 10  # until the controller has heard of the node again
    while not adapter.node("gpu-4").usable:
        assert time.monotonic() < deadline, adapter.node("gpu-4")
        time.sleep(0.1)
    adapter.resume("gpu-4")  # what is in use already stays so


def test_failing_a_node_requeues_its_job_and_slurm_says_until_when_it_holds_it(
    slurm: SlurmServer, adapter: Slurm, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\nsrun --mpi=none sleep 60\n")
    job_id = slurm.submit(script, "--requeue", "--nodelist=gpu-1", "--output=/dev/null")
    try:
        slurm.wait_for_state("mixed", count=1)
        adapter.fail("gpu-1", "muster drill")
        job = adapter.job(job_id)
        adapter.resume("gpu-1")
    finally:
        slurm.run("scancel", job_id)
    assert job is not None
    assert (job.state, job.restart_count) == ("pending", 1)
    assert job.submitted_at is not None
    assert job.eligible_at is not None
    hold = adapter.requeue_hold_seconds()
    assert hold == 6.0
    assert (job.eligible_at - job.submitted_at).total_seconds() == pytest.approx(hold, abs=1)


def test_what_slurm_refuses_is_said_in_its_words(adapter: Slurm) -> None:
    with pytest.raises(SchedulerError, match="Invalid node name"):
        adapter.drain("gpu-9", "no such node")
    with pytest.raises(SchedulerError, match="not one node's name"):
        adapter.drain("gpu-[1-4]", "all of them")
    with pytest.raises(SchedulerError, match="knows no node gpu-9"):
        adapter.node("gpu-9")
    assert adapter.job("4711") is None


def test_a_slurm_that_is_not_there_is_unavailable_and_not_empty(tmp_path: Path) -> None:
    with pytest.raises(SchedulerError, match="MUSTER_SCHEDULERS"):
        Slurm(str(tmp_path / "slurm.conf")).snapshot()
