"""Bodies and queries: audits."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from muster_agent.rest.types.shared import MissedEnum

AuditModeEnum = Literal["seal", "verify", "structure", "store"]

AuditPolicyModeEnum = Literal["structure", "sample", "full"]

WhereEnum = Literal["as_scanned", "agents", "workers"]


class Audit(TypedDict):
    id: str
    placement: str
    checkpoint: str
    run_name: str
    step: int
    path: str
    policy: str | None
    round: str | None
    agent: str | None
    ran_by: str
    mode: str
    manifest: str | None
    sample_ratio: float
    seed: int
    turn: int
    max_bytes_per_second: int | None
    through_cache: bool
    state: str
    outcome: str
    reason: str
    checked_bytes: int | None
    checked_chunks: int | None
    total_chunks: int | None
    seconds: float | None
    requested_by: str
    created_at: str
    started_at: str | None
    finished_at: str | None


class AuditPolicy(TypedDict):
    """`next_at` is null for a policy that is off or is only started by hand."""

    id: str
    cluster: str
    cluster_name: str
    name: str
    run: str | None
    run_name: NotRequired[str | None]
    tier: str | None
    tier_name: NotRequired[str | None]
    newest: int | None
    mode: str
    sample_ratio: float
    seed: int
    skip_verified_days: float | None
    max_bytes_per_second: int | None
    at_once: int
    through_cache: bool
    where: str
    repairs: bool
    cron: str
    time_zone: str
    missed: str
    enabled: bool
    next_at: str | None
    created_by: str
    created_at: str


class AuditReport(TypedDict):
    """All evidence of one audit in one document that stands by itself."""

    report_version: int
    audit: str
    mode: str
    outcome: str
    reason: str
    proves: str
    requested_by: str
    created_at: str
    started_at: str | None
    finished_at: str | None
    cluster: str
    run: str
    step: int
    tier: str
    path: str
    sample: dict[str, Any] | None
    checked_bytes: int | None
    checked_chunks: int | None
    total_chunks: int | None
    seconds: float | None
    max_bytes_per_second: int | None
    through_cache: bool
    coverage: Coverage | None
    evidence: dict[str, Any]
    findings: list[dict[str, Any]]


class AuditRound(TypedDict):
    """One due time: how many audits came of it, and why copies were left out, or all of it was skipped."""

    id: str
    planned_at: str
    audit_count: int
    left_out: dict[str, Any]
    skipped_reason: str
    requested_by: str
    created_at: str


class Coverage(TypedDict):
    """`one_chunk`, `one_shard`: the chances that this audit meets the damage where one chunk, or every chunk of one
    shard of median size, is damaged.
    """

    total_chunks: int
    read_chunks: int
    covered_chunks: int
    covered_ratio: float
    turn: int
    turns: int
    one_chunk: float
    one_shard: float
    shard_count: int
    shard_chunks: int


class CreateAuditPolicyRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    name: str
    run: NotRequired[str | None]
    tier: NotRequired[str | None]
    newest: NotRequired[int | None]
    mode: NotRequired[AuditPolicyModeEnum]
    sample_ratio: NotRequired[float]
    skip_verified_days: NotRequired[float | None]
    max_bytes_per_second: NotRequired[int | None]
    at_once: NotRequired[int]
    through_cache: NotRequired[bool]
    where: NotRequired[WhereEnum]
    repairs: NotRequired[bool]
    cron: NotRequired[str]
    time_zone: NotRequired[str]
    missed: NotRequired[MissedEnum]
    enabled: NotRequired[bool]
    cluster: str


class CreateAuditRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    placement: str
    mode: AuditModeEnum
    sample_ratio: NotRequired[float]
    seed: NotRequired[int]
    max_bytes_per_second: NotRequired[int | None]
    through_cache: NotRequired[bool]


class CreateRepairRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    placement: str
    from_placement: NotRequired[str | None]


class PatchedUpdateAuditPolicyRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    name: NotRequired[str]
    run: NotRequired[str | None]
    tier: NotRequired[str | None]
    newest: NotRequired[int | None]
    mode: NotRequired[AuditPolicyModeEnum]
    sample_ratio: NotRequired[float]
    skip_verified_days: NotRequired[float | None]
    max_bytes_per_second: NotRequired[int | None]
    at_once: NotRequired[int]
    through_cache: NotRequired[bool]
    where: NotRequired[WhereEnum]
    repairs: NotRequired[bool]
    cron: NotRequired[str]
    time_zone: NotRequired[str]
    missed: NotRequired[MissedEnum]
    enabled: NotRequired[bool]


class Repair(TypedDict):
    """The rewriting of one damaged copy's bad chunks. `file_count` and `chunk_count` are null until they were found."""

    id: str
    placement: str
    checkpoint: str
    run_name: str
    step: int
    path: str
    tier_name: str
    source: str | None
    source_path: NotRequired[str | None]
    source_tier_name: NotRequired[str | None]
    audit: str | None
    manifest: str | None
    state: str
    problem: str
    problem_code: str
    attempts: int
    file_count: int | None
    chunk_count: int | None
    read_bytes: int
    written_bytes: int
    verified_after: bool
    requested_by: str
    created_at: str
    started_at: str | None
    finished_at: str | None
    next_attempt_at: str | None


class ListAuditPoliciesQuery(TypedDict, total=False):
    """Of `list_audit_policies`."""

    cluster: str
    cursor: str
    enabled: bool
    limit: int
    run: str
    sort: Literal["created_at", "-created_at", "name", "-name"]


class ListAuditRoundsQuery(TypedDict, total=False):
    """Of `list_audit_rounds`."""

    cursor: str
    limit: int
    sort: Literal["planned_at", "-planned_at"]


class ListAuditsQuery(TypedDict, total=False):
    """Of `list_audits`."""

    checkpoint: str
    cluster: str
    cursor: str
    limit: int
    mode: list[Literal["seal", "store", "structure", "verify"]]
    outcome: list[Literal["cancelled", "damaged", "failed", "passed", "refused"]]
    placement: str
    policy: str
    round: str
    run: str
    sort: Literal["created_at", "-created_at"]
    state: list[Literal["finished", "queued", "running"]]


class ListRepairsQuery(TypedDict, total=False):
    """Of `list_repairs`."""

    checkpoint: str
    cluster: str
    cursor: str
    limit: int
    placement: str
    sort: Literal["created_at", "-created_at"]
    state: list[Literal["cancelled", "done", "failed", "proving", "surveying", "writing"]]
