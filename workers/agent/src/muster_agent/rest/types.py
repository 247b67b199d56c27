"""Every body and every query of the REST API. Times are ISO 8601 in UTC."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

AlertRuleKindEnum = Literal[
    "damage",
    "agent_lost",
    "objective_breached",
    "drill_failed",
    "not_drilled",
    "not_verified",
    "schedule_missed",
    "tier_unreadable",
    "tier_behind",
    "tier_full",
    "transfer_stuck",
    "channel_disabled",
]

AlertSeverityEnum = Literal["info", "warning", "critical"]

AuditModeEnum = Literal["seal", "verify", "structure"]

AuditPolicyModeEnum = Literal["structure", "sample", "full"]

BackendEnum = Literal["auto", "gds", "host_bounce", "host_direct", "host_buffered"]

ChoiceEnum = Literal["latest", "latest_verified", "random", "named"]

CreateBulkOperationListEnum = Literal["alerts", "audits", "checkpoints", "drills", "transfers"]

CreateChannelKindEnum = Literal["email", "slack", "pagerduty", "webhook"]

CreateSavedViewListEnum = Literal[
    "activity",
    "alerts",
    "audit-policies",
    "audits",
    "changes",
    "checkpoints",
    "clusters",
    "drills",
    "incidents",
    "nodes",
    "plans",
    "policies",
    "runs",
    "transfers",
]

CreateTransferKindEnum = Literal["move", "copy", "stage", "retire"]

DrillKindEnum = Literal["reload", "herd", "bandwidth", "loader_compare", "failover", "standby"]

FaultEnum = Literal["process", "exception", "link", "node"]

MappingEnum = Literal["ranks", "even"]

MissedEnum = Literal["run_once", "skip"]

OverlapEnum = Literal["skip", "wait", "cancel"]

ProofEnum = Literal["checksum", "read_back"]

RequiredTrustEnum = Literal["complete", "sealed", "verified"]

RoleEnum = Literal["viewer", "operator", "admin"]

RunnerEnum = Literal["auto", "gdsio", "elbencho", "fio", "builtin"]

ScannedByEnum = Literal["agents", "workers"]

SchedulerEnum = Literal["none", "slurm", "kubernetes"]

ShardRoleEnum = Literal["model", "optimizer", "rng", "dataloader", "scheduler", "metadata", "other"]

SignalNameEnum = Literal["SIGKILL", "SIGTERM", "SIGABRT", "SIGSEGV", "SIGINT", "SIGHUP", "SIGBUS"]

StateEnum = Literal["queued", "running", "finished"]

TierKindEnum = Literal["memory", "local_nvme", "parallel_fs", "nas", "object_store", "archive"]

VerbEnum = Literal["acknowledge", "cancel", "label", "pin", "seal", "unpin", "verify"]

WhatEnum = Literal["park", "bring_back"]

WhereEnum = Literal["as_scanned", "agents", "workers"]


class Activity(TypedDict):
    id: int
    at: str
    actor: str
    action: str
    target_kind: str
    target_id: str
    detail: NotRequired[Any]


class Advice(TypedDict):
    inputs: Inputs
    node_count: int | None
    mtbf: Input
    failures_per_month: float | None
    interval: Interval
    today: Scenario
    objective: Scenario
    spare_node_count: int | None


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


class Alert(TypedDict):
    """`subject_kind` and `subject_id` name what it is about; `cluster` is null where that is Muster itself."""

    id: str
    cluster: str | None
    cluster_name: NotRequired[str | None]
    run: str | None
    run_name: NotRequired[str | None]
    rule: str
    severity: str
    subject_kind: str
    subject_id: str
    state: str
    summary: str
    silence: str | None
    opened_at: str
    acknowledged_at: str | None
    acknowledged_by: str
    resolved_at: str | None


class AlertRule(TypedDict):
    """`cluster` null: for everywhere. Of several the narrowest holds: a run's, then its cluster's. `threshold` is in
    `threshold_unit`, null where the kind has none.
    """

    id: str
    kind: str
    says: str
    cluster: str | None
    cluster_name: NotRequired[str | None]
    run: str | None
    run_name: NotRequired[str | None]
    enabled: bool
    severity: str
    threshold: float | None
    threshold_unit: str | None
    updated_by: str
    updated_at: str


class Answer(TypedDict):
    name: str
    total_bytes: int
    rank_count: int
    node_count: int
    reader_count: int
    seconds: float
    storage_seconds: float
    other_seconds: float | None
    is_beyond_measured: bool
    need: Need | None


class ApiRequest(TypedDict):
    method: str
    path: str
    body: dict[str, Any]


class Attempt(TypedDict):
    id: str
    launch_id: str
    agent: str | None
    resumed_from_step: int | None
    resumed_from_path: str
    last_step: int | None
    started_at: str
    ended_at: str | None
    last_report_at: str


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


class Blame(TypedDict):
    phase: str
    seconds: float
    before_seconds: float | None


class Budget(TypedDict):
    """Of the last 28 days: 5 % of the judged drills, rounded down and at least one, may miss."""

    trial_count: int
    allowed: int
    used: int
    left: int
    is_alarming: bool


class BulkItem(TypedDict):
    target_id: str
    label: str
    outcome: str
    detail: str
    done_at: str | None


class BulkOperation(TypedDict):
    id: str | None
    list: str
    verb: str
    parameters: dict[str, Any]
    query: str
    actor: str
    state: str
    total_count: int
    done_count: int
    refused_count: int
    created_at: str
    finished_at: str | None


class Calendar(TypedDict):
    """The coming days; of a plan at most its next 500 times."""

    paused: bool
    items: list[Coming]


class Ceiling(TypedDict):
    id: int
    bytes_per_second: float
    client_count: int
    method: str
    measured_at: str


class CeilingPoint(TypedDict):
    reader_count: int
    bytes_per_second: float


class CeilingRun(TypedDict):
    id: str
    tier: str
    state: StateEnum
    outcome: str
    reason: str
    bytes_per_second: float | None
    tries: Any
    requested_by: str
    created_at: str
    finished_at: str | None


class Channel(TypedDict):
    """`target` without what may be secret: a webhook's query is left out, and of Slack's address only the host is
    there. `secret_count` is 2 while a signing key is replaced, null where the secret cannot be opened any more.
    """

    id: str
    name: str
    kind: str
    target: str
    secret_count: int | None
    secrets_set_at: str | None
    min_severity: str
    clusters: list[str]
    event_types: list[str]
    enabled: bool
    disabled_reason: str
    last_delivered_at: str | None
    created_by: str
    created_at: str


class Checklist(TypedDict):
    """A run's five steps. `passed`: all of them, within the age that was asked for."""

    run: str
    run_name: str
    max_age_seconds: float
    passed: bool
    score: float
    steps: list[ChecklistStep]


class ChecklistStep(TypedDict):
    """One step. `points` of `weight` count for the score: a stale step half, a failed or missing one nothing."""

    step: str
    title: str
    verdict: str
    weight: int
    points: float
    evidence_kind: NotRequired[str | None]
    evidence_id: NotRequired[str | None]
    evidence_at: NotRequired[str | None]
    age_seconds: float | None
    detail: str
    next_action: str


class Checkpoint(TypedDict):
    id: str
    run: str
    run_name: str
    cluster_name: str
    step: int
    format: str
    world_size: int | None
    dp: int | None
    tp: int | None
    pp: int | None
    ep: int | None
    must_match: list[str]
    total_bytes: int
    saved_at: str | None
    created_at: str
    placements: list[Copy]


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


