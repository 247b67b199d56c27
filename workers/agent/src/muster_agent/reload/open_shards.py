"""The open shards of one pass: each is opened at its first block and closed after its last."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence

from muster_agent.reload.plan import Extent
from muster_agent.reload.totals import ReadTotals
from muster_agent.storage.base import ShardSource

_WAIT_SECONDS = 0.2


class OpenShards:
    """Thread-safe. A shard whose storage stopped answering is `silent`: nobody waits for it any more."""

    def __init__(self, plan: Sequence[Extent], open_shard: Callable[[int], ShardSource], totals: ReadTotals) -> None:
        self._open_shard = open_shard
        self._totals = totals
        self._left = Counter(extent.shard for extent in plan)
        self._sources: dict[int, ShardSource | None] = {}
        self._opening: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()
        self.silent: set[int] = set()

    def opened(self, shard: int) -> ShardSource | None:
        """The shard where it is open already, as it mostly is; None where `take` has to look."""
        return None if shard in self.silent else self._sources.get(shard)

    def take(self, shard: int, check: Callable[[], None]) -> ShardSource | None:
        """The open shard, or None where it cannot be opened (the error is in the totals) or is silent."""
        with self._lock:
            opening = self._opening.setdefault(shard, threading.Lock())
        while not opening.acquire(timeout=_WAIT_SECONDS):
            check()
            if shard in self.silent:
                return None
        try:
            if shard not in self._sources and shard not in self.silent:
                self._sources[shard] = self._open(shard)
            return None if shard in self.silent else self._sources[shard]
        finally:
            opening.release()

    def _open(self, shard: int) -> ShardSource | None:
        try:
            source = self._open_shard(shard)
        except OSError as error:
            with self._lock:
                self._totals.errors.setdefault(shard, error)
            return None
        self._totals.sources[shard] = (source.size_bytes, source.mtime_ns)
        return source

    def put_back(self, shard: int) -> None:
        with self._lock:
            self._left[shard] -= 1
            if self._left[shard] == 0:
                self._close(shard)

    def close_all(self) -> None:
        """Close what is open. A silent shard stays open: its reader may still be inside a call on it."""
        with self._lock:
            for shard in set(self._sources) - self.silent:
                self._close(shard)

    def _close(self, shard: int) -> None:
        source = self._sources.get(shard)
        if source is not None:
            self._totals.direct_bytes += getattr(source, "direct_bytes", 0)
            self._totals.buffered_bytes += getattr(source, "buffered_bytes", 0)
            self._totals.dropped_bytes += getattr(source, "dropped_bytes", 0)
            source.close()
        self._sources[shard] = None
