"""Agents and their work, for `/metrics`."""

from __future__ import annotations

from django.db.models import Count, Min
from django.utils import timezone

from apps.core.metrics import Families, counter, gauge
from apps.fleet.models import Agent, AgentTask


def families() -> Families:
    agents = Agent.objects.values_list("node__cluster__name", "state").annotate(count=Count("pk")).order_by()
    yield gauge(
        "muster_agents",
        "Agents by the state that the control plane knows.",
        ("cluster", "state"),
        (((cluster, state), count) for cluster, state, count in agents),
    )
    open_tasks = AgentTask.objects.exclude(state__in=AgentTask.FINISHED)
    waiting = open_tasks.values_list("agent__node__cluster__name", "kind", "state").order_by()
    yield gauge(
        "muster_agent_tasks",
        "Unfinished tasks of agents.",
        ("cluster", "kind", "state"),
        (((cluster, kind, state), count) for cluster, kind, state, count in waiting.annotate(count=Count("pk"))),
    )
    oldest = open_tasks.filter(state=AgentTask.State.QUEUED).aggregate(at=Min("created_at"))["at"]
    yield gauge(
        "muster_agent_task_oldest_wait_seconds",
        "How long the longest waiting task has not been taken by its agent; 0 without one.",
        (),
        [((), (timezone.now() - oldest).total_seconds() if oldest else 0.0)],
    )
    ended = AgentTask.objects.filter(state__in=AgentTask.FINISHED).values_list("kind", "outcome").order_by()
    yield counter(
        "muster_agent_tasks_finished",
        "Tasks of agents that ended, by how.",
        ("kind", "outcome"),
        (((kind, outcome), count) for kind, outcome, count in ended.annotate(count=Count("pk"))),
    )