class Coming(TypedDict):
    """One due time of a plan. `conflicts` names the plans that it meets on its cluster: one waits for the other."""

    plan: str
    plan_name: str
    kind: str
    run_name: str
    cluster: str
    planned_at: str
    begins_at: str
    expected_seconds: float
    conflicts: list[str]


class ComparedField(TypedDict):
    """One field of all drills: `values` in their order, null where it was not measured or does not apply."""

    name: str
    label: str
    topic: str
    unit: str
    differs: bool
    values: list[str | float | bool | list[Any] | None]


class Comparison(TypedDict):
    """The oldest drill first; `verdict` calls the first A, the second B and so on."""

    letters: list[str]
    items: list[Drill]
    differences: list[ComparedField]
    verdict: str


class Control(TypedDict):
    """Whether drills may run at all."""

    stopped: bool
    stopped_at: str | None
    stopped_by: str
    reason: str
    plans_paused_at: str | None
    plans_paused_by: str


class Copy(TypedDict):
    """A placement, short."""

    id: str
    tier: str
    tier_name: str
    path: str
    format: str
    world_size: int | None
    total_bytes: int
    status: str
    rotated_away: bool
    trust: str
    trust_at: str | None
    resumable: bool


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


class CreateAlertRuleRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    enabled: NotRequired[bool]
    severity: NotRequired[AlertSeverityEnum]
    threshold: NotRequired[float | None]
    kind: AlertRuleKindEnum
    cluster: str
    run: NotRequired[str | None]


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


class CreateBulkOperationRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    list: CreateBulkOperationListEnum
    verb: VerbEnum
    ids: NotRequired[list[str]]
    query: NotRequired[str]
    parameters: NotRequired[dict[str, str]]
    expected_count: NotRequired[int]


class CreateChannelRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    name: str
    target: NotRequired[str]
    secret: NotRequired[str]
    min_severity: NotRequired[AlertSeverityEnum]
    clusters: NotRequired[list[str]]
    event_types: NotRequired[list[str]]
    enabled: NotRequired[bool]
    kind: CreateChannelKindEnum


class CreateClusterRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    scheduler: NotRequired[SchedulerEnum]
    gpu_count: NotRequired[int | None]
    gpu_hour_cost: NotRequired[str | None]
    allows_disruption: NotRequired[bool]
    name: str


class CreateDrillRequest(TypedDict):
    """What a drill does. Which settings go together, the service checks."""

    kind: DrillKindEnum
    choice: NotRequired[ChoiceEnum]
    step: NotRequired[int | None]
    tier: NotRequired[str | None]
    window_days: NotRequired[int]
    node_count: NotRequired[int | None]
    ladder: NotRequired[list[int]]
    backend: NotRequired[BackendEnum]
    evict: NotRequired[bool]
    max_bytes_per_second: NotRequired[int | None]
    signal_name: NotRequired[SignalNameEnum]
    fault: NotRequired[FaultEnum]
    worker_rank: NotRequired[int | None]
    worker_node: NotRequired[str]
    link: NotRequired[str]
    objective_seconds: NotRequired[float | None]
    deadline_seconds: NotRequired[int | None]
    every_tier: NotRequired[bool]
    mapping: NotRequired[MappingEnum]
    repeats: NotRequired[int]
    device: NotRequired[str]
    runner: NotRequired[RunnerEnum]
    loader: NotRequired[str]
    runner_seconds: NotRequired[int]
    abort_stall_seconds: NotRequired[int | None]
    abort_slowdown_ratio: NotRequired[float | None]
    run: str
    seed: NotRequired[int]


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


class CreatePlanRequest(TypedDict):
    """What a drill does. Which settings go together, the service checks."""

    kind: DrillKindEnum
    choice: NotRequired[ChoiceEnum]
    step: NotRequired[int | None]
    tier: NotRequired[str | None]
    window_days: NotRequired[int]
    node_count: NotRequired[int | None]
    ladder: NotRequired[list[int]]
    backend: NotRequired[BackendEnum]
    evict: NotRequired[bool]
    max_bytes_per_second: NotRequired[int | None]
    signal_name: NotRequired[SignalNameEnum]
    fault: NotRequired[FaultEnum]
    worker_rank: NotRequired[int | None]
    worker_node: NotRequired[str]
    link: NotRequired[str]
    objective_seconds: NotRequired[float | None]
    deadline_seconds: NotRequired[int | None]
    every_tier: NotRequired[bool]
    mapping: NotRequired[MappingEnum]
    repeats: NotRequired[int]
    device: NotRequired[str]
    runner: NotRequired[RunnerEnum]
    loader: NotRequired[str]
    runner_seconds: NotRequired[int]
    abort_stall_seconds: NotRequired[int | None]
    abort_slowdown_ratio: NotRequired[float | None]
    cron: NotRequired[str]
    time_zone: NotRequired[str]
    missed: NotRequired[MissedEnum]
    start_window_seconds: NotRequired[int]
    overlap: NotRequired[OverlapEnum]
    smear_seconds: NotRequired[int]
    enabled: NotRequired[bool]
    run: str
    name: str


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
    max_bytes_per_second: NotRequired[int | None]
    plan_only: NotRequired[bool]
    enabled: NotRequired[bool]
    cron: NotRequired[str]
    time_zone: NotRequired[str]
    on_complete: NotRequired[bool]
    cluster: str
    run: NotRequired[str | None]


class CreateRateLimitRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    max_bytes_per_second: int
    begins: NotRequired[str]
    ends: NotRequired[str]
    time_zone: NotRequired[str]


class CreateRepairRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    placement: str
    from_placement: NotRequired[str | None]


class CreateSavedViewRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    list: CreateSavedViewListEnum
    name: str
    query: str
    shared: NotRequired[bool]


class CreateScanRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    tier: str
    root: NotRequired[str]
    agent: NotRequired[str]
    accepts_loss: NotRequired[bool]


class CreateSilenceRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    reason: str
    ends_at: str
    starts_at: NotRequired[str]
    cluster: NotRequired[str | None]
    rule: NotRequired[AlertRuleKindEnum]
    run: NotRequired[str | None]
    subject_id: NotRequired[str]
    summary_contains: NotRequired[str]


class CreateTierRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    name: str
    kind: TierKindEnum
    uri: str
    endpoint_url: NotRequired[str]
    credentials_profile: NotRequired[str]
    speed_order: NotRequired[int]
    capacity_bytes: NotRequired[int | None]
    cost_per_tb_month: NotRequired[str | None]
    scanned_by: NotRequired[ScannedByEnum]
    scan_cron: NotRequired[str]
    scan_time_zone: NotRequired[str]
    cluster: str


class CreateTokenRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    name: str
    role: NotRequired[RoleEnum]
    days: NotRequired[int]
    username: NotRequired[str]


class CreateTransferRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    placement: str
    kind: CreateTransferKindEnum
    tier: NotRequired[str | None]
    proof: NotRequired[ProofEnum]
    max_bytes_per_second: NotRequired[int | None]


class CreateUserRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    username: str
    role: NotRequired[RoleEnum]
    is_service: NotRequired[bool]
    password: NotRequired[str]


class Delivery(TypedDict):
    """`event` is the `webhook-id`, the same at every try and replay."""

    id: str
    channel: str
    channel_name: str
    event: str
    event_type: str
    subject: str
    state: str
    tries: int
    problem: str
    next_attempt_at: str | None
    requested_by: str
    created_at: str
    finished_at: str | None


class DeliveryAttempt(TypedDict):
    at: str
    seconds: float
    status: int | None
    problem: str
    answer: str


