"""Taking a cluster's inventory: asked of its scheduler and its agents, kept with the difference to the last one."""

from __future__ import annotations

import time
from datetime import timedelta

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.core.dispatch import enqueue
from apps.core.wakeups import announce
from apps.fleet.inventory import AgentFacts, Contents, changes, contents, without_agent
from apps.fleet.models import Agent, Cluster, ClusterInventory
from apps.fleet.schedulers.access import scheduler_of
from apps.fleet.schedulers.base import SchedulerError, Snapshot

MAX_CHANGES = 1000
TASK = "muster.control.inventory_cluster"


def wake_due() -> None:
    """Have a worker inventory every cluster whose time has come; each is claimed once, however many sweep."""
    if not settings.CLUSTER_INVENTORY_SECONDS:
        return
    now = timezone.now()
    next_at = now + timedelta(seconds=settings.CLUSTER_INVENTORY_SECONDS)
    for cluster in Cluster.objects.filter(Q(inventory_next_at=None) | Q(inventory_next_at__lte=now)):
        claimed = Cluster.objects.filter(pk=cluster.pk, inventory_next_at=cluster.inventory_next_at)
        if claimed.update(inventory_next_at=next_at) == 1:
            enqueue(TASK, cluster_id=cluster.pk)


def request_inventory(*, cluster: Cluster, actor: str) -> None:
    """Take one now, beside the schedule."""
    log_activity(
        actor=actor, action="cluster.inventory", target_kind="cluster", target_id=cluster.pk, cluster_id=cluster.pk
    )
    request_again(cluster)


def request_again(cluster: Cluster) -> None:
    """Take one now, since something was changed there."""
    enqueue(TASK, cluster_id=cluster.pk)


def take_inventory(cluster_id: str) -> ClusterInventory | None:
    """Ask scheduler and agents, and keep the answer. A scheduler that cannot be asked leaves a row that says why, and
    nothing in it counts as gone. None for a cluster that is no more."""
    cluster = Cluster.objects.filter(pk=cluster_id).first()
    if cluster is None:
        return None
    began, snapshot, error = time.monotonic(), None, ""
    try:
        scheduler = scheduler_of(cluster)
        snapshot = scheduler.snapshot() if scheduler else None
    except SchedulerError as problem:
        error = str(problem)
    found = contents(snapshot, _agents(cluster))
    return _keep(cluster, snapshot, found, error, time.monotonic() - began)


def newest(cluster: Cluster) -> ClusterInventory | None:
    return ClusterInventory.objects.filter(cluster=cluster).order_by("-taken_at", "-pk").first()


def newest_whole(cluster: Cluster) -> ClusterInventory | None:
    """The last one in which every side was asked."""
    return ClusterInventory.objects.filter(cluster=cluster, error="").order_by("-taken_at", "-pk").first()


def contents_of(row: ClusterInventory) -> Contents:
    return msgspec.convert(row.contents, Contents)


def _agents(cluster: Cluster) -> dict[str, AgentFacts]:
    rows = Agent.objects.filter(node__cluster=cluster).exclude(state=Agent.State.REVOKED).select_related("node")
    return {
        agent.node.name: AgentFacts(
            state=agent.state,
            version=agent.version,
            gpu_count=_whole(agent.node.facts.get("gpu_count")),
            file_systems=_texts(agent.node.facts.get("file_systems")),
        )
        for agent in rows
    }


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _texts(value: object) -> dict[str, str]:
    return {str(key): str(one) for key, one in value.items()} if isinstance(value, dict) else {}


@transaction.atomic
def _keep(cluster: Cluster, snapshot: Snapshot | None, found: Contents, error: str, seconds: float) -> ClusterInventory:
    last = newest_whole(cluster)
    differences = changes(contents_of(last), found) if last is not None and not error else []
    gpus = [node.scheduler.gpu_count if node.scheduler else _agents_gpus(node.agent) for node in found.nodes]
    row = ClusterInventory.objects.create(
        cluster=cluster,
        taken_at=timezone.now(),
        seconds=seconds,
        scheduler=cluster.scheduler,
        scheduler_version=snapshot.version if snapshot else "",
        error=error,
        node_count=len(found.nodes),
        usable_count=sum(node.scheduler.usable for node in found.nodes if node.scheduler),
        gpu_count=sum(filter(None, gpus)),
        job_count=len(found.jobs),
        change_count=len(differences),
        without_agent=without_agent(found.nodes),
        contents=msgspec.to_builtins(found),
        changes=msgspec.to_builtins(differences[:MAX_CHANGES]),
    )
    if not error:
        _thin_out(cluster, row)
    announce(f"cluster:{cluster.pk}")
    return row


def _agents_gpus(agent: AgentFacts | None) -> int | None:
    return agent.gpu_count if agent else None


def _thin_out(cluster: Cluster, newest_row: ClusterInventory) -> None:
    """Only the newest keeps everything; the others keep what changed, for as long as scans are kept."""
    older = ClusterInventory.objects.filter(cluster=cluster).exclude(pk=newest_row.pk)
    older.exclude(contents={}).update(contents={})
    if settings.SCAN_KEEP_DAYS:
        older.filter(taken_at__lt=newest_row.taken_at - timedelta(days=settings.SCAN_KEEP_DAYS)).delete()
