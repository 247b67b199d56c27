"""Reading fleet: which agents can take work, and which of them reach a place."""

from __future__ import annotations

from pathlib import PurePosixPath

from django.db.models import QuerySet

from apps.fleet.models import Agent, Cluster

USABLE = (Agent.State.ONLINE, Agent.State.BUSY)


def usable_agents(cluster: Cluster | str) -> QuerySet[Agent]:
    """Agents that can take work now, by node name."""
    cluster_id = cluster if isinstance(cluster, str) else cluster.pk
    rows = Agent.objects.filter(node__cluster_id=cluster_id, state__in=USABLE, drain_requested_at=None)
    return rows.select_related("node").order_by("node__name")


def agents_reaching(tier_uri_path: str, cluster: Cluster | str) -> list[Agent]:
    """Usable agents with a root that contains the path. Whether they really can read it, the work itself shows."""
    return [agent for agent in usable_agents(cluster) if contains(agent.roots, tier_uri_path)]


def contains(roots: list[str], path: str) -> bool:
    """Whether one of the roots is the path or a folder above it, component by component."""
    wanted = PurePosixPath(path)
    return ".." not in wanted.parts and any(wanted.is_relative_to(root) for root in roots)
