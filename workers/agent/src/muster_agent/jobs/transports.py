"""How one pass over the bytes gets them: through host memory, or with cuFile into a GPU's.

A reload asks a transport to open each shard and, at the end, which path the bytes really took and how that is known.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Protocol

from muster_agent.jobs.checkpoint_place import StatedShard
from muster_agent.jobs.chunks import block_bytes_for, open_posix
from muster_agent.probes.gds import GdsProbe
from muster_agent.reload import backends
from muster_agent.reload.gds import GdsSession, GdsUnavailable
from muster_agent.reload.reader import READERS, InPlace
from muster_agent.reload.totals import ReadTotals
from muster_agent.storage.base import ShardSource

CACHED_PIECE_BYTES = 1 << 20
"""From the page cache a block is copied and hashed in pieces that fit into a CPU's own cache."""


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


class HostTransport:
    """Files into host memory, around the page cache or through it. `gds` is what a probe said, where one was made."""

    in_place: InPlace | None = None
    in_host_memory = True

    def __init__(self, choice: backends.Choice, gds: GdsProbe | None) -> None:
        self._choice = choice
        self._gds = gds
        self.readers = min(READERS, os.cpu_count() or READERS) if choice.from_cache else READERS
        self.piece_bytes = CACHED_PIECE_BYTES if choice.from_cache else None

    def open(self, shard: StatedShard) -> ShardSource:
        """See `Transport`."""
        return open_posix(shard, direct=self._choice.direct)

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
    """Files into GPU memory through cuFile. Bytes stay there where nothing is to be proven about them, or where the GPU
    proves them itself; else each block is read back. `chunk_bytes` None where there is nothing to compare with."""

    readers = READERS
    in_host_memory = False
    piece_bytes: int | None = None

    def __init__(self, session: GdsSession, chunk_bytes: int | None) -> None:
        self._session = session
        self._verifies = chunk_bytes is not None
        stays = not self._verifies or session.hasher is not None
        self.in_place = InPlace(chunk_bytes) if stays else None

    def open(self, shard: StatedShard) -> ShardSource:
        """See `Transport`."""
        return self._session.open(shard.location)

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


def open_transport(
    choice: backends.Choice, gds: GdsProbe | None, device: str, chunk_bytes: int, *, verifies: bool
) -> Transport:
    """The transport of a choice; where cuFile does not open after all, the one through host memory."""
    if not choice.gds:
        return HostTransport(choice, gds)
    try:
        session = GdsSession(device_index(device), block_bytes_for(chunk_bytes), hash_chunks=verifies)
    except GdsUnavailable as error:
        return HostTransport(backends.Choice(gds=False, direct=True, reason=f"cuFile did not open: {error}"), gds)
    return GdsTransport(session, chunk_bytes if verifies else None)


def device_index(device: str) -> int:
    """The number in `cuda:N`; 0 for `auto` and plain `cuda`."""
    number = device.partition(":")[2]
    return int(number) if number.isdigit() else 0
