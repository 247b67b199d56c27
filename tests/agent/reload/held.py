"""Whole shards as an arena takes them."""

from __future__ import annotations

from muster_agent.reload.plan import Extent


def sized(*sizes_bytes: int) -> list[Extent]:
    """Shards of these sizes, each held from its first byte to its last."""
    return [Extent(number, 0, size) for number, size in enumerate(sizes_bytes)]
