"""Bodies and queries: scans."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


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