class Difference(TypedDict):
    placement: str
    path: str
    run_name: str
    step: int
    kind: str
    before: dict[str, Any]
    after: dict[str, Any]


class Drill(TypedDict):
    """One drill. `outcome` says whether it restored, `objective_state` whether in time: restored but late is
    `passed` and `breached`. `is_storage_only`: it measured no restart, so `seconds` is no time to resume.
    """

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


class DrillChange(TypedDict):
    what: str
    label: str
    before: str
    after: str
    ratio: float | None
    seconds: float | None


class DrillComparison(TypedDict):
    """With the last passed drill of the same run, kind, tier, backend, cap, fault and number of clients."""

    with_drill: str
    at: str
    seconds: float | None
    changes: list[DrillChange]
    sentence: str


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


class DrillFact(TypedDict):
    label: str
    words: str


class DrillLastClient(TypedDict):
    """Who came last. Seconds run from the first client's start."""

    name: str
    ranks: list[int]
    end_seconds: float
    after_median_seconds: float
    phase: str
    excess_seconds: float
    rate_ratio: float | None
    without_seconds: float
    is_straggler: bool
    sentence: str


class DrillPhase(TypedDict):
    phase: str
    seconds: float | None


class DrillReport(TypedDict):
    """A drill in one document. null is "not measured"."""

    report_version: int
    drill: str
    title: str
    cluster: str
    run: str
    plan: str | None
    step: int | None
    tier: str | None
    path: str | None
    kind: str
    state: str
    outcome: str
    objective_state: str
    reason: str
    requested_by: str
    approved_by: str
    created_at: str
    started_at: str | None
    finished_at: str | None
    fault_at: str | None
    objective_seconds: float | None
    seconds: float | None
    total_bytes: int | None
    bytes_per_second: float | None
    cached_ratio_before: float | None
    verified: bool | None
    start_skew_seconds: float | None
    jain_index: float | None
    lost_steps: int | None
    lost_seconds: float | None
    unattributed_seconds: float | None
    efficiency_ratio: float | None
    is_storage_only: bool
    story: DrillStory
    phases: list[DrillPhase]
    facts: dict[str, Any]
    client_count: int
    clients: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    events: list[DrillReportEvent]


class DrillReportEvent(TypedDict):
    at: str
    state: str
    reason: str
    actor: str


class DrillStep(TypedDict):
    """One timed step of a standby drill: probe_spare, drain_node, bring_in, gate, return_node, park_spare."""

    what: str
    began_at: str | None
    ended_at: str | None
    seconds: float | None
    detail: dict[str, Any]


class DrillStory(TypedDict):
    lead: str
    asked: list[DrillFact]
    done: list[DrillFact]
    ceiling: str
    is_above_ceiling: bool
    last: DrillLastClient | None
    comparison: DrillComparison | None
    not_proven: list[str]


class Evidence(TypedDict):
    id: int
    rung: str
    source_kind: str
    source_id: str
    fingerprint: str
    detail: dict[str, Any]
    at: str
    voided_at: str | None
    void_reason: str


class Explanation(TypedDict):
    """The lines of `muster explain`, and what was proven of the copy since."""

    path: str
    explanation: list[Line]
    roles: list[Role]


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


class FirstStep(TypedDict):
    step: str
    title: str
    why: str
    progress: str
    done_at: str | None
    note: str
    request: ApiRequest | None


class FirstSteps(TypedDict):
    """The way from an empty installation to a first answer, of one cluster."""

    cluster: str
    cluster_name: str
    done: bool
    steps: list[FirstStep]


class Fleet(TypedDict):
    """All judged runs together. Lost work and cost are of the runs where they are known, which are counted."""

    sentence: str
    run_count: int
    ready_count: int
    start_over_count: int
    unproven_count: int
    skipped_count: int
    never_drilled_count: int
    slowest: str
    slowest_seconds: float | None
    lost_known_count: int
    lost_gpu_hours: float | None
    cost_known_count: int
    lost_cost: float | None


class Found(TypedDict):
    name: str
    detail: str
    url: str


class FoundGroup(TypedDict):
    label: str
    items: list[Found]


class Group(TypedDict):
    key: str
    name: str
    cluster_name: str
    objective_seconds: float | None
    statistics: Statistics


class Groups(TypedDict):
    """Drills of one kind side by side, the slowest group first."""

    items: list[Group]
    drill_count: int
    left_out_count: int


class Health(TypedDict):
    """`watching` is false when any part stands still: then no alert means nothing."""

    watching: bool
    parts: list[Part]


class History(TypedDict):
    run: str
    run_name: str
    kind: str
    is_storage_only: bool
    objective_seconds: float | None
    points: list[HistoryPoint]
    statistics: Statistics
    left_out_count: int


class HistoryPoint(TypedDict):
    """One drill that ended with a result, oldest first."""

    drill: str
    kind: str
    at: str
    outcome: str
    objective_state: str
    seconds: float | None
    objective_seconds: float | None
    phases: dict[str, Any]
    unattributed_seconds: float | None
    total_bytes: int | None
    bytes_per_second: float | None
    cached_ratio_before: float | None
    checkpoint_step: int | None
    tier_name: NotRequired[str | None]
    efficiency_ratio: float | None


class Incident(TypedDict):
    """A real disruption with its recovery. `fault_at` is the last sign of life: the true fault lies between that and
    `detected_at`, so the phase `detect` is not measured.
    """

    id: str
    cluster: str
    run: str
    run_name: str
    launch_id: NotRequired[str | None]
    fault_at: str
    detected_at: str | None
    detail: str
    reported_by: str
    created_at: str
    recovery: Recovery | None


class Input(TypedDict):
    value: float | None
    source: str
    how: str


class Inputs(TypedDict):
    gpu_count: Input
    gpus_per_node: Input
    gpu_hour_cost: Input
    failures_per_node_day: Input
    save_seconds: Input
    whole_save_seconds: Input
    interval_seconds: Input
    resume_seconds: Input
    objective_seconds: Input
    repair_hours: Input


class Interval(TypedDict):
    young_seconds: float | None
    daly_seconds: float | None
    advised_seconds: float | None
    is_held_by_save: bool


class InventoryChange(TypedDict):
    scan: str
    scanned_at: str
    tier: str
    placement: str
    path: str
    run_name: str
    step: int
    kind: str
    before: dict[str, Any]
    after: dict[str, Any]


class InventoryDiff(TypedDict):
    """What is not as it was, summed up over the scans in between."""

    since: str
    until: str
    appeared_count: NotRequired[int]
    changed_count: NotRequired[int]
    vanished_count: NotRequired[int]
    changes: list[Difference]
    left_out: int


class ItemError(TypedDict):
    pointer: str | None
    code: str
    detail: str


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


class LabelsRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    labels: list[str]


class LastDrill(TypedDict):
    id: str
    kind: str
    outcome: str
    objective_state: str
    reason: str
    seconds: float | None
    objective_seconds: float | None
    phases: dict[str, Any]
    efficiency_ratio: float | None
    finished_at: str | None


class Line(TypedDict):
    heading: str
    sentence: str


class Marks(TypedDict):
    """What people said of a checkpoint."""

    pinned: bool
    pin_reason: str | None
    pinned_by: str | None
    labels: list[str]


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


class Model(TypedDict):
    """Storage seconds = fixed_seconds + bytes / (rate of the readers) / efficiency_ratio."""

    ceilings: list[CeilingPoint]
    has_knee: bool
    fixed_seconds: float
    efficiency_ratio: float
    reading_count: int


