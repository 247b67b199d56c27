"""Bodies and queries: recovery."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from muster_agent.rest.types.shared import ResumePoint


class Advice(TypedDict):
    inputs: Inputs
    node_count: int | None
    mtbf: Input
    failures_per_month: float | None
    interval: Interval
    today: Scenario
    objective: Scenario
    spare_node_count: int | None


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


class CeilingPoint(TypedDict):
    reader_count: int
    bytes_per_second: float


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


class NextAction(TypedDict):
    action: str
    words: str
    step: int | None


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


class PartEvidence(TypedDict):
    kind: str
    id: str
    step: int | None


class PredictionError(TypedDict):
    """Each past drill against what the drills before it predict."""

    count: int
    mape_ratio: float
    bias_ratio: float


class Progress(TypedDict):
    """`total` is null where nobody knows it yet."""

    done: int
    total: int | None
    unit: str


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


class ReportIncidentRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    run: str
    fault_at: str
    launch_id: NotRequired[str]
    detected_at: NotRequired[str]
    resumed_at: NotRequired[str]
    checkpoint_step: NotRequired[int]
    detail: NotRequired[str]


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


class SentencePart(TypedDict):
    text: str
    about: str
    known: str
    evidence: PartEvidence | None


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


class Undrilled(TypedDict):
    run: str
    run_name: str
    drilled_at: str | None


class WhatIf(TypedDict):
    tier: str
    tier_name: str
    model: Model | None
    error: PredictionError | None
    other_phases: dict[str, Any]
    restart_count: int
    items: list[Answer]


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


class ListObjectivesQuery(TypedDict, total=False):
    """Of `list_objectives`."""

    archived: bool
    cluster: str
    cursor: str
    limit: int
    name: str
    sort: Literal["standing", "-standing"]


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


class GetWhatIfQuery(TypedDict, total=False):
    """Of `get_what_if`."""

    nodes: int
    objective_seconds: float
    ranks: int
    readers: int
    tier: str
    total_bytes: int
