"""How one pass over the bytes gets them: through host memory, or with cuFile into a GPU's.

A reload asks a transport to open each shard and, at the end, which path the bytes really took and how that is known.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from muster_agent.jobs.checkpoint_place import StatedShard
from muster_agent.probes.gds import GdsProbe
from muster_agent.reload import backends
from muster_agent.reload.gds import GdsSession
from muster_agent.reload.gpu.memory import DeviceArena
from muster_agent.reload.pace import READERS, pace_of
from muster_agent.reload.plan import Extent
from muster_agent.reload.reader import InPlace
from muster_agent.reload.totals import ReadTotals
from muster_agent.storage.base import ShardSource
from muster_agent.storage.posix import PosixShard


class PathTaken(NamedTuple):
    """`effective` is a word of `protocol.results.Backend`."""

    effective: str
    reason: str
    evidence: dict[str, Any]


class Transport(Protocol):
    """Opened before the first read and closed after the last, by the reload."""

    readers: int
    """How many threads read at once."""
    in_place: InPlace | None
    """Set where bytes stay where the source puts them; None brings each block to host memory."""
    in_host_memory: bool
    """Whether the bytes can be kept in an arena."""
    piece_bytes: int | None
    """How much is read and hashed at a time, where that is less than a block."""

    def open(self, shard: StatedShard) -> ShardSource:
        """Raises OSError."""
        ...

    def path_taken(self, totals: ReadTotals) -> PathTaken:
        """What became of the choice, from what was counted."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


class DeviceShards:
    """Places on a GPU for shards, by name. Raises DeviceUnavailable and NoDeviceRoom."""

    def __init__(self, device_index: int, held: Mapping[str, Extent]) -> None:
        self.numbers = {path: number for number, path in enumerate(held)}
        self.arena = DeviceArena(device_index, list(held.values()))


class HostTransport:
    """Files into host memory, around the page cache or through it. `is_remote`: they lie on another machine; `gds` is
    what a probe said, where one was made."""

    in_place: InPlace | None = None
    in_host_memory = True

    def __init__(self, choice: backends.Choice, gds: GdsProbe | None, *, is_remote: bool) -> None:
        self._choice = choice
        self._gds = gds
        self.readers, self.piece_bytes = pace_of(
            from_cache=choice.from_cache, is_remote=is_remote, cpus=len(os.sched_getaffinity(0))
        )

    def open(self, shard: StatedShard) -> ShardSource:
        """See `Transport`."""
        return PosixShard(shard.location, direct=self._choice.direct)

    def path_taken(self, totals: ReadTotals) -> PathTaken:
        """See `Transport`."""
        direct_bytes, buffered_bytes, dropped_bytes = totals.direct_bytes, totals.buffered_bytes, totals.dropped_bytes
        effective, note = backends.effective_host(direct_bytes, buffered_bytes, self._choice.direct, dropped_bytes)
        evidence = backends.host_evidence(direct_bytes, buffered_bytes)
        if dropped_bytes:
            evidence["dropped_bytes"] = dropped_bytes
        if self._gds is not None and not self._gds.usable:
            evidence["gds"] = {"reason": self._gds.reason, **self._gds.evidence}
        return PathTaken(effective.value, backends.describe(self._choice, note), evidence)

    def close(self) -> None:
        """See `Transport`."""


class GdsTransport:
    """Files into GPU memory through cuFile. Bytes are proven there by the GPU itself, else by a copy of each block that
    is read back; `chunk_bytes` None where there is nothing to compare with. The device keeps the shards of `kept`."""

    readers = READERS
    in_host_memory = False
    piece_bytes: int | None = None

    def __init__(self, session: GdsSession, chunk_bytes: int | None, kept: DeviceShards | None = None) -> None:
        self._session, self._kept = session, kept
        self._verifies = chunk_bytes is not None
        self.in_place: InPlace | None = InPlace(chunk_bytes)

    def open(self, shard: StatedShard) -> ShardSource:
        """See `Transport`."""
        return self._session.open(shard.location, self._kept.numbers[shard.path] if self._kept is not None else 0)

    def path_taken(self, totals: ReadTotals) -> PathTaken:
        """See `Transport`."""
        counts = self._session.counts()
        effective, reason = backends.effective_gds(counts)
        return PathTaken(effective.value, reason, {"counts": counts, **self._verify_path()})

    def _verify_path(self) -> dict[str, Any]:
        if not self._verifies:
            return {}
        if self._session.hasher is not None:
            return {"verify_path": "device"}
        return {"verify_path": "device_to_host", "device_hash_unavailable_because": self._session.no_hasher}

    def close(self) -> None:
        """See `Transport`."""
        self._session.close()
