"""Bodies and queries: fleet."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

SchedulerEnum = Literal["none", "slurm", "kubernetes"]

WhatEnum = Literal["park", "bring_back"]


class Agent(TypedDict):
    """`clock_offset_seconds`: the server's clock minus the node's; null until the agent knows it."""

    id: str
    node: str
    node_name: str
    cluster: str
    state: str
    version: str
    protocol: int
    roots: list[str]
    free_slots: int
    clock_offset_seconds: float | None
    drain_requested_at: str | None
    enrolled_at: str
    last_seen_at: str | None


class AgentTask(TypedDict):
    """`attempt` counts hand-outs, `runs` those that the agent took up."""

    id: str
    agent: str
    node_name: str
    group: str | None
    owner_kind: str
    owner_id: str
    kind: str
    state: str
    outcome: str
    attempt: int
    runs: int
    idempotent: bool
    error: str
    error_code: str
    progress: dict[str, Any]
    dropped_events: int
    lease_expires_at: str | None
    ready_at: str | None
    cancel_requested_at: str | None
    created_at: str
    started_at: str | None
    finished_at: str | None


class AgentTaskDetail(TypedDict):
    """`result` is null again once its owner has taken it over; `late_results` never count."""

    id: str
    agent: str
    node_name: str
    group: str | None
    owner_kind: str
    owner_id: str
    kind: str
    state: str
    outcome: str
    attempt: int
    runs: int
    idempotent: bool
    error: str
    error_code: str
    progress: dict[str, Any]
    dropped_events: int
    lease_expires_at: str | None
    ready_at: str | None
    cancel_requested_at: str | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    params: dict[str, Any]
    result: dict[str, Any] | None
    late_results: list[dict[str, Any]]


class Cluster(TypedDict):
    id: str
    name: str
    scheduler: str
    gpu_count: int | None
    gpu_hour_cost: str | None
    allows_disruption: bool
    created_at: str


class ClusterInventory(TypedDict):
    """`without_agent`: the scheduler's nodes that no agent has joined from. `usable_count`: nodes on which the
    scheduler places new work. `error`: why it could not be asked.
    """

    id: str
    cluster: str
    taken_at: str
    seconds: float
    scheduler: str
    scheduler_version: str
    error: str
    node_count: int
    usable_count: int
    gpu_count: int
    job_count: int
    change_count: int
    without_agent: list[str]


class ClusterInventoryDetail(TypedDict):
    """`contents`: `nodes`, `partitions` and `jobs`, in the newest inventory only (else empty). A node has `name`,
    what the `scheduler` and the `agent` say of it (null where that side does not know it), and `problems` as
    sentences. `changes` since the one before: `kind` (node, partition, job), `name`, `what` (appeared, vanished,
    changed), `field`, `before`, `after`.
    """

    id: str
    cluster: str
    taken_at: str
    seconds: float
    scheduler: str
    scheduler_version: str
    error: str
    node_count: int
    usable_count: int
    gpu_count: int
    job_count: int
    change_count: int
    without_agent: list[str]
    contents: dict[str, Any]
    changes: list[dict[str, Any]]


class CreateClusterRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    scheduler: NotRequired[SchedulerEnum]
    gpu_count: NotRequired[int | None]
    gpu_hour_cost: NotRequired[str | None]
    allows_disruption: NotRequired[bool]
    name: str


class CreateJoinTokenRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    cluster: str
    max_uses: NotRequired[int]
    hours: NotRequired[float]
    cidr: NotRequired[str]


class CreateNodeActionRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    cluster: str
    node_name: str
    what: WhatEnum


class JoinToken(TypedDict):
    id: str
    cluster: str
    max_uses: int
    uses: int
    cidr: str
    created_by: str
    created_at: str
    expires_at: str
    revoked_at: str | None


class NewJoinToken(TypedDict):
    """A join token just made: the only time its secret is shown."""

    id: str
    cluster: str
    max_uses: int
    uses: int
    cidr: str
    created_by: str
    created_at: str
    expires_at: str
    revoked_at: str | None
    secret: str


class Node(TypedDict):
    id: str
    cluster: str
    name: str
    facts: dict[str, Any]
    created_at: str
    agent: Agent | None


class NodeAction(TypedDict):
    """One node parked as a spare or brought back. `outcome`: done, refused (nothing was changed; `reason` says why)
    or failed (the scheduler did not come to it in time).
    """

    id: str
    cluster: str
    node_name: str
    what: str
    state: str
    outcome: str
    reason: str
    checks: list[dict[str, Any]]
    requested_by: str
    created_at: str
    finished_at: str | None


class PatchedUpdateClusterRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    scheduler: NotRequired[SchedulerEnum]
    gpu_count: NotRequired[int | None]
    gpu_hour_cost: NotRequired[str | None]
    allows_disruption: NotRequired[bool]


class PatchedUpdateRulesRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    needs_approval: NotRequired[bool]
    plan_only: NotRequired[bool]
    windows: NotRequired[list[str]]
    time_zone: NotRequired[str]
    max_nodes: NotRequired[int | None]
    max_tier_ratio: NotRequired[float | None]
    breaker_failures: NotRequired[int]
    protected_runs: NotRequired[list[str]]


class RevokeAgentRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    reason: NotRequired[str]


class Rules(TypedDict):
    """What drills may do on one cluster. `allows_disruption` is the cluster's own."""

    cluster: str
    allows_disruption: bool
    needs_approval: bool
    plan_only: bool
    windows: list[str]
    time_zone: str
    max_nodes: int | None
    max_tier_ratio: float | None
    breaker_failures: int
    breaker_reset_at: str | None
    breaker_is_open: bool
    protected_runs: list[str]


