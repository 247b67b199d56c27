"""Which scheduler a cluster has, and how it is reached: the deployment says so, never a row that users can write."""

from __future__ import annotations

from django.conf import settings

from apps.fleet.models import Cluster
from apps.fleet.schedulers.base import Scheduler, SchedulerError
from apps.fleet.schedulers.kubernetes import Kubernetes
from apps.fleet.schedulers.slurm import Slurm
from apps.fleet.schedulers.slurm_rest import SlurmRest


def scheduler_of(cluster: Cluster) -> Scheduler | None:
    """None for a cluster without one. Raises SchedulerError where it is not configured."""
    if cluster.scheduler == Cluster.Scheduler.NONE:
        return None
    path = settings.SCHEDULERS.get(cluster.name)
    if path is None:
        raise SchedulerError(
            f"How to reach the scheduler of {cluster.name} is not configured: add `{cluster.name}=/path/to/slurm.conf` "
            "(or a kubeconfig in JSON, or how slurmrestd is reached) to MUSTER_SCHEDULERS where the workers run."
        )
    if cluster.scheduler == Cluster.Scheduler.KUBERNETES:
        return Kubernetes(path)
    return SlurmRest(path) if path.endswith(".json") else Slurm(path)


def required_scheduler(cluster: Cluster) -> Scheduler:
    """As `scheduler_of`, for what cannot be done without one. Raises SchedulerError."""
    scheduler = scheduler_of(cluster)
    if scheduler is None:
        raise SchedulerError(f"{cluster.name} has no scheduler: set the cluster's scheduler to slurm or kubernetes.")
    return scheduler
