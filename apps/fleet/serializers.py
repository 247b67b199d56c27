"""Clusters, nodes, agents, join tokens and tasks on the wire."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.core.serializers import StrictSerializer, WholeNumberField
from apps.fleet.models import Agent, AgentEvent, AgentTask, Cluster, ClusterInventory, JoinToken, Node
from apps.fleet.services import MAX_JOIN_TOKEN_HOURS, MAX_JOIN_TOKEN_USES


class ClusterSerializer(serializers.ModelSerializer[Cluster]):
    scheduler = serializers.CharField(help_text="none, slurm or kubernetes")

    class Meta:
        model = Cluster
        fields = ["id", "name", "scheduler", "gpu_count", "gpu_hour_cost", "allows_disruption", "created_at"]
        read_only_fields = fields


class UpdateClusterSerializer(StrictSerializer):
    scheduler = serializers.ChoiceField(choices=Cluster.Scheduler.choices, required=False)
    gpu_count = WholeNumberField(min_value=0, max_value=10_000_000, allow_null=True, required=False)
    gpu_hour_cost = serializers.DecimalField(
        max_digits=10, decimal_places=4, min_value=0, allow_null=True, required=False
    )
    allows_disruption = serializers.BooleanField(
        required=False, help_text="Disruptive drills are off until this is true."
    )


class CreateClusterSerializer(UpdateClusterSerializer):
    name = serializers.SlugField(max_length=63)


class ClusterInventorySerializer(serializers.ModelSerializer[ClusterInventory]):
    """`without_agent`: the scheduler's nodes that no agent has joined from. `usable_count`: nodes on which the
    scheduler places new work. `error`: why it could not be asked."""

    scheduler = serializers.CharField(help_text="none, slurm or kubernetes")
    without_agent = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = ClusterInventory
        fields = [
            "id", "cluster", "taken_at", "seconds", "scheduler", "scheduler_version", "error", "node_count",
            "usable_count", "gpu_count", "job_count", "change_count", "without_agent",
        ]  # fmt: skip
        read_only_fields = fields


class ClusterInventoryDetailSerializer(ClusterInventorySerializer):
    """`contents`: `nodes`, `partitions` and `jobs`, in the newest inventory only (else empty). A node has `name`, what
    the `scheduler` and the `agent` say of it (null where that side does not know it), and `problems` as sentences.
    `changes` since the one before: `kind` (node, partition, job), `name`, `what` (appeared, vanished, changed),
    `field`, `before`, `after`."""

    contents = serializers.DictField()
    changes = serializers.ListField(child=serializers.DictField())

    class Meta(ClusterInventorySerializer.Meta):
        fields = [*ClusterInventorySerializer.Meta.fields, "contents", "changes"]


class AgentSerializer(serializers.ModelSerializer[Agent]):
    """`clock_offset_seconds`: the server's clock minus the node's; null until the agent knows it."""

    node_name = serializers.CharField(source="node.name")
    cluster = serializers.CharField(source="node.cluster_id")
    state = serializers.CharField(help_text=", ".join(Agent.State.values))
    roots = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = Agent
        fields = [
            "id", "node", "node_name", "cluster", "state", "version", "protocol", "roots", "free_slots",
            "clock_offset_seconds", "drain_requested_at", "enrolled_at", "last_seen_at",
        ]  # fmt: skip
        read_only_fields = fields


class NodeSerializer(serializers.ModelSerializer[Node]):
    agent = AgentSerializer(read_only=True, allow_null=True)
    facts = serializers.DictField()

    class Meta:
        model = Node
        fields = ["id", "cluster", "name", "facts", "created_at", "agent"]
        read_only_fields = fields


class JoinTokenSerializer(serializers.ModelSerializer[JoinToken]):
    class Meta:
        model = JoinToken
        fields = ["id", "cluster", "max_uses", "uses", "cidr", "created_by", "created_at", "expires_at", "revoked_at"]
        read_only_fields = fields


class NewJoinTokenSerializer(JoinTokenSerializer):
    """A join token just made: the only time its secret is shown."""

    secret = serializers.CharField(read_only=True)

    class Meta(JoinTokenSerializer.Meta):
        fields = [*JoinTokenSerializer.Meta.fields, "secret"]


class CreateJoinTokenSerializer(StrictSerializer):
    cluster = serializers.CharField(max_length=40, help_text="The cluster's id.")
    max_uses = WholeNumberField(
        min_value=1, max_value=MAX_JOIN_TOKEN_USES, default=1, help_text="More than 1: each agent waits for approval."
    )
    hours = serializers.FloatField(min_value=0.01, max_value=MAX_JOIN_TOKEN_HOURS, default=MAX_JOIN_TOKEN_HOURS)
    cidr = serializers.CharField(max_length=64, default="", allow_blank=True, help_text="Admit only this network.")


class RevokeAgentSerializer(StrictSerializer):
    reason = serializers.CharField(max_length=500, default="", allow_blank=True)


class AgentTaskSerializer(serializers.ModelSerializer[AgentTask]):
    """`attempt` counts hand-outs, `runs` those that the agent took up."""

    node_name = serializers.CharField(source="agent.node.name")
    state = serializers.CharField(help_text=", ".join(AgentTask.State.values))
    outcome = serializers.CharField(help_text="Empty until the task has finished.")
    progress = serializers.DictField()

    class Meta:
        model = AgentTask
        fields = [
            "id", "agent", "node_name", "group", "owner_kind", "owner_id", "kind", "state", "outcome", "attempt",
            "runs", "idempotent", "error", "error_code", "progress", "dropped_events", "lease_expires_at", "ready_at",
            "cancel_requested_at", "created_at", "started_at", "finished_at",
        ]  # fmt: skip
        read_only_fields = fields


class AgentTaskDetailSerializer(AgentTaskSerializer):
    """`result` is null again once its owner has taken it over; `late_results` never count."""

    params = serializers.DictField()
    result = serializers.DictField(allow_null=True)
    late_results = serializers.ListField(child=serializers.DictField())

    class Meta(AgentTaskSerializer.Meta):
        fields = [*AgentTaskSerializer.Meta.fields, "params", "result", "late_results"]


class AgentEventSerializer(serializers.ModelSerializer[AgentEvent]):
    data = serializers.DictField()  # type: ignore[assignment]

    class Meta:
        model = AgentEvent
        fields = ["id", "attempt", "seq", "kind", "at", "mono_seconds", "phase", "edge", "rank", "data"]
        read_only_fields = fields


def new_join_token(token: JoinToken, secret: str) -> dict[str, Any]:
    """The answer to a creation."""
    return {**JoinTokenSerializer(token).data, "secret": secret}
