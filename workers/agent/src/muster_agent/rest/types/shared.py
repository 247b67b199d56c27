"""What several subjects share."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

BackendEnum = Literal["auto", "gds", "host_bounce", "host_direct", "host_buffered"]

ChoiceEnum = Literal["latest", "latest_verified", "random", "named"]

DrillKindEnum = Literal["reload", "herd", "bandwidth", "loader_compare", "failover", "standby"]

FaultEnum = Literal["process", "exception", "link", "node"]

MappingEnum = Literal["ranks", "even"]

MissedEnum = Literal["run_once", "skip"]

RunnerEnum = Literal["auto", "gdsio", "elbencho", "fio", "builtin"]

SignalNameEnum = Literal["SIGKILL", "SIGTERM", "SIGABRT", "SIGSEGV", "SIGINT", "SIGHUP", "SIGBUS"]


class AgentEvent(TypedDict):
    id: int
    attempt: int
    seq: int
    kind: str
    at: str
    mono_seconds: float
    phase: str
    edge: str
    rank: int | None
    data: dict[str, Any]


class Budget(TypedDict):
    """Of the last 28 days: 5 % of the judged drills, rounded down and at least one, may miss."""

    trial_count: int
    allowed: int
    used: int
    left: int
    is_alarming: bool


class ClientProgress(TypedDict):
    """One client at work: null and "" is not reported yet."""

    node_name: str
    ranks: list[int]
    task_id: str
    state: str
    phase: str
    done_bytes: int | None
    total_bytes: int | None
    bytes_per_second: float | None


class CopyEvidence(TypedDict):
    path: str
    fingerprint: str
    manifest_id: str | None
    trust: str
    as_of: str
    damage: list[str]
    damage_at: str | None
    tier: str
    tier_order: int


class DrillDetail(TypedDict):
    """With its rounds, its steps, what only its kind has, and, while it works, how far each client is."""

    id: str
    cluster: str
    cluster_name: str
    run: str
    run_name: str
    plan: str | None
    plan_name: NotRequired[str | None]
    placement: str | None
    tier_name: NotRequired[str | None]
    kind: str
    choice: str
    step: int | None
    tier: str | None
    every_tier: bool
    window_days: int
    node_count: int | None
    mapping: str
    ladder: list[int]
    repeats: int
    runner: str
    runner_seconds: int
    loader: str
    backend: str
    device: str
    evict: bool
    max_bytes_per_second: int | None
    signal_name: str
    fault: FaultEnum
    worker_rank: int | None
    worker_node: str
    link: str
    objective_seconds: float | None
    deadline_seconds: int | None
    abort_stall_seconds: int | None
    abort_slowdown_ratio: float | None
    seed: int
    state: str
    outcome: str
    objective_state: str
    reason: str
    checkpoint_step: int | None
    total_bytes: int | None
    seconds: float | None
    bytes_per_second: float | None
    phases: dict[str, Any]
    unattributed_seconds: float | None
    lost_steps: int | None
    lost_seconds: float | None
    cached_ratio_before: float | None
    verified: bool | None
    start_skew_seconds: float | None
    jain_index: float | None
    is_storage_only: bool
    efficiency_ratio: float | None
    requested_by: str
    approved_by: str
    approved_at: str | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    deadline_at: str | None
    cancel_requested_at: str | None
    attempt: str | None
    fault_at: str | None
    rungs: list[Rung]
    steps: list[DrillStep]
    facts: dict[str, Any]
    progress: list[ClientProgress]


class DrillStep(TypedDict):
    """One timed step of a standby drill: probe_spare, drain_node, bring_in, gate, return_node, park_spare."""

    what: str
    began_at: str | None
    ended_at: str | None
    seconds: float | None
    detail: dict[str, Any]


class Finding(TypedDict):
    id: int
    placement: str
    code: str
    severity: str
    path: str
    detail: str
    cure: str
    begin_byte: int | None
    end_byte: int | None
    tensor: str
    source_kind: str
    source_id: str
    found_at: str
    resolved_at: str | None
    resolved_reason: str


class Placement(TypedDict):
    id: str
    checkpoint: str
    run: str
    run_name: str
    step: int
    tier: str
    tier_name: str
    path: str
    format: str
    world_size: int | None
    dp: int | None
    tp: int | None
    pp: int | None
    ep: int | None
    must_match: list[str]
    status: str
    rotated_away: bool
    trust: str
    trust_at: str | None
    resumable: bool
    not_resumable_reasons: list[str]
    shard_count: int
    total_bytes: int
    newest_mtime_at: str | None
    fingerprint: str
    manifest: str | None
    damaged_at: str | None
    first_seen_at: str
    last_seen_at: str


class Pointer(TypedDict):
    path: str
    step: int | None


class PointerChoice(TypedDict):
    """What the framework would load by itself."""

    rule: str
    path: str | None
    step: int | None
    is_same: bool
    reason: str


class ResumePoint(TypedDict):
    """The JSON of `muster resume-point --json`; `resume.decision_json` makes it."""

    outcome: str
    path: str | None
    step: int | None
    tier: str | None
    status: str | None
    trust: str | None
    as_of: str | None
    source: str
    predicted_seconds: float | None
    pointer: Pointer | None
    skipped: list[Skipped]
    nearest_steps: list[int]
    pointer_choice: PointerChoice | None
    evidence: NotRequired[list[CopyEvidence]]


class Rung(TypedDict):
    """One round: `client_count` clients reading one copy at once."""

    order: int
    client_count: int
    placement: str | None
    tier_name: NotRequired[str | None]
    seconds: float | None
    total_bytes: int | None
    bytes_per_second: float | None
    jain_index: float | None
    start_skew_seconds: float | None
    started_at: str | None
    finished_at: str | None


class Shard(TypedDict):
    placement: str
    path: str
    size_bytes: int | None
    promised_bytes: int | None
    rank: int | None
    role: str
    mtime_ns: int | None


class Skipped(TypedDict):
    path: str
    step: int | None
    reasons: list[str]


class Problem(TypedDict):
    type: str
    title: str
    status: int
    detail: str
    instance: NotRequired[str | None]
    request_id: NotRequired[str | None]
    errors: list[dict[str, Any]]
