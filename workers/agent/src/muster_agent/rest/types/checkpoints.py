"""Bodies and queries: checkpoints."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

RequiredTrustEnum = Literal["complete", "sealed", "verified"]

ShardRoleEnum = Literal["model", "optimizer", "rng", "dataloader", "scheduler", "metadata", "other"]


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


class CreateScanRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    tier: str
    root: NotRequired[str]
    agent: NotRequired[str]
    accepts_loss: NotRequired[bool]


class Difference(TypedDict):
    placement: str
    path: str
    run_name: str
    step: int
    kind: str
    before: dict[str, Any]
    after: dict[str, Any]


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


class LabelsRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    labels: list[str]


class Line(TypedDict):
    heading: str
    sentence: str


class Marks(TypedDict):
    """What people said of a checkpoint."""

    pinned: bool
    pin_reason: str | None
    pinned_by: str | None
    labels: list[str]


class PatchedUpdateRunRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    rto_objective_seconds: NotRequired[float | None]
    rpo_objective_seconds: NotRequired[float | None]
    gpu_count: NotRequired[int | None]
    required_trust: NotRequired[RequiredTrustEnum]
    archived: NotRequired[bool]
    frozen_tensors: NotRequired[list[str]]


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


class Role(TypedDict):
    role: str
    expected: int
    there: int
    size_bytes: int | None


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
