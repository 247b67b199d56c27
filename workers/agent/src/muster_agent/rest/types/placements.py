"""Bodies and queries: placements."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, TypedDict


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


class Line(TypedDict):
    heading: str
    sentence: str


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


class Role(TypedDict):
    role: str
    expected: int
    there: int
    size_bytes: int | None


class ShapeFinding(TypedDict):
    """`saved_seconds` is what the cure is predicted to save; null: the tier's rates were not measured."""

    code: str
    detail: str
    seconds: float | None
    cured_seconds: float | None
    saved_seconds: float | None


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
