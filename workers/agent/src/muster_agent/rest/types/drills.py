"""Bodies and queries: drills."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from muster_agent.rest.types.shared import (
    BackendEnum,
    ChoiceEnum,
    DrillKindEnum,
    FaultEnum,
    MappingEnum,
    RunnerEnum,
    SignalNameEnum,
)


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


class DrillStory(TypedDict):
    lead: str
    asked: list[DrillFact]
    done: list[DrillFact]
    ceiling: str
    is_above_ceiling: bool
    last: DrillLastClient | None
    comparison: DrillComparison | None
    not_proven: list[str]


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


class StopDrillsRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    reason: NotRequired[str]


class Stopped(TypedDict):
    cancelled_count: int


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
