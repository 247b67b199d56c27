"""From storage into GPU memory through pinned host memory: our own ring, whose reads, copies and CPU seconds are all
measured. The path wherever cuFile cannot go straight; cuFile's own detour through the host is never used for data.

Each reader has two pinned buffers of huge pages. A block is read into one, its copy to the device is started, and while
the copy engine works the same bytes are hashed by the CPU and the next block is read into the other.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import xxhash

from muster_agent.reload.buffers import BufferRing
from muster_agent.reload.gpu.device import CudaDevice, DeviceUnavailable
from muster_agent.reload.gpu.lane import SLOTS, Lane, address_of
from muster_agent.reload.gpu.memory import DeviceArena, require_room
from muster_agent.storage.base import ShardSource


@dataclass(slots=True)
class CopyTotals:
    """`copy_seconds` by the device's clock, summed over the lanes; `wait_seconds`: readers waiting for a buffer."""

    copied_bytes: int = 0
    copy_seconds: float = 0.0
    wait_seconds: float = 0.0


class BounceSession:
    """Buffers, streams and device memory for one reload. With an `arena` the device keeps every byte of its shards;
    otherwise each block is copied over an earlier one. Raises DeviceUnavailable, and NoDeviceRoom before anything is
    read; whatever it had taken by then is given back."""

    def __init__(self, device_index: int, readers: int, block_bytes: int, arena: DeviceArena | None = None) -> None:
        self.arena = arena
        self.refused_pinning = ""
        """Why some buffer is not pinned; empty where the device's copy engines read all of them by themselves."""
        self._lanes: list[Lane] = []
        self._free: list[Lane] = []
        self._lock = threading.Lock()
        self._local = threading.local()
        with contextlib.ExitStack() as undo:
            self.device = CudaDevice(device_index)
            undo.callback(self.device.release)
            self.device_name = self.device.name()
            if arena is None:
                require_room(self.device, readers * SLOTS * block_bytes)
            ring = BufferRing(readers * SLOTS, block_bytes)
            undo.callback(ring.close)
            self.huge_pages = ring.huge_pages
            self._block_bytes = block_bytes
            self._free += [self._make_lane(undo, ring) for _ in range(readers)]
            self._cleanup = undo.pop_all()

    def _make_lane(self, undo: contextlib.ExitStack, ring: BufferRing) -> Lane:
        buffers = [undo.enter_context(ring.lend()) for _ in range(SLOTS)]
        for buffer in buffers:
            self._pin(undo, buffer)
        lane = Lane(self.device, buffers, [self._block(undo) for _ in range(SLOTS)])
        undo.callback(lane.close)
        self._lanes.append(lane)
        return lane

    def _pin(self, undo: contextlib.ExitStack, buffer: memoryview) -> None:
        """Where the driver refuses, copies still work: it takes a detour through pinned memory of its own."""
        address = address_of(buffer)
        try:
            self.device.pin(address, len(buffer))
        except DeviceUnavailable as error:
            self.refused_pinning = str(error)
        else:
            undo.callback(self.device.unpin, address)

    def _block(self, undo: contextlib.ExitStack) -> int:
        """Device memory that a slot's blocks are copied over; none where the arena has a place for every byte."""
        if self.arena is not None:
            return 0
        address = self.device.allocate(self._block_bytes)
        undo.callback(self.device.free, address)
        return address

    def wrap(self, source: ShardSource, shard: int) -> BounceSource:
        """A shard whose bytes go to the device."""
        return BounceSource(self, source, shard)

    def lane(self) -> Lane:
        """This thread's own. A thread that took over from one that hangs has none of its own: it is given a new one."""
        lane: Lane | None = getattr(self._local, "lane", None)
        if lane is None:
            self.device.make_current()
            with self._lock:
                lane = self._free.pop() if self._free else self._spare()
            self._local.lane = lane
        return lane

    def _spare(self) -> Lane:
        ring = BufferRing(SLOTS, self._block_bytes)
        self._cleanup.callback(ring.close)
        return self._make_lane(self._cleanup, ring)

    def finish(self) -> CopyTotals:
        """Wait until every byte has arrived on the device. Raises DeviceUnavailable where a copy failed."""
        self.device.make_current()
        for lane in self._lanes:
            lane.finish()
        return CopyTotals(
            sum(lane.copied_bytes for lane in self._lanes),
            sum(lane.copy_seconds for lane in self._lanes),
            sum(lane.wait_seconds for lane in self._lanes),
        )

    def close(self) -> None:
        """Give everything back, after what is under way has ended; calling it twice is harmless."""
        with contextlib.suppress(DeviceUnavailable):
            self.device.make_current()
        self._cleanup.close()


_Given = TypeVar("_Given")


class BounceSource:
    """A shard that is read into pinned memory and copied to the device; see `ShardSource` and `InPlaceSource`."""

    def __init__(self, session: BounceSession, source: ShardSource, shard: int) -> None:
        self._session, self._source, self._shard = session, source, shard
        self.size_bytes, self.mtime_ns = source.size_bytes, source.mtime_ns

    def read_into(self, buffer: memoryview, offset_bytes: int, length_bytes: int) -> int:
        """See `ShardSource.read_into`; these bytes stay in host memory."""
        return self._source.read_into(buffer, offset_bytes, length_bytes)

    def read_in_place(self, offset_bytes: int, length_bytes: int) -> int:
        """See `InPlaceSource.read_in_place`. The copy is under way when this returns, and not awaited."""
        lane, arena = self._session.lane(), self._session.arena
        count = self._source.read_into(_as_os_error(lane.next_buffer), offset_bytes, length_bytes)
        if count:
            target = None if arena is None else arena.place(self._shard, offset_bytes)
            _as_os_error(lambda: lane.start_copy(count, target))
        return count

    def digests_in_place(self, length_bytes: int, chunk_bytes: int) -> list[int]:
        """See `InPlaceSource.digests_in_place`: of the bytes that are being copied, while they are."""
        data = self._session.lane().buffer
        return [
            xxhash.xxh3_64_intdigest(data[begin : min(begin + chunk_bytes, length_bytes)])
            for begin in range(0, length_bytes, chunk_bytes)
        ]

    @property
    def direct_bytes(self) -> int:
        """Bytes that were read around the page cache, where the storage tells it."""
        return getattr(self._source, "direct_bytes", 0)

    @property
    def buffered_bytes(self) -> int:
        """Bytes that were read through the page cache, where the storage tells it."""
        return getattr(self._source, "buffered_bytes", 0)

    @property
    def dropped_bytes(self) -> int:
        """Bytes that were read through the page cache and dropped from it again, where the storage tells it."""
        return getattr(self._source, "dropped_bytes", 0)

    def close(self) -> None:
        """See `ShardSource.close`."""
        self._source.close()


def _as_os_error(call: Callable[[], _Given]) -> _Given:
    """The engine's one kind of trouble with a shard."""
    try:
        return call()
    except DeviceUnavailable as error:
        raise OSError(f"the GPU did not take the bytes: {error}") from error
