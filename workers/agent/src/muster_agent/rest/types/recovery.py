"""Bodies and queries: recovery."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from muster_agent.rest.types.shared import Budget, ResumePoint


class ApiRequest(TypedDict):
    method: str
    path: str
    body: dict[str, Any]


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


class SentencePart(TypedDict):
    text: str
    about: str
    known: str
    evidence: PartEvidence | None


class Undrilled(TypedDict):
    run: str
    run_name: str
    drilled_at: str | None


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
