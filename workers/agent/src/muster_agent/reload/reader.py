"""The engine: threads that read blocks into a ring of buffers and hand each block on right after it landed.

A block is hashed while it is still in the CPU's cache; Python's lock is free during both the read and the hash, so
threads and preadv reach the device's limit (docs/measurements/reload.md) without an extension module.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from muster_agent.reload.buffers import BufferRing
from muster_agent.reload.plan import Extent
from muster_agent.storage.base import InPlaceSource, ShardSource
from muster_agent.storage.throttle import Throttle

READERS = 8

Check = Callable[[], None]


class Stopped(Exception):
    """Another reader failed; this one leaves quietly."""


class Control(Protocol):
    """What the engine needs of a job's control (`muster_agent.jobs.control`, a layer above)."""

    @property
    def progress(self) -> Callable[[str, int, int], None]: ...

    def check(self) -> None:
        """Raise when the work is to stop."""
        ...


class Consumer(Protocol):
    """What is done with the bytes. Called from many threads; blocks of one shard are issued in ascending order but may
    land in any."""

    def landed(self, extent: Extent, data: memoryview, check: Check) -> None:
        """`data` holds the extent's bytes (fewer where the shard ended early) until this returns. Whoever waits in
        here calls `check`, which raises once the work is to stop."""
        ...

    def hashed(self, extent: Extent, digests: Sequence[int]) -> None:
        """The extent landed elsewhere, and these are the XXH3-64 of its chunks there."""
        ...

    def lost(self, extent: Extent) -> None:
        """The extent could not be read."""
        ...


@dataclass(frozen=True, slots=True)
class InPlace:
    """Leave the bytes where the source puts them. `chunk_bytes` None where nothing is to be hashed."""

    chunk_bytes: int | None


