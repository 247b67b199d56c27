"""The engine: threads that read blocks into a ring of buffers and hand each block on right after it landed.

A block is hashed while it is still in the CPU's cache; Python's lock is free during both the read and the hash, so
threads and preadv reach the device's limit (docs/measurements/reload.md) without an extension module.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, runtime_checkable

from muster_agent.protocol.phases import Phase
from muster_agent.reload.arena import Arena
from muster_agent.reload.buffers import BufferRing
from muster_agent.reload.open_shards import OpenShards
from muster_agent.reload.pace import READERS
from muster_agent.reload.phase_clock import PhaseClock
from muster_agent.reload.plan import Extent
from muster_agent.reload.reader_thread import ReaderThread, Stopped
from muster_agent.reload.totals import ReadTotals
from muster_agent.storage.base import InPlaceSource, ShardSource
from muster_agent.storage.throttle import Throttle

BLOCK_SECONDS = 120.0
"""A read that takes longer than this is given up: a dead mount answers never, and the other shards must not wait."""
_LOOK_SECONDS = 0.05
_LEAVE_SECONDS = 0.5
_REPLACEMENTS = 32

Check = Callable[[], None]


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


class Pieces(Protocol):
    """One extent that lands piece by piece, in order, in one thread."""

    def update(self, data: memoryview) -> None: ...

    def end(self) -> None:
        """The extent has landed, or as much of it as there is."""
        ...


@runtime_checkable
class PieceConsumer(Protocol):
    """A consumer that need not have an extent whole."""

    def begin(self, extent: Extent) -> Pieces: ...


@dataclass(frozen=True, slots=True)
class InPlace:
    """Leave the bytes where the source puts them. `chunk_bytes` None where nothing is to be hashed."""

    chunk_bytes: int | None


@dataclass(slots=True)
class ReadRun:
    """One pass over a plan. `run()` returns the totals; storage errors are in them, anything else is raised.

    A storage call that does not return within `block_seconds` is given up together with its thread: the shard gets the
    error ETIMEDOUT, another thread takes over, and the others finish.
    """

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
    piece_bytes: int | None = None
    """Read and hand on so much at a time, where the consumer takes pieces and nothing is kept: bytes are then hashed
    out of the CPU's own cache."""
    arena: Arena | None = None
    """Where the bytes stay; None reads each block over the last one of its reader."""
    block_seconds: float = field(default_factory=lambda: BLOCK_SECONDS)
    totals: ReadTotals = field(default_factory=ReadTotals)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _failure: BaseException | None = None
    _team: list[ReaderThread] = field(default_factory=list)
    _todo: Iterator[Extent] = field(default_factory=lambda: iter(()))
    _total_bytes: int = 0
    _clock: PhaseClock = field(default_factory=lambda: PhaseClock((Phase.READ, Phase.ALLOCATE)))

    def run(self) -> ReadTotals:
        """Read every extent of the plan. Raises Cancelled within one block of being told to stop, and within a second
        also where the storage does not answer."""
        shards = OpenShards(self.plan, self.open_shard, self.totals)
        self._todo = iter(self.plan)
        self._total_bytes = sum(extent.length_bytes for extent in self.plan)
        try:
            for _ in range(max(1, min(self.readers, len(self.plan)))):
                self._start(shards, self.ring)
            self._watch(shards)
        except BaseException as error:  # an interrupt in this thread must not leave the readers running
            self._fail(error)
        finally:
            self._leave(shards)
            shards.close_all()
        for reader in self._team:
            self.totals.add(reader)
        self.totals.wall_seconds = dict(self._clock.seconds)
        if self._failure is not None:
            raise self._failure
        return self.totals

    # -- the team ------------------------------------------------------------------------------------------------------
    def _start(self, shards: OpenShards, ring: BufferRing) -> None:
        reader = ReaderThread(f"muster-read-{len(self._team)}", self._clock)
        self._team.append(reader)
        reader.start(lambda: self._work(reader, shards, ring))

    def _watch(self, shards: OpenShards) -> None:
        while busy := [reader for reader in self._team if reader.is_busy()]:
            busy[0].join(_LOOK_SECONDS)
            self._check()
            for reader in busy:
                if self._give_up(reader, shards, self.block_seconds) and len(self._team) < self.readers + _REPLACEMENTS:
                    self._start(shards, BufferRing(1, self.ring.size_bytes))
        self._lose_the_rest()

    def _lose_the_rest(self) -> None:
        """Extents that nobody is left to read."""
        while (extent := self._next()) is not None:
            self._note(extent, OSError(errno.ETIMEDOUT, "not read: too many reads before it got no answer"))
            self.consumer.lost(extent)

    def _leave(self, shards: OpenShards) -> None:
        """Wait for the readers to end; what hangs is given up after a moment."""
        ends_at = time.monotonic() + _LEAVE_SECONDS
        for reader in self._team:
            while reader.is_busy() and not self._give_up(reader, shards, max(0.0, ends_at - time.monotonic())):
                reader.join(_LOOK_SECONDS)

    def _give_up(self, reader: ReaderThread, shards: OpenShards, after_seconds: float) -> bool:
        """Whether the reader is given up, being inside one call to the storage for longer than that."""
        waited_seconds = reader.calling.give_up(after_seconds)
        if waited_seconds is None:
            return False
        shards.silent.add(reader.extent.shard)
        self._note(reader.extent, OSError(errno.ETIMEDOUT, f"the storage did not answer for {waited_seconds:.0f} s"))
        self.consumer.lost(reader.extent)
        return True

    # -- one reader ----------------------------------------------------------------------------------------------------
    def _work(self, reader: ReaderThread, shards: OpenShards, ring: BufferRing) -> None:
        try:
            with ring.lend() as buffer:
                while (extent := self._next()) is not None:
                    self._check()
                    self._one(reader, extent, shards, buffer)
                    self.control.progress(self.phase, self._read_bytes(), self._total_bytes)
        except Stopped:
            pass
        except BaseException as error:
            self._fail(error)
        finally:
            if ring is not self.ring:
                ring.close()

    def _next(self) -> Extent | None:
        with self._lock:
            return next(self._todo, None)

    def _read_bytes(self) -> int:
        return sum(reader.read_bytes for reader in self._team)

    def _one(self, reader: ReaderThread, extent: Extent, shards: OpenShards, buffer: memoryview) -> None:
        reader.extent = extent
        try:
            source = shards.opened(extent.shard) or self._open(reader, shards)
            if source is None or not self._take(reader, source, buffer):
                self.consumer.lost(extent)
        finally:
            shards.put_back(extent.shard)

    def _open(self, reader: ReaderThread, shards: OpenShards) -> ShardSource | None:
        with reader.calling:
            return shards.take(reader.extent.shard, self._check)

    def _take(self, reader: ReaderThread, source: ShardSource, buffer: memoryview) -> bool:
        """Read the reader's extent and hand it on; False where it could not be read."""
        extent = reader.extent
        if self.in_place is not None and isinstance(source, InPlaceSource):
            return self._take_in_place(reader, source, self.in_place)
        if self.piece_bytes is not None and self.arena is None and isinstance(self.consumer, PieceConsumer):
            return self._take_in_pieces(reader, source, buffer, self.consumer.begin(extent), self.piece_bytes)
        buffer = buffer if self.arena is None else self._place(reader, self.arena)
        count = self._read(reader, partial(source.read_into, buffer), extent.offset_bytes, extent.length_bytes)
        if count is not None:
            with reader.consuming:
                self.consumer.landed(extent, buffer[:count], self._check)
        return count is not None

    def _place(self, reader: ReaderThread, arena: Arena) -> memoryview:
        """Room for the extent, touched; what that costs is told apart from reading."""
        self._clock.enter(Phase.ALLOCATE)
        try:
            with reader.placing:
                return arena.place(reader.extent)
        finally:
            self._clock.leave(Phase.ALLOCATE)

    def _take_in_pieces(
        self, reader: ReaderThread, source: ShardSource, buffer: memoryview, pieces: Pieces, size_bytes: int
    ) -> bool:
        _, begin, left = reader.extent
        read = partial(source.read_into, buffer)
        while left:
            length = min(size_bytes, left)
            count = self._read(reader, read, begin, length)
            if count is None:
                return False
            with reader.consuming:
                pieces.update(buffer[:count])
            begin, left = begin + count, left - count if count == length else 0
        with reader.consuming:
            pieces.end()
        return True

    def _take_in_place(self, reader: ReaderThread, source: InPlaceSource, in_place: InPlace) -> bool:
        extent, chunk_bytes = reader.extent, in_place.chunk_bytes
        count = self._read(reader, source.read_in_place, extent.offset_bytes, extent.length_bytes)
        if not count or chunk_bytes is None:
            return count is not None
        try:
            with reader.consuming:
                self.consumer.hashed(extent, source.digests_in_place(count, chunk_bytes))
        except OSError as error:
            self._note(extent, error)
            return False
        return True

    def _read(
        self, reader: ReaderThread, read: Callable[[int, int], int], offset_bytes: int, length_bytes: int
    ) -> int | None:
        """The bytes that a read gave, counted and timed; None where it failed."""
        if self.throttle.is_capped:
            self._wait_for_rate(length_bytes)
        try:
            with reader.calling:
                count = read(offset_bytes, length_bytes)
        except OSError as error:
            self._note(reader.extent, error)
            return None
        reader.count(count)
        if count < length_bytes:
            self._note_end(reader.extent.shard, offset_bytes + count)
        return count

    def _wait_for_rate(self, length_bytes: int) -> None:
        """A cap makes the reading slow, and nothing else: it is the phase of the reads that takes longer."""
        self._clock.enter(Phase.READ)
        try:
            self.throttle.wait(length_bytes, self._check)
        finally:
            self._clock.leave(Phase.READ)

    def _note(self, extent: Extent, error: OSError) -> None:
        with self._lock:
            self.totals.errors.setdefault(extent.shard, error)

    def _note_end(self, shard: int, end_bytes: int) -> None:
        with self._lock:
            self.totals.ended_at_bytes[shard] = min(end_bytes, self.totals.ended_at_bytes.get(shard, end_bytes))

    def _check(self) -> None:
        self.control.check()
        if self._failure is not None:
            raise Stopped

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._failure is None and not isinstance(error, Stopped):
                self._failure = error
