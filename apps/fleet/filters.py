"""What lists of fleet can be narrowed by; pages and API use the same."""

from __future__ import annotations

import django_filters
from muster_agent.protocol.wire import TaskKind

from apps.fleet.models import Agent, AgentTask, Cluster, ClusterInventory, JoinToken, Node


class ClusterFilter(django_filters.FilterSet):  # type: ignore[misc]  # the package ships no types
    name = django_filters.CharFilter()

    class Meta:
        model = Cluster
        fields = ["name"]


class NodeFilter(django_filters.FilterSet):  # type: ignore[misc]  # the package ships no types
    cluster = django_filters.CharFilter(field_name="cluster_id")
    name = django_filters.CharFilter()
    state = django_filters.ChoiceFilter(field_name="agent__state", choices=Agent.State.choices)

    class Meta:
        model = Node
        fields = ["cluster", "name", "state"]


class AgentFilter(django_filters.FilterSet):  # type: ignore[misc]  # the package ships no types
    cluster = django_filters.CharFilter(field_name="node__cluster_id")
    node = django_filters.CharFilter(field_name="node_id")
    state = django_filters.ChoiceFilter(choices=Agent.State.choices)

    class Meta:
        model = Agent
        fields = ["cluster", "node", "state"]


class JoinTokenFilter(django_filters.FilterSet):  # type: ignore[misc]  # the package ships no types
    cluster = django_filters.CharFilter(field_name="cluster_id")

    class Meta:
        model = JoinToken
        fields = ["cluster"]


class AgentTaskFilter(django_filters.FilterSet):  # type: ignore[misc]  # the package ships no types
    agent = django_filters.CharFilter(field_name="agent_id")
    owner_kind = django_filters.CharFilter()
    owner_id = django_filters.CharFilter()
    kind = django_filters.ChoiceFilter(choices=[(kind.value, kind.value) for kind in TaskKind])
    state = django_filters.ChoiceFilter(choices=AgentTask.State.choices)

    class Meta:
        model = AgentTask
        fields = ["agent", "owner_kind", "owner_id", "kind", "state"]


class ClusterInventoryFilter(django_filters.FilterSet):  # type: ignore[misc]  # the package ships no types
    cluster = django_filters.CharFilter(field_name="cluster_id")

    class Meta:
        model = ClusterInventory
        fields = ["cluster"]
