"""Bodies and queries: storage."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

ScannedByEnum = Literal["agents", "workers"]

StateEnum = Literal["queued", "running", "finished"]

TierKindEnum = Literal["memory", "local_nvme", "parallel_fs", "nas", "object_store", "archive"]


class Ceiling(TypedDict):
    id: int
    bytes_per_second: float
    client_count: int
    method: str
    measured_at: str


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


class CreateRateLimitRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    max_bytes_per_second: int
    begins: NotRequired[str]
    ends: NotRequired[str]
    time_zone: NotRequired[str]


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


class RateLimit(TypedDict):
    id: str
    tier: str
    max_bytes_per_second: int
    begins: str
    ends: str
    time_zone: str
    created_at: str


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


class ListCeilingRunsQuery(TypedDict, total=False):
    """Of `list_ceiling_runs`."""

    cursor: str
    limit: int
    sort: Literal["created_at", "-created_at"]


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