class Need(TypedDict):
    bytes_per_second: float | None
    reader_count: int | None


class NewChannel(TypedDict):
    """A channel just made; `signing_key` is shown this once, and empty where none was made."""

    id: str
    name: str
    kind: str
    target: str
    secret_count: int | None
    secrets_set_at: str | None
    min_severity: str
    clusters: list[str]
    event_types: list[str]
    enabled: bool
    disabled_reason: str
    last_delivered_at: str | None
    created_by: str
    created_at: str
    signing_key: str


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


class NewToken(TypedDict):
    """A token just made: the only time its secret is shown."""

    id: str
    name: str
    user: str
    role: NotRequired[RoleEnum]
    created_at: str
    expires_at: str
    last_used_at: NotRequired[str | None]
    revoked_at: NotRequired[str | None]
    secret: str


class NextAction(TypedDict):
    action: str
    words: str
    step: int | None


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


class Objective(TypedDict):
    """One run. Counts and seconds are of its drills of `kind` in the last 90 days that ended with a result; null is
    "not measured", never 0. p95 needs 20 of them.
    """

    run: str
    run_name: str
    cluster: str
    cluster_name: str
    state: str
    rto_objective_seconds: float | None
    rpo_objective_seconds: float | None
    kind: str
    is_storage_only: bool
    count: NotRequired[int]
    p50_seconds: NotRequired[float | None]
    p95_seconds: NotRequired[float | None]
    max_seconds: NotRequired[float | None]
    judged_count: int
    met_count: int
    breached_count: int
    failed_count: int
    met_ratio_low: float | None
    met_ratio_high: float | None
    more_passes_needed: int
    budget: Budget
    lost_seconds: float | None
    rpo_is_met: bool | None


class Occurrence(TypedDict):
    """One due time: its drill, or why there was none."""

    planned_at: str
    drill: str | None
    outcome: NotRequired[str | None]
    objective_state: NotRequired[str | None]
    skipped_reason: str
    created_at: str


class Operation(TypedDict):
    """A drill, audit, transfer, repair, scan or measurement, whose id it has. `succeeded` is null until it is done."""

    id: str
    kind: str
    state: str
    done: bool
    succeeded: bool | None
    outcome: str
    error: str
    progress: Progress | None
    result_path: str
    cancel_path: str | None
    requested_by: str
    created_at: str
    finished_at: str | None


class OperationList(TypedDict):
    items: list[Operation]


class Part(TypedDict):
    """One part of Muster. `age_seconds` since its last sign of life, or how long its oldest work has been due; null
    where it never gave one, or does not answer.
    """

    name: str
    does: str
    is_well: bool
    age_seconds: float | None
    limit_seconds: float
    cure: str


class PartEvidence(TypedDict):
    kind: str
    id: str
    step: int | None


class PatchedUpdateAlertRuleRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    enabled: NotRequired[bool]
    severity: NotRequired[AlertSeverityEnum]
    threshold: NotRequired[float | None]


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


class PatchedUpdateChannelRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    name: NotRequired[str]
    target: NotRequired[str]
    secret: NotRequired[str]
    min_severity: NotRequired[AlertSeverityEnum]
    clusters: NotRequired[list[str]]
    event_types: NotRequired[list[str]]
    enabled: NotRequired[bool]


class PatchedUpdateClusterRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    scheduler: NotRequired[SchedulerEnum]
    gpu_count: NotRequired[int | None]
    gpu_hour_cost: NotRequired[str | None]
    allows_disruption: NotRequired[bool]


class PatchedUpdatePlanRequest(TypedDict):
    """What a drill does. Which settings go together, the service checks."""

    kind: NotRequired[DrillKindEnum]
    choice: NotRequired[ChoiceEnum]
    step: NotRequired[int | None]
    tier: NotRequired[str | None]
    window_days: NotRequired[int]
    node_count: NotRequired[int | None]
    ladder: NotRequired[list[int]]
    backend: NotRequired[BackendEnum]
    evict: NotRequired[bool]
    max_bytes_per_second: NotRequired[int | None]
    signal_name: NotRequired[SignalNameEnum]
    fault: NotRequired[FaultEnum]
    worker_rank: NotRequired[int | None]
    worker_node: NotRequired[str]
    link: NotRequired[str]
    objective_seconds: NotRequired[float | None]
    deadline_seconds: NotRequired[int | None]
    every_tier: NotRequired[bool]
    mapping: NotRequired[MappingEnum]
    repeats: NotRequired[int]
    device: NotRequired[str]
    runner: NotRequired[RunnerEnum]
    loader: NotRequired[str]
    runner_seconds: NotRequired[int]
    abort_stall_seconds: NotRequired[int | None]
    abort_slowdown_ratio: NotRequired[float | None]
    cron: NotRequired[str]
    time_zone: NotRequired[str]
    missed: NotRequired[MissedEnum]
    start_window_seconds: NotRequired[int]
    overlap: NotRequired[OverlapEnum]
    smear_seconds: NotRequired[int]
    enabled: NotRequired[bool]
    name: NotRequired[str]


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
    max_bytes_per_second: NotRequired[int | None]
    plan_only: NotRequired[bool]
    enabled: NotRequired[bool]
    cron: NotRequired[str]
    time_zone: NotRequired[str]
    on_complete: NotRequired[bool]


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


class PatchedUpdateRunRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    rto_objective_seconds: NotRequired[float | None]
    rpo_objective_seconds: NotRequired[float | None]
    gpu_count: NotRequired[int | None]
    required_trust: NotRequired[RequiredTrustEnum]
    archived: NotRequired[bool]
    frozen_tensors: NotRequired[list[str]]


class PatchedUpdateTierRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    name: NotRequired[str]
    kind: NotRequired[TierKindEnum]
    uri: NotRequired[str]
    endpoint_url: NotRequired[str]
    credentials_profile: NotRequired[str]
    speed_order: NotRequired[int]
    capacity_bytes: NotRequired[int | None]
    cost_per_tb_month: NotRequired[str | None]
    scanned_by: NotRequired[ScannedByEnum]
    scan_cron: NotRequired[str]
    scan_time_zone: NotRequired[str]


class PatchedUpdateUserRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    role: NotRequired[RoleEnum]
    is_active: NotRequired[bool]


class PinRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    reason: str


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


class Plan(TypedDict):
    """`next_at` is null for a plan that is off or is only started by hand."""

    id: str
    cluster: str
    run: str
    run_name: str
    name: str
    cron: str
    time_zone: str
    missed: str
    enabled: bool
    next_at: str | None
    next_times: list[str]
    start_window_seconds: int
    overlap: str
    smear_seconds: int
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
    version: int
    created_by: str
    created_at: str


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


class PredictionError(TypedDict):
    """Each past drill against what the drills before it predict."""

    count: int
    mape_ratio: float
    bias_ratio: float


class Preview(TypedDict):
    """What a drill would touch if it began now; nothing is stored. `refusals` empty: it would begin. Of several
    `candidates` one is taken at random, and `nodes` are those of any one of them.
    """

    kind: str
    disrupts: bool
    needs_approval: bool
    effect: str
    nodes: list[str]
    total_bytes: int | None
    tier_ratio: float | None
    placement: NotRequired[str | None]
    checkpoint_step: NotRequired[int | None]
    tier_name: NotRequired[str | None]
    ladder: list[int]
    launch_id: NotRequired[str | None]
    last_step: NotRequired[int | None]
    last_report_at: NotRequired[str | None]
    candidates: list[str]
    candidate_count: int
    spare: str
    inventory_at: str | None
    refusals: list[str]


