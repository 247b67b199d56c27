"""Nodes and clusters."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from apps.alerts.models import Alert
from apps.checkpoints.models import TrainingRun
from apps.dashboard.lists.spec import BY_NAME, NEWEST, ListSpec, Rows, by_field, by_half, by_id, by_text
from apps.fleet.access import scoped
from apps.fleet.models import Agent, Cluster, ClusterInventory, Node

NODES = ListSpec(
    name="nodes",
    noun="node",
    plural="nodes",
    rows=lambda request: scoped(request, Node.objects.select_related("cluster", "agent"), "cluster"),
    sorts=(*NEWEST, BY_NAME),
    choices=(by_field("state", "Agent", Agent.State.choices, "agent__state"),),
    search_for="Node or cluster",
    search=by_text("name", "cluster__name"),
    links={"cluster": by_id("cluster_id")},
    columns=(
        ("id", "pk"), ("name", "name"), ("cluster", "cluster.name"), ("agent_state", "agent.state"),
        ("agent_version", "agent.version"), ("last_seen_at", "agent.last_seen_at"),
        ("clock_offset_seconds", "agent.clock_offset_seconds"),
        ("roots", lambda row: " ".join(row.agent.roots) if hasattr(row, "agent") else ""),
        ("created_at", "created_at"),
    ),
)  # fmt: skip


def _count(rows: QuerySet[Any]) -> Coalesce:
    """How many of `rows` each cluster has; they name it `cluster`."""
    of_one = rows.filter(cluster=OuterRef("pk")).order_by().values("cluster")
    return Coalesce(Subquery(of_one.annotate(count=Count("pk")).values("count")), 0)


def _with_what_they_hold(rows: Rows) -> Rows:
    """Clusters with how much each holds, and when and how its scheduler was last asked."""
    taken = ClusterInventory.objects.filter(cluster=OuterRef("pk")).order_by("-taken_at")
    working = (Agent.State.ONLINE, Agent.State.BUSY)
    found: Rows = rows.annotate(
        node_count=_count(Node.objects.all()),
        agent_count=_count(Node.objects.filter(agent__isnull=False)),
        working_count=_count(Node.objects.filter(agent__state__in=working)),
        run_count=_count(TrainingRun.objects.filter(archived_at=None)),
        open_alert_count=_count(Alert.objects.filter(state=Alert.State.OPEN)),
        asked_at=Subquery(taken.values("taken_at")[:1]),
        asked_error=Subquery(taken.values("error")[:1]),
    )
    return found


CLUSTERS = ListSpec(
    name="clusters",
    noun="cluster",
    plural="clusters",
    rows=lambda request: scoped(request, Cluster.objects.all(), "pk"),
    dress=_with_what_they_hold,
    sorts=(BY_NAME, *NEWEST),
    choices=(
        by_field("scheduler", "Scheduler", Cluster.Scheduler.choices),
        by_half("disruption", "Disruptive drills", (("allowed", "Allowed"), ("off", "Off")), Q(allows_disruption=True)),
    ),
    search_for="Cluster name",
    search=by_text("name"),
    columns=(
        ("id", "pk"), ("name", "name"), ("scheduler", "scheduler"), ("gpu_count", "gpu_count"),
        ("gpu_hour_cost", "gpu_hour_cost"), ("allows_disruption", "allows_disruption"), ("node_count", "node_count"),
        ("agent_count", "agent_count"), ("working_agent_count", "working_count"), ("run_count", "run_count"),
        ("open_alert_count", "open_alert_count"), ("scheduler_asked_at", "asked_at"),
        ("scheduler_error", "asked_error"), ("created_at", "created_at"),
    ),
)  # fmt: skip
