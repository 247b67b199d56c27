"""Findings about how a checkpoint's bytes are spread over shards and ranks, with the gain a better shape predicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from muster_agent.formats.base import Finding, Role, ShardEntry
from muster_agent.formats.codes import finding

SMALLEST_BYTES = 1 << 30
"""Below 1 GiB the shape does not decide how long a restart takes."""
SKEW_RATIO = 1.5


def is_data(shard: ShardEntry) -> bool:
    """Whether the shard holds state, as against metadata and files that lie beside it."""
    return shard.role not in (Role.METADATA, Role.OTHER)


def shape_findings(shards: Sequence[ShardEntry], world_size: int | None, path: str) -> list[Finding]:
    """Warnings `monolithic` and `rank_skew` for a checkpoint of at least 1 GiB."""
    if sum([shard.size_bytes or 0 for shard in shards]) < SMALLEST_BYTES:
        return []
    data = [shard for shard in shards if is_data(shard)]
    total_bytes = sum(shard.size_bytes or 0 for shard in data)
    if total_bytes < SMALLEST_BYTES:
        return []
    if len(data) == 1:
        return [_monolithic(data[0], world_size)]
    return _skew(data, total_bytes, path)


def _monolithic(shard: ShardEntry, world_size: int | None) -> Finding:
    ranks = world_size or 8
    gain = f"{ranks} shards read at the same time take about 1/{ranks} of the time where the storage can serve them"
    detail = f"all {(shard.size_bytes or 0) / (1 << 30):.1f} GiB lie in one file; {gain}"
    return finding("monolithic", path=shard.path, detail=detail)


def _skew(data: Sequence[ShardEntry], total_bytes: int, path: str) -> list[Finding]:
    by_rank: dict[int, int] = defaultdict(int)
    for shard in data:
        if shard.rank is not None:
            by_rank[shard.rank] += shard.size_bytes or 0
    if len(by_rank) < 2:
        return []
    mean_bytes = sum(by_rank.values()) / len(by_rank)
    rank, most_bytes = max(by_rank.items(), key=lambda item: item[1])
    if most_bytes < SKEW_RATIO * mean_bytes:
        return []
    saved_ratio = 1 - mean_bytes / most_bytes
    detail = (
        f"rank {rank} reads {most_bytes / (1 << 30):.1f} GiB, the mean is {mean_bytes / (1 << 30):.1f} GiB; "
        f"balanced shards would save about {saved_ratio:.0%} of the read time"
    )
    return [finding("rank_skew", path=path, detail=detail)]
