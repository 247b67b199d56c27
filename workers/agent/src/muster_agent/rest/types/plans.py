"""Bodies and queries: plans."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from muster_agent.rest.types.shared import (
    BackendEnum,
    ChoiceEnum,
    DrillKindEnum,
    FaultEnum,
    MappingEnum,
    MissedEnum,
    RunnerEnum,
    SignalNameEnum,
)

OverlapEnum = Literal["skip", "wait", "cancel"]


class Calendar(TypedDict):
    """The coming days; of a plan at most its next 500 times."""

    paused: bool
    items: list[Coming]


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


class Occurrence(TypedDict):
    """One due time: its drill, or why there was none."""

    planned_at: str
    drill: str | None
    outcome: NotRequired[str | None]
    objective_state: NotRequired[str | None]
    skipped_reason: str
    created_at: str


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
