"""What an audit keeps of who did it and of what it was compared with, for when those rows are gone."""

from __future__ import annotations

import socket
from typing import Any

from muster_agent import __version__
from muster_agent.manifest.model import Manifest, manifest_id

from apps.audits.models import Audit


def by_whom(audit: Audit) -> dict[str, Any]:
    """The agent that did it, as it is now."""
    agent = audit.agent
    if agent is None:
        return {"ran_by": audit.ran_by}
    return {
        "ran_by": audit.ran_by,
        "agent": agent.pk,
        "node": agent.node.name,
        "version": agent.version,
        "protocol": agent.protocol,
    }


def by_this_worker() -> dict[str, Any]:
    """Where the workers do it themselves."""
    return {"ran_by": "workers", "node": socket.gethostname(), "version": __version__}


def of_manifest(manifest: Manifest | None) -> dict[str, Any]:
    """What a manifest says of itself, and the number of chunks of each of its shards."""
    if manifest is None:
        return {}
    return {
        "manifest_id": manifest_id(manifest),
        "sealed_at": manifest.sealed_at,
        "origin": manifest.origin,
        "root_xxh3_128": manifest.root_xxh3_128,
        "chunk_bytes": manifest.chunk_bytes,
        "shard_count": len(manifest.shards),
        "total_bytes": manifest.total_bytes,
        "shard_chunks": _chunk_counts(manifest),
    }


def _chunk_counts(manifest: Manifest) -> dict[str, int]:
    """How many shards have so many chunks: {"12": 64}."""
    counts: dict[str, int] = {}
    for shard in manifest.shards:
        key = str(-(-shard.size_bytes // manifest.chunk_bytes))
        counts[key] = counts.get(key, 0) + 1
    return counts
