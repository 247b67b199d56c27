"""Bodies and queries: checkpoints."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

ShardRoleEnum = Literal["model", "optimizer", "rng", "dataloader", "scheduler", "metadata", "other"]


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


class ItemError(TypedDict):
    pointer: str | None
    code: str
    detail: str


class LabelsRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    labels: list[str]


class Marks(TypedDict):
    """What people said of a checkpoint."""

    pinned: bool
    pin_reason: str | None
    pinned_by: str | None
    labels: list[str]


class PinRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    reason: str


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
