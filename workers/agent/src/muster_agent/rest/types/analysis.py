"""Bodies and queries: analysis."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from muster_agent.rest.types.shared import Budget


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


class Blame(TypedDict):
    phase: str
    seconds: float
    before_seconds: float | None


class CeilingPoint(TypedDict):
    reader_count: int
    bytes_per_second: float


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


class PredictionError(TypedDict):
    """Each past drill against what the drills before it predict."""

    count: int
    mape_ratio: float
    bias_ratio: float


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
