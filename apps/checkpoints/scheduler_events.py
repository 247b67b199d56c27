"""What a scheduler says of the jobs that runs train in, recorded beside what their hooks say: requeues."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from apps.checkpoints.models import RunAttempt, RunEvent
from apps.fleet import cluster_inventory
from apps.fleet.models import Cluster
from apps.fleet.schedulers.base import SchedulerJob

REQUEUED, ELIGIBLE, JOB_STARTED = "requeued", "eligible", "job_started"
SCHEDULER_KINDS = (REQUEUED, ELIGIBLE, JOB_STARTED)
"""Of a launch that has ended: none of them is a sign of its life."""


def follow_jobs(cluster_id: str) -> int:
    """Record the requeues that the cluster's newest inventory shows; gives how many launches they ended."""
    cluster = Cluster.objects.filter(pk=cluster_id).first()
    row = cluster_inventory.newest_whole(cluster) if cluster else None
    jobs = {job.job_id: job for job in cluster_inventory.contents_of(row).jobs} if row else {}
    requeued = [job_id for job_id, job in jobs.items() if job.restart_count]
    attempts = RunAttempt.objects.filter(run__cluster_id=cluster_id, job_id__in=requeued)
    return sum(note_requeue(attempt, jobs[attempt.job_id]) for attempt in attempts)


@transaction.atomic
def note_requeue(attempt: RunAttempt, job: SchedulerJob) -> bool:
    """Record when the scheduler requeued `attempt`'s job, how long it held it, and when it started it again. Only the
    requeue that ended this very launch. Noting again adds what has come since. False: it did not end by one."""
    if attempt.job_restart_count is None or job.restart_count != attempt.job_restart_count + 1:
        return False
    if job.submitted_at is None:
        return False
    started_at = job.started_at if job.nodes else None  # while it waits, Slurm gives the time that it plans with
    for number, at in enumerate((job.submitted_at, job.eligible_at, started_at)):
        if at is not None:
            _note(attempt, job, number, at)
    if attempt.ended_at is None:
        RunAttempt.objects.filter(pk=attempt.pk, ended_at=None).update(ended_at=job.submitted_at)
    return True


def _note(attempt: RunAttempt, job: SchedulerJob, number: int, at: datetime) -> None:
    RunEvent.objects.update_or_create(
        source=f"job:{job.job_id}:{attempt.pk}"[:64],
        seq=number,
        defaults={
            "run_id": attempt.run_id,
            "attempt": attempt,
            "kind": SCHEDULER_KINDS[number],
            "at": at,
            "mono_seconds": 0.0,
            "data": {"by": "scheduler", "job_id": job.job_id, "resolution_seconds": 1},
        },
    )