class Progress(TypedDict):
    """`total` is null where nobody knows it yet."""

    done: int
    total: int | None
    unit: str


class RankResult(TypedDict):
    """What one client measured, for all the ranks that it read; `phases` add up to `seconds`, `busy` is work over
    all threads.
    """

    rung: int
    client_count: int
    rank: int
    ranks: list[int]
    node: str | None
    node_name: NotRequired[str | None]
    task_id: str
    outcome: str
    error: str
    bytes: int | None
    seconds: float | None
    bytes_per_second: float | None
    started_at: str | None
    phases: dict[str, Any]
    busy: dict[str, Any]
    requested: str
    effective: str
    evidence: dict[str, Any]
    reason: str
    cache_state: str
    cached_ratio_before: float | None
    cpu_seconds: float | None
    cpu_by_phase: dict[str, Any]
    peak_rss_bytes: int | None
    verified: bool | None
    efficiency_ratio: float | None


class RankShardAudit(TypedDict):
    """How a copy's bytes are cut for its ranks. No findings: the cut holds nobody up."""

    placement: str
    readers: int
    file_count: int
    total_bytes: int
    common_bytes: int
    stripe_count: int | None
    together_bytes_per_second: float | None
    one_bytes_per_second: float | None
    findings: list[ShapeFinding]


class RateLimit(TypedDict):
    id: str
    tier: str
    max_bytes_per_second: int
    begins: str
    ends: str
    time_zone: str
    created_at: str


class Readiness(TypedDict):
    """One run: what it would resume from if it died now. null is "not measured" or "not known", never 0."""

    run: str
    run_name: str
    cluster: str
    cluster_name: str
    verdict: str
    sentence: str
    parts: list[SentencePart]
    next_action: NextAction | None
    ready: bool
    decision: ResumePoint
    placement: NotRequired[str | None]
    last_drill: LastDrill | None
    objective_seconds: float | None
    predicted_seconds: float | None
    predicted_phases: dict[str, Any]
    back_seconds: float | None
    back_known: str
    lost_steps: int | None
    lost_seconds: float | None
    lost_cost: float | None
    inventory_at: str | None
    newest_saved_step: int | None
    restart_seconds: float | None


class ReadinessList(TypedDict):
    items: list[Readiness]
    fleet: Fleet
    undrilled: list[Undrilled]
    by_verdict: dict[str, int]


class Recovery(TypedDict):
    id: str
    state: str
    attempt: str | None
    launch_id: NotRequired[str | None]
    checkpoint_step: int | None
    time_to_resume_seconds: float | None
    lost_steps: int | None
    lost_seconds: float | None
    phases: dict[str, Any]
    unattributed_seconds: float | None
    created_at: str
    closed_at: str | None


class RegisterCheckpointsRequest(TypedDict):
    """Each item is judged by itself; `ToldCheckpoint` is its form."""

    items: list[dict[str, Any]]


class Registered(TypedDict):
    items: list[RegisteredItem]
    created_count: int
    known_count: int
    refused_count: int


class RegisteredItem(TypedDict):
    """What became of the item at `index`: 201 recorded, 200 known already, else refused for `errors`."""

    index: int
    status: int
    placement: str | None
    checkpoint: str | None
    errors: list[ItemError]


class Repair(TypedDict):
    """The rewriting of one damaged copy's bad chunks. `file_count` and `chunk_count` are null until they were found."""

    id: str
    placement: str
    checkpoint: str
    run_name: str
    step: int
    path: str
    source: str | None
    source_path: NotRequired[str | None]
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
    requested_by: str
    created_at: str
    started_at: str | None
    finished_at: str | None
    next_attempt_at: str | None


class ReportIncidentRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    run: str
    fault_at: str
    launch_id: NotRequired[str]
    detected_at: NotRequired[str]
    resumed_at: NotRequired[str]
    checkpoint_step: NotRequired[int]
    detail: NotRequired[str]


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


class RevokeAgentRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    reason: NotRequired[str]


class Role(TypedDict):
    role: str
    expected: int
    there: int
    size_bytes: int | None


class RotateRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    keep_old: NotRequired[bool]
    signing_key: NotRequired[str]


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


class Run(TypedDict):
    id: str
    cluster: str
    cluster_name: str
    name: str
    rto_objective_seconds: float | None
    rpo_objective_seconds: float | None
    gpu_count: int | None
    required_trust: RequiredTrustEnum
    frozen_tensors: list[str]
    created_at: str
    archived_at: str | None


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


class SavedView(TypedDict):
    id: str
    list: str
    name: str
    query: str
    shared: bool
    owner: str
    created_at: str


class Scan(TypedDict):
    id: str
    tier: str
    tier_name: str
    agent: str | None
    root: str
    accepts_loss: bool
    planned_at: str | None
    state: str
    progress: ScanProgress
    checkpoint_count: int
    new_count: int
    changed_count: int
    missing_count: int
    entry_count: int | None
    unchanged_count: int | None
    seconds: float | None
    doubt: str
    held_count: int
    findings: list[dict[str, Any]]
    damage_count: int
    stepless_count: int
    error: str
    error_code: str
    requested_by: str
    created_at: str
    started_at: str | None
    finished_at: str | None


class ScanChange(TypedDict):
    placement: str
    path: str
    run_name: str
    step: int
    kind: str
    before: dict[str, Any]
    after: dict[str, Any]


class ScanProgress(TypedDict):
    """Empty unless it runs; what the lister does not tell is left out."""

    checkpoints: NotRequired[int]
    checkpoints_left: NotRequired[int]
    entries: NotRequired[int]
    entries_per_second: NotRequired[int]
    folders_left: NotRequired[int]
    note: NotRequired[str]
    at: NotRequired[float]


class Scenario(TypedDict):
    """Null where an input is missing. Money is in the currency of the GPU-hour cost."""

    resume_seconds: float | None
    interval_seconds: float | None
    training_ratio: float | None
    best_training_ratio: float | None
    gpu_hours_per_failure: float | None
    gpu_hours_per_month: float | None
    cost_per_failure: float | None
    cost_per_month: float | None


class Search(TypedDict):
    groups: list[FoundGroup]


class SentencePart(TypedDict):
    text: str
    about: str
    known: str
    evidence: PartEvidence | None


class ShapeFinding(TypedDict):
    """`saved_seconds` is what the cure is predicted to save; null: the tier's rates were not measured."""

    code: str
    detail: str
    seconds: float | None
    cured_seconds: float | None
    saved_seconds: float | None


class Shard(TypedDict):
    placement: str
    path: str
    size_bytes: int | None
    promised_bytes: int | None
    rank: int | None
    role: str
    mtime_ns: int | None


class SigningKey(TypedDict):
    signing_key: str


class Silence(TypedDict):
    """Empty or null fields match everything."""

    id: str
    cluster: str | None
    cluster_name: NotRequired[str | None]
    rule: str
    run: str | None
    run_name: NotRequired[str | None]
    subject_id: str
    summary_contains: str
    reason: str
    starts_at: str
    ends_at: str
    created_by: str
    created_at: str
    ended_by: str


class Skipped(TypedDict):
    path: str
    step: int | None
    reasons: list[str]


class Statistics(TypedDict):
    """From every measurement of the answer. p95 needs 20 and p99 100 of them; else null, and `max_seconds` stands."""

    count: int
    p50_seconds: float | None
    p95_seconds: float | None
    p99_seconds: float | None
    max_seconds: float | None
    judged_count: int
    met_count: int
    breached_count: int
    failed_count: int
    met_ratio_low: float | None
    met_ratio_high: float | None
    more_passes_needed: int
    budget: Budget
    regressed: bool
    regression_ratio: float | None
    regression_blame: Blame | None


