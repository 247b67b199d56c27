"""Bodies and queries: transfers."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

CreateTransferKindEnum = Literal["move", "copy", "stage", "retire"]

MoverEnum = Literal["as_reached", "agents", "workers"]

ProofEnum = Literal["checksum", "read_back"]


class CreatePolicyRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    name: str
    hot_tier: str
    cold_tier: NotRequired[str | None]
    keep_newest: NotRequired[int]
    keep_every_steps: NotRequired[int | None]
    exempt_labels: NotRequired[list[str]]
    move_after_days: NotRequired[float | None]
    expire_after_days: NotRequired[float | None]
    high_water_ratio: NotRequired[float | None]
    low_water_ratio: NotRequired[float | None]
    optimizer_newest: NotRequired[int | None]
    proof: NotRequired[ProofEnum]
    where: NotRequired[MoverEnum]
    max_bytes_per_second: NotRequired[int | None]
    plan_only: NotRequired[bool]
    enabled: NotRequired[bool]
    cron: NotRequired[str]
    time_zone: NotRequired[str]
    on_complete: NotRequired[bool]
    cluster: str
    run: NotRequired[str | None]


class CreateTransferRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    placement: str
    kind: CreateTransferKindEnum
    tier: NotRequired[str | None]
    proof: NotRequired[ProofEnum]
    where: NotRequired[MoverEnum]
    max_bytes_per_second: NotRequired[int | None]


class Migration(TypedDict):
    """One run of a policy."""

    id: str
    policy: str
    policy_name: str
    planned_at: str | None
    plan_only: bool
    move_count: int
    retire_count: int
    expire_count: int
    stay_count: int
    moved_bytes: int
    freed_bytes: int
    estimated_seconds: float | None
    notes: list[str]
    requested_by: str
    created_at: str


class PatchedUpdatePolicyRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    name: NotRequired[str]
    hot_tier: NotRequired[str]
    cold_tier: NotRequired[str | None]
    keep_newest: NotRequired[int]
    keep_every_steps: NotRequired[int | None]
    exempt_labels: NotRequired[list[str]]
    move_after_days: NotRequired[float | None]
    expire_after_days: NotRequired[float | None]
    high_water_ratio: NotRequired[float | None]
    low_water_ratio: NotRequired[float | None]
    optimizer_newest: NotRequired[int | None]
    proof: NotRequired[ProofEnum]
    where: NotRequired[MoverEnum]
    max_bytes_per_second: NotRequired[int | None]
    plan_only: NotRequired[bool]
    enabled: NotRequired[bool]
    cron: NotRequired[str]
    time_zone: NotRequired[str]
    on_complete: NotRequired[bool]


class PlanLine(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    placement: str
    checkpoint: str
    run: str
    run_name: str
    step: int
    tier_name: str
    path: str
    action: str
    to_tier_name: str | None
    reasons: list[str]
    total_bytes: int
    moved_bytes: int
    freed_bytes: int
    without_optimizer: bool
    seconds: float | None


class Policy(TypedDict):
    """A retention policy. `plan_only`: it shows what it would do, and does nothing."""

    id: str
    cluster: str
    cluster_name: str
    run: str | None
    run_name: NotRequired[str | None]
    name: str
    hot_tier: str
    hot_tier_name: str
    cold_tier: str | None
    cold_tier_name: NotRequired[str | None]
    keep_newest: int
    keep_every_steps: int | None
    exempt_labels: list[str]
    move_after_days: float | None
    expire_after_days: float | None
    high_water_ratio: float | None
    low_water_ratio: float | None
    optimizer_newest: int | None
    proof: str
    where: str
    max_bytes_per_second: int | None
    plan_only: bool
    enabled: bool
    cron: str
    time_zone: str
    on_complete: bool
    next_at: str | None
    created_by: str
    created_at: str


class PolicyPlan(TypedDict):
    """What a policy would do now. `lines` holds what acts first, and at most 1000 of `line_count`."""

    move_count: int
    retire_count: int
    expire_count: int
    stay_count: int
    moved_bytes: int
    freed_bytes: int
    seconds: float | None
    notes: list[str]
    line_count: int
    lines: list[PlanLine]


class Transfer(TypedDict):
    """One transfer. `bytes_per_second` and `eta_seconds` are null where nothing was measured yet."""

    id: str
    cluster: str
    cluster_name: str
    checkpoint: str
    run_name: str
    step: int
    migration: str | None
    kind: str
    state: str
    resume_to: str
    source: str
    source_path: str
    source_tier_name: str
    target_tier: str | None
    target_tier_name: NotRequired[str | None]
    target_path: str
    target: str | None
    agent_name: NotRequired[str | None]
    without_optimizer: bool
    proof: str
    proof_detail: dict[str, Any]
    max_bytes_per_second: int | None
    reasons: list[str]
    problem: str
    problem_code: str
    attempts: int
    total_bytes: int
    copied_bytes: int
    proven_bytes: int
    bytes_per_second: float | None
    eta_seconds: float | None
    manifest: str | None
    requested_by: str
    created_at: str
    started_at: str | None
    finished_at: str | None
    next_attempt_at: str | None


class ListPoliciesQuery(TypedDict, total=False):
    """Of `list_policies`."""

    cluster: str
    cursor: str
    enabled: bool
    limit: int
    plan_only: bool
    run: str
    sort: Literal["created_at", "-created_at", "name", "-name"]


class ListPolicyMigrationsQuery(TypedDict, total=False):
    """Of `list_policy_migrations`."""

    cursor: str
    limit: int
    sort: Literal["created_at", "-created_at"]


class ListTransfersQuery(TypedDict, total=False):
    """Of `list_transfers`."""

    checkpoint: str
    cluster: str
    cursor: str
    kind: list[Literal["copy", "expire", "move", "retire", "stage"]]
    limit: int
    migration: str
    placement: str
    policy: str
    run: str
    sort: Literal["created_at", "-created_at"]
    state: list[
        Literal["cancelled", "copying", "done", "failed", "paused", "planned", "proving", "retiring", "switching"]
    ]
    tier: str