class ListAgentsQuery(TypedDict, total=False):
    """Of `list_agents`."""

    cluster: str
    cursor: str
    limit: int
    node: str
    sort: Literal["enrolled_at", "-enrolled_at"]
    state: Literal["busy", "draining", "incompatible", "lost", "online", "pending", "revoked", "stale"]


class ListClusterInventoriesQuery(TypedDict, total=False):
    """Of `list_cluster_inventories`."""

    cluster: str
    cursor: str
    limit: int
    sort: Literal["taken_at", "-taken_at"]


class ListClustersQuery(TypedDict, total=False):
    """Of `list_clusters`."""

    cursor: str
    limit: int
    name: str
    sort: Literal["name", "-name", "created_at", "-created_at"]


class ListJoinTokensQuery(TypedDict, total=False):
    """Of `list_join_tokens`."""

    cluster: str
    cursor: str
    limit: int
    sort: Literal["created_at", "-created_at"]


class ListNodeActionsQuery(TypedDict, total=False):
    """Of `list_node_actions`."""

    cluster: str
    cursor: str
    limit: int
    node_name: str
    sort: Literal["created_at", "-created_at"]


class ListNodesQuery(TypedDict, total=False):
    """Of `list_nodes`."""

    cluster: str
    cursor: str
    limit: int
    name: str
    sort: Literal["name", "-name", "created_at", "-created_at"]
    state: Literal["busy", "draining", "incompatible", "lost", "online", "pending", "revoked", "stale"]


class ListTasksQuery(TypedDict, total=False):
    """Of `list_tasks`."""

    agent: str
    cursor: str
    kind: Literal[
        "bandwidth", "ceiling", "copy", "disrupt", "inventory", "loader_compare", "probe", "reload", "seal", "verify"
    ]
    limit: int
    owner_id: str
    owner_kind: str
    sort: Literal["created_at", "-created_at"]
    state: Literal["acked", "cancelling", "done", "leased", "lost", "orphaned", "queued", "reported", "running"]


class ListTaskEventsQuery(TypedDict, total=False):
    """Of `list_task_events`."""

    cursor: str
    limit: int
    sort: Literal["id", "-id"]