class Step(TypedDict):
    attempt: str
    step: int
    at: str
    loss: float | None


class SteplessCheckpoint(TypedDict):
    id: str
    tier: str
    tier_name: str
    path: str
    run_name: str
    format: str
    status: str
    world_size: int | None
    shard_count: int
    total_bytes: int
    saved_at: str | None
    findings: list[dict[str, Any]]
    damage_count: int
    first_seen_at: str
    last_seen_at: str


class StopDrillsRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    reason: NotRequired[str]


class Stopped(TypedDict):
    cancelled_count: int


class Tensor(TypedDict):
    """One range of bytes; a tensor that lies in several pieces has several. `dtype` and `shape` are null where the
    checkpoint was sealed before they were kept.
    """

    name: str
    dtype: str | None
    shape: list[int] | None
    shard: str
    offset_bytes: int
    length_bytes: int
    xxh3_64: str


class Tier(TypedDict):
    id: str
    cluster: str
    cluster_name: str
    name: str
    kind: TierKindEnum
    uri: str
    endpoint_url: str
    credentials_profile: str
    speed_order: int
    capacity_bytes: int | None
    cost_per_tb_month: str | None
    scanned_by: str
    scan_cron: str
    scan_time_zone: str
    next_scan_at: str | None
    created_at: str


class TierComparison(TypedDict):
    items: list[TierComparisonItem]


class TierComparisonItem(TypedDict):
    """Null is "not measured"; `missing` names the kind of drill that would fill it."""

    tier: str
    tier_name: str
    tier_kind: str
    cluster: str
    cluster_name: str
    run: str | None
    bytes_per_second: float | None
    client_count: int | None
    bytes_per_second_drill: str | None
    reload_seconds: float | None
    reload_bytes: int | None
    reload_drill: str | None
    knee_client_count: int | None
    ladder_client_count: int | None
    ladder_drill: str | None
    cpu_seconds_per_gb: float | None
    cost_per_tb_month: str | None
    missing: dict[str, str]


class Token(TypedDict):
    id: str
    name: str
    user: str
    role: NotRequired[RoleEnum]
    created_at: str
    expires_at: str
    last_used_at: NotRequired[str | None]
    revoked_at: NotRequired[str | None]


class ToldCheckpointRequest(TypedDict):
    """One copy of one checkpoint, as whoever saved it tells."""

    tier: str
    path: str
    run: str
    step: int
    format: str
    world_size: NotRequired[int | None]
    saved_at: NotRequired[str | None]
    shards: list[ToldShardRequest]


class ToldShardRequest(TypedDict):
    """One file, by its path inside the checkpoint."""

    path: str
    size_bytes: int
    rank: NotRequired[int | None]
    role: NotRequired[ShardRoleEnum]


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


class Undrilled(TypedDict):
    run: str
    run_name: str
    drilled_at: str | None


class User(TypedDict):
    id: int
    username: str
    role: NotRequired[RoleEnum]
    is_service: NotRequired[bool]
    is_active: NotRequired[bool]
    date_joined: NotRequired[str]
    last_login: NotRequired[str | None]


class WhatIf(TypedDict):
    tier: str
    tier_name: str
    model: Model | None
    error: PredictionError | None
    other_phases: dict[str, Any]
    restart_count: int
    items: list[Answer]


class WhoAmI(TypedDict):
    username: str
    role: RoleEnum
    is_service: bool
    token_expires_at: str | None


class WholeDelivery(TypedDict):
    """With every try, the newest first."""

    id: str
    channel: str
    channel_name: str
    event: str
    event_type: str
    subject: str
    state: str
    tries: int
    problem: str
    next_attempt_at: str | None
    requested_by: str
    created_at: str
    finished_at: str | None
    event_data: Any
    attempts: list[DeliveryAttempt]


class Problem(TypedDict):
    type: str
    title: str
    status: int
    detail: str
    instance: NotRequired[str | None]
    request_id: NotRequired[str | None]
    errors: list[dict[str, Any]]


class ListActivityQuery(TypedDict, total=False):
    """Of `list_activity`."""

    cursor: str
    limit: int
    sort: Literal["at", "-at"]


class GetAdviceQuery(TypedDict, total=False):
    """Of `get_advice`."""

    failures_per_node_day: float
    gpu_count: int
    gpu_hour_cost: float
    gpus_per_node: int
    interval_seconds: float
    mtbf_seconds: float
    objective_seconds: float
    repair_hours: float
    resume_seconds: float
    run: str
    save_seconds: float


class ListAgentsQuery(TypedDict, total=False):
    """Of `list_agents`."""

    cluster: str
    cursor: str
    limit: int
    node: str
    sort: Literal["enrolled_at", "-enrolled_at"]
    state: Literal["busy", "draining", "incompatible", "lost", "online", "pending", "revoked", "stale"]


class ListAlertRulesQuery(TypedDict, total=False):
    """Of `list_alert_rules`."""

    cluster: str
    cursor: str
    enabled: bool
    kind: list[
        Literal[
            "agent_lost",
            "channel_disabled",
            "damage",
            "drill_failed",
            "not_drilled",
            "not_verified",
            "objective_breached",
            "schedule_missed",
            "tier_behind",
            "tier_full",
            "tier_unreadable",
            "transfer_stuck",
        ]
    ]
    limit: int
    run: str
    sort: Literal["kind", "-kind", "updated_at", "-updated_at"]


class ListAlertsQuery(TypedDict, total=False):
    """Of `list_alerts`."""

    cluster: str
    cursor: str
    limit: int
    rule: list[
        Literal[
            "agent_lost",
            "channel_disabled",
            "damage",
            "drill_failed",
            "not_drilled",
            "not_verified",
            "objective_breached",
            "schedule_missed",
            "tier_behind",
            "tier_full",
            "tier_unreadable",
            "transfer_stuck",
        ]
    ]
    run: str
    severity: list[Literal["critical", "info", "warning"]]
    sort: Literal["opened_at", "-opened_at"]
    state: list[Literal["acknowledged", "open", "resolved"]]
    subject_id: str


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
    mode: list[Literal["seal", "structure", "verify"]]
    outcome: list[Literal["cancelled", "damaged", "failed", "passed", "refused"]]
    placement: str
    policy: str
    round: str
    run: str
    sort: Literal["created_at", "-created_at"]
    state: list[Literal["finished", "queued", "running"]]


class ListBulkOperationsQuery(TypedDict, total=False):
    """Of `list_bulk_operations`."""

    cursor: str
    limit: int
    sort: Literal["created_at", "-created_at"]


class ListBulkOperationItemsQuery(TypedDict, total=False):
    """Of `list_bulk_operation_items`."""

    cursor: str
    limit: int
    sort: Literal["id", "-id"]


class ListCeilingRunsQuery(TypedDict, total=False):
    """Of `list_ceiling_runs`."""

    cursor: str
    limit: int
    sort: Literal["created_at", "-created_at"]


class ListChannelsQuery(TypedDict, total=False):
    """Of `list_channels`."""

    cursor: str
    enabled: bool
    kind: list[Literal["email", "pagerduty", "slack", "webhook"]]
    limit: int
    sort: Literal["created_at", "-created_at", "name", "-name"]