@dataclass(slots=True)
class ReadTotals:
    """What happened. Seconds are sums over threads; `last_read_at` is monotonic, None where nothing was read."""

    read_bytes: int = 0
    reading_seconds: float = 0.0
    consuming_seconds: float = 0.0
    cpu_seconds: float = 0.0
    last_read_at: float | None = None
    direct_bytes: int = 0
    buffered_bytes: int = 0
    errors: dict[int, OSError] = field(default_factory=dict)
    """By shard number: the first error; later extents of a shard that cannot be opened are not tried."""
    ended_at_bytes: dict[int, int] = field(default_factory=dict)
    """By shard number: where it ended although more was planned."""
    sources: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By shard number: (size in bytes, mtime in ns) when it was opened."""


class _OpenShards:
    """Each shard is opened at its first block and closed after its last."""

    def __init__(self, plan: Sequence[Extent], open_shard: Callable[[int], ShardSource], totals: ReadTotals) -> None:
        self._open_shard = open_shard
        self._totals = totals
        self._left = Counter(extent.shard for extent in plan)
        self._sources: dict[int, ShardSource | None] = {}
        self._lock = threading.Lock()

    def take(self, shard: int) -> ShardSource | None:
        """The open shard, or None where it cannot be opened (the error is in the totals)."""
        with self._lock:
            if shard not in self._sources:
                self._sources[shard] = self._open(shard)
            return self._sources[shard]

    def _open(self, shard: int) -> ShardSource | None:
        try:
            source = self._open_shard(shard)
        except OSError as error:
            self._totals.errors[shard] = error
            return None
        self._totals.sources[shard] = (source.size_bytes, source.mtime_ns)
        return source

    def put_back(self, shard: int) -> None:
        with self._lock:
            self._left[shard] -= 1
            if self._left[shard] == 0:
                self._close(self._sources.get(shard))
                self._sources[shard] = None

    def close_all(self) -> None:
        with self._lock:
            for shard, source in self._sources.items():
                self._close(source)
                self._sources[shard] = None

    def _close(self, source: ShardSource | None) -> None:
        if source is not None:
            self._totals.direct_bytes += getattr(source, "direct_bytes", 0)
            self._totals.buffered_bytes += getattr(source, "buffered_bytes", 0)
            source.close()


@dataclass(slots=True)
class ReadRun:
    """One pass over a plan. `run()` returns the totals; storage errors are in them, anything else is raised."""

    plan: Sequence[Extent]
    open_shard: Callable[[int], ShardSource]
    consumer: Consumer
    ring: BufferRing
    control: Control
    throttle: Throttle
    readers: int = READERS
    phase: str = "read"
    in_place: InPlace | None = None
    """For sources that are `InPlaceSource`; None brings every byte to host memory."""
    totals: ReadTotals = field(default_factory=ReadTotals)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _failure: BaseException | None = None

    def run(self) -> ReadTotals:
        """Read every extent of the plan. Raises Cancelled within one block of being told to stop."""
        shards = _OpenShards(self.plan, self.open_shard, self.totals)
        todo = iter(self.plan)
        total_bytes = sum(extent.length_bytes for extent in self.plan)
        count = max(1, min(self.readers, len(self.plan)))
        threads = [
            threading.Thread(target=self._reader, args=(todo, shards, total_bytes), name=f"muster-read-{index}")
            for index in range(count)
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException as error:  # an interrupt in this thread must not leave the readers running
            self._fail(error)
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        finally:
            shards.close_all()
        if self._failure is not None:
            raise self._failure
        return self.totals

    def _reader(self, todo: Iterator[Extent], shards: _OpenShards, total_bytes: int) -> None:
        started_cpu = time.thread_time()
        try:
            with self.ring.lend() as buffer:
                while (extent := self._next(todo)) is not None:
                    self._check()
                    self._one(extent, shards, buffer)
                    self.control.progress(self.phase, self.totals.read_bytes, total_bytes)
        except Stopped:
            pass
        except BaseException as error:
            self._fail(error)
        finally:
            with self._lock:
                self.totals.cpu_seconds += time.thread_time() - started_cpu

    def _next(self, todo: Iterator[Extent]) -> Extent | None:
        with self._lock:
            return next(todo, None)

    def _one(self, extent: Extent, shards: _OpenShards, buffer: memoryview) -> None:
        try:
            source = shards.take(extent.shard)
            if source is None or not self._take(source, extent, buffer):
                self.consumer.lost(extent)
        finally:
            shards.put_back(extent.shard)

    def _take(self, source: ShardSource, extent: Extent, buffer: memoryview) -> bool:
        """Read one extent and hand it on; False where it could not be read."""
        if self.in_place is not None and isinstance(source, InPlaceSource):
            return self._take_in_place(source, extent, self.in_place)
        count = self._read(extent, lambda: source.read_into(buffer, extent.offset_bytes, extent.length_bytes))
        if count is not None:
            self._consume(lambda: self.consumer.landed(extent, buffer[:count], self._check))
        return count is not None

    def _take_in_place(self, source: InPlaceSource, extent: Extent, in_place: InPlace) -> bool:
        count = self._read(extent, lambda: source.read_in_place(extent.offset_bytes, extent.length_bytes))
        chunk_bytes = in_place.chunk_bytes
        if not count or chunk_bytes is None:
            return count is not None
        try:
            self._consume(lambda: self.consumer.hashed(extent, source.digests_in_place(count, chunk_bytes)))
        except OSError as error:
            self._note(extent, error)
            return False
        return True

    def _consume(self, consume: Callable[[], None]) -> None:
        began = time.monotonic()
        consume()
        with self._lock:
            self.totals.consuming_seconds += time.monotonic() - began

    def _note(self, extent: Extent, error: OSError) -> None:
        with self._lock:
            self.totals.errors.setdefault(extent.shard, error)

    def _read(self, extent: Extent, read: Callable[[], int]) -> int | None:
        """The bytes that a read gave, counted and timed; None where it failed."""
        self.throttle.wait(extent.length_bytes, self._check)
        began = time.monotonic()
        try:
            count = read()
        except OSError as error:
            self._note(extent, error)
            return None
        ended = time.monotonic()
        with self._lock:
            totals = self.totals
            totals.read_bytes += count
            totals.reading_seconds += ended - began
            totals.last_read_at = max(ended, totals.last_read_at or ended)
            if count < extent.length_bytes:
                end = extent.offset_bytes + count
                totals.ended_at_bytes[extent.shard] = min(end, totals.ended_at_bytes.get(extent.shard, end))
        return count

    def _check(self) -> None:
        self.control.check()
        if self._failure is not None:
            raise Stopped

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = error