class ListCheckpointsQuery(TypedDict, total=False):
    """Of `list_checkpoints`."""

    at_least: Literal["complete", "listed", "reloaded", "resumed", "sealed", "verified"]
    cluster: str
    cursor: str
    format: list[
        Literal[
            "accelerate",
            "basicsr",
            "bytecheckpoint",
            "colossalai",
            "composer",
            "dcp",
            "dcp_hf",
            "deepspeed",
            "deepspeed_universal",
            "easylm",
            "fairseq",
            "fairseq2",
            "flax",
            "gguf",
            "hf_trainer",
            "keras",
            "levanter",
            "lightning",
            "megatron_dist",
            "megatron_legacy",
            "megatron_zarr",
            "nanotron",
            "nemo",
            "neuronx",
            "nvrx_local",
            "orbax",
            "safetensors",
            "t5x",
            "tensorflow",
            "torch_save",
            "torchsnapshot",
            "torchtitan",
            "torchtune",
            "unknown",
            "verl",
        ]
    ]
    limit: int
    run: str
    sort: Literal["created_at", "-created_at", "step", "-step", "total_bytes", "-total_bytes"]
    status: list[
        Literal[
            "archived",
            "complete",
            "corrupt",
            "in_progress",
            "incomplete",
            "missing",
            "uncommitted",
            "unknown",
            "unreadable",
        ]
    ]
    step: int
    tier: str
    trust: list[Literal["complete", "listed", "reloaded", "resumed", "sealed", "verified"]]


class ListCheckpointFindingsQuery(TypedDict, total=False):
    """Of `list_checkpoint_findings`."""

    checkpoint: str
    cluster: str
    code: list[
        Literal[
            "archived",
            "changed_since_sealing",
            "custom_globals",
            "dataloader_missing",
            "digest_mismatch",
            "duplicate_step",
            "format_unknown",
            "in_progress",
            "link_broken",
            "link_escapes_root",
            "listing_failed",
            "metadata_missing",
            "metadata_unreadable",
            "metadata_unsafe",
            "monolithic",
            "multipart_incomplete",
            "optimizer_missing",
            "path_unsafe",
            "permission_denied",
            "pointer_dangling",
            "pointer_missing",
            "pointer_stale",
            "pointer_unreadable",
            "ranges_gap",
            "ranges_overlap",
            "rank_skew",
            "rng_missing",
            "second_lineage",
            "shard_empty",
            "shard_missing",
            "shard_orphaned",
            "shard_oversized",
            "shard_truncated",
            "shared_shard",
            "size_total_mismatch",
            "sparse_hole",
            "stale_save",
            "state_shrank",
            "step_mismatch",
            "stripe_narrow",
            "target_full",
            "temporary_left",
            "uncommitted",
            "world_size_mismatch",
        ]
    ]
    cursor: str
    limit: int
    open: bool
    placement: str
    run: str
    severity: list[Literal["damage", "note", "warning"]]
    sort: Literal["found_at", "-found_at", "code", "-code"]
    source_kind: list[Literal["audit", "drill", "scan"]]


class ListCheckpointPlacementsQuery(TypedDict, total=False):
    """Of `list_checkpoint_placements`."""

    cursor: str
    limit: int
    sort: Literal["first_seen_at", "-first_seen_at", "path", "-path"]


class ListCheckpointShardsQuery(TypedDict, total=False):
    """Of `list_checkpoint_shards`."""

    cursor: str
    limit: int
    sort: Literal["path", "-path"]


class ListCheckpointTensorsQuery(TypedDict, total=False):
    """Of `list_checkpoint_tensors`."""

    cursor: str
    limit: int
    placement: str
    prefix: str


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


class ListDeliveriesQuery(TypedDict, total=False):
    """Of `list_deliveries`."""

    channel: str
    cursor: str
    event: str
    limit: int
    sort: Literal["created_at", "-created_at"]
    state: list[Literal["cancelled", "delivered", "failed", "pending"]]
    subject: str


class ListDrillsQuery(TypedDict, total=False):
    """Of `list_drills`."""

    cluster: str
    created_after: str
    created_before: str
    cursor: str
    kind: list[Literal["bandwidth", "failover", "herd", "loader_compare", "reload", "standby"]]
    limit: int
    objective_state: list[Literal["breached", "met", "none"]]
    outcome: list[Literal["cancelled", "failed", "lost", "passed", "skipped"]]
    placement: str
    plan: str
    run: str
    sort: Literal["created_at", "-created_at"]
    state: list[Literal["finished", "preparing", "running", "scheduled", "validating", "waiting"]]


class CompareDrillsQuery(TypedDict, total=False):
    """Of `compare_drills`."""

    ids: str


class ListDrillEventsQuery(TypedDict, total=False):
    """Of `list_drill_events`."""

    cursor: str
    limit: int
    sort: Literal["at", "-at"]


class ListDrillRanksQuery(TypedDict, total=False):
    """Of `list_drill_ranks`."""

    cursor: str
    limit: int
    sort: Literal["rank", "-rank", "seconds", "-seconds"]


class ListFindingsQuery(TypedDict, total=False):
    """Of `list_findings`."""

    checkpoint: str
    cluster: str
    code: list[
        Literal[
            "archived",
            "changed_since_sealing",
            "custom_globals",
            "dataloader_missing",
            "digest_mismatch",
            "duplicate_step",
            "format_unknown",
            "in_progress",
            "link_broken",
            "link_escapes_root",
            "listing_failed",
            "metadata_missing",
            "metadata_unreadable",
            "metadata_unsafe",
            "monolithic",
            "multipart_incomplete",
            "optimizer_missing",
            "path_unsafe",
            "permission_denied",
            "pointer_dangling",
            "pointer_missing",
            "pointer_stale",
            "pointer_unreadable",
            "ranges_gap",
            "ranges_overlap",
            "rank_skew",
            "rng_missing",
            "second_lineage",
            "shard_empty",
            "shard_missing",
            "shard_orphaned",
            "shard_oversized",
            "shard_truncated",
            "shared_shard",
            "size_total_mismatch",
            "sparse_hole",
            "stale_save",
            "state_shrank",
            "step_mismatch",
            "stripe_narrow",
            "target_full",
            "temporary_left",
            "uncommitted",
            "world_size_mismatch",
        ]
    ]
    cursor: str
    limit: int
    open: bool
    placement: str
    run: str
    severity: list[Literal["damage", "note", "warning"]]
    sort: Literal["found_at", "-found_at", "code", "-code"]
    source_kind: list[Literal["audit", "drill", "scan"]]


class GetFirstStepsQuery(TypedDict, total=False):
    """Of `get_first_steps`."""

    cluster: str


class ListIncidentsQuery(TypedDict, total=False):
    """Of `list_incidents`."""

    cluster: str
    cursor: str
    limit: int
    run: str
    sort: Literal["fault_at", "-fault_at", "created_at", "-created_at"]
    state: Literal["closed", "open"]


class ListInventoryChangesQuery(TypedDict, total=False):
    """Of `list_inventory_changes`."""

    cluster: str
    cursor: str
    kind: list[Literal["appeared", "changed", "vanished"]]
    limit: int
    run: str
    scan: str
    scanned_after: str
    scanned_before: str
    sort: Literal["id", "-id"]
    tier: str


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


class ListObjectivesQuery(TypedDict, total=False):
    """Of `list_objectives`."""

    archived: bool
    cluster: str
    cursor: str
    limit: int
    name: str
    sort: Literal["standing", "-standing"]


class ListPlacementsQuery(TypedDict, total=False):
    """Of `list_placements`."""

    checkpoint: str
    cluster: str
    cursor: str
    damaged: bool
    limit: int
    run: str
    sort: Literal["first_seen_at", "-first_seen_at", "last_seen_at", "-last_seen_at", "total_bytes", "-total_bytes"]
    status: list[
        Literal[
            "archived",
            "complete",
            "corrupt",
            "in_progress",
            "incomplete",
            "missing",
            "uncommitted",
            "unknown",
            "unreadable",
        ]
    ]
    tier: str
    trust: list[Literal["complete", "listed", "reloaded", "resumed", "sealed", "verified"]]


class ListPlacementEvidenceQuery(TypedDict, total=False):
    """Of `list_placement_evidence`."""

    cursor: str
    limit: int
    sort: Literal["at", "-at"]


class ListPlacementShardsQuery(TypedDict, total=False):
    """Of `list_placement_shards`."""

    cursor: str
    limit: int
    sort: Literal["path", "-path"]


class ListPlansQuery(TypedDict, total=False):
    """Of `list_plans`."""

    cluster: str
    cursor: str
    enabled: bool
    kind: list[Literal["bandwidth", "failover", "herd", "loader_compare", "reload", "standby"]]
    limit: int
    run: str
    sort: Literal["created_at", "-created_at", "name", "-name"]


class GetPlanCalendarQuery(TypedDict, total=False):
    """Of `get_plan_calendar`."""

    days: int


class ListPlanOccurrencesQuery(TypedDict, total=False):
    """Of `list_plan_occurrences`."""

    cursor: str
    limit: int
    sort: Literal["planned_at", "-planned_at"]


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


class ListRepairsQuery(TypedDict, total=False):
    """Of `list_repairs`."""

    checkpoint: str
    cluster: str
    cursor: str
    limit: int
    placement: str
    sort: Literal["created_at", "-created_at"]
    state: list[Literal["cancelled", "done", "failed", "proving", "surveying", "writing"]]


class GetRtoGroupsQuery(TypedDict, total=False):
    """Of `get_rto_groups`."""

    by: Literal["run", "tier", "format", "node_group"]
    days: int
    kind: Literal["reload", "herd", "bandwidth", "loader_compare", "failover", "standby"]


class GetRtoHistoryQuery(TypedDict, total=False):
    """Of `get_rto_history`."""

    days: int
    kind: Literal["reload", "herd", "bandwidth", "loader_compare", "failover", "standby"]
    run: str


class ListRunsQuery(TypedDict, total=False):
    """Of `list_runs`."""

    archived: bool
    cluster: str
    cursor: str
    limit: int
    name: str
    sort: Literal["created_at", "-created_at", "name", "-name"]


class GetChecklistQuery(TypedDict, total=False):
    """Of `get_checklist`."""

    max_age_seconds: int


class GetResumePointQuery(TypedDict, total=False):
    """Of `get_resume_point`."""

    checkpoint_format: str
    dp: int
    evidence: bool
    max_age: str
    pp: int
    require: Literal["listed", "complete", "sealed", "verified", "reloaded", "resumed"]
    step: int
    tp: int
    world_size: int


class ListRunAttemptsQuery(TypedDict, total=False):
    """Of `list_run_attempts`."""

    cursor: str
    limit: int
    sort: Literal["started_at", "-started_at", "last_report_at", "-last_report_at"]


class ListRunStepsQuery(TypedDict, total=False):
    """Of `list_run_steps`."""

    cursor: str
    limit: int
    sort: Literal["at", "-at", "step", "-step"]


class ListSavedViewsQuery(TypedDict, total=False):
    """Of `list_saved_views`."""

    cursor: str
    limit: int
    list: str
    sort: Literal["created_at", "-created_at", "name", "-name"]


class ListScansQuery(TypedDict, total=False):
    """Of `list_scans`."""

    cluster: str
    cursor: str
    limit: int
    sort: Literal["created_at", "-created_at"]
    state: list[Literal["cancelled", "failed", "finished", "queued", "running"]]
    tier: str


class GetScanDiffQuery(TypedDict, total=False):
    """Of `get_scan_diff`."""

    since: str


class ListScanChangesQuery(TypedDict, total=False):
    """Of `list_scan_changes`."""

    cursor: str
    kind: list[Literal["appeared", "changed", "vanished"]]
    limit: int
    sort: Literal["id", "-id", "kind", "-kind"]


class SearchQuery(TypedDict, total=False):
    """Of `search`."""

    q: str


class ListSilencesQuery(TypedDict, total=False):
    """Of `list_silences`."""

    cluster: str
    cursor: str
    limit: int
    rule: list[
        Literal[
            "agent_lost",
            "channel_disabled",
            "damage",
            "drill_failed",
            "not_drilled",
            "not_verified",
            "objective_breached",
            "schedule_missed",
            "tier_behind",
            "tier_full",
            "tier_unreadable",
            "transfer_stuck",
        ]
    ]
    run: str
    sort: Literal["created_at", "-created_at", "ends_at", "-ends_at"]
    standing: bool


class ListSteplessCheckpointsQuery(TypedDict, total=False):
    """Of `list_stepless_checkpoints`."""

    cluster: str
    cursor: str
    format: list[
        Literal[
            "accelerate",
            "basicsr",
            "bytecheckpoint",
            "colossalai",
            "composer",
            "dcp",
            "dcp_hf",
            "deepspeed",
            "deepspeed_universal",
            "easylm",
            "fairseq",
            "fairseq2",
            "flax",
            "gguf",
            "hf_trainer",
            "keras",
            "levanter",
            "lightning",
            "megatron_dist",
            "megatron_legacy",
            "megatron_zarr",
            "nanotron",
            "nemo",
            "neuronx",
            "nvrx_local",
            "orbax",
            "safetensors",
            "t5x",
            "tensorflow",
            "torch_save",
            "torchsnapshot",
            "torchtitan",
            "torchtune",
            "unknown",
            "verl",
        ]
    ]
    limit: int
    run_name: str
    sort: Literal["first_seen_at", "-first_seen_at", "path", "-path", "total_bytes", "-total_bytes"]
    status: list[
        Literal[
            "archived",
            "complete",
            "corrupt",
            "in_progress",
            "incomplete",
            "missing",
            "uncommitted",
            "unknown",
            "unreadable",
        ]
    ]
    tier: str


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


class ListTiersQuery(TypedDict, total=False):
    """Of `list_tiers`."""

    cluster: str
    cursor: str
    kind: list[Literal["archive", "local_nvme", "memory", "nas", "object_store", "parallel_fs"]]
    limit: int
    sort: Literal["created_at", "-created_at", "name", "-name", "speed_order", "-speed_order"]


class ListTierCeilingsQuery(TypedDict, total=False):
    """Of `list_tier_ceilings`."""

    cursor: str
    limit: int
    sort: Literal["measured_at", "-measured_at", "bytes_per_second", "-bytes_per_second"]


class ListTierRateLimitsQuery(TypedDict, total=False):
    """Of `list_tier_rate_limits`."""

    cursor: str
    limit: int
    sort: Literal["created_at", "-created_at"]


class ListTokensQuery(TypedDict, total=False):
    """Of `list_tokens`."""

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


class ListUsersQuery(TypedDict, total=False):
    """Of `list_users`."""

    cursor: str
    limit: int
    sort: Literal["username", "-username", "date_joined", "-date_joined"]


class GetWhatIfQuery(TypedDict, total=False):
    """Of `get_what_if`."""

    nodes: int
    objective_seconds: float
    ranks: int
    readers: int
    tier: str
    total_bytes: int
