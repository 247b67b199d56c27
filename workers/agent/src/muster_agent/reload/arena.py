"""Host memory that keeps every byte of the shards that are read: one mapping of huge pages, with each shard at an
offset that direct reads can use. A block's part is touched right before it is read, by the thread that reads it: first
touch costs as much as the read, and so it goes on while other threads wait for the storage.

Where huge pages turn out to be dear, the rest is small ones: a kernel that must make room for them, or a hypervisor
that must back them first, takes up to twenty times as long as clearing them, and often has small ones at hand."""

from __future__ import annotations

import contextlib
import mmap
import threading
import time
from collections.abc import Callable, Sequence

from muster_agent.reload.buffers import HUGE_PAGE_BYTES, ask_for_huge_pages, distance_to_alignment, touch
from muster_agent.reload.memory import NoRoom, advise, available_bytes, map_anonymous
from muster_agent.reload.plan import Extent
from muster_agent.storage.posix import ALIGN_BYTES

_SPARE_BYTES = 256 * 1024 * 1024
"""Left to everything else on the node; an arena that takes the last page gets the process killed."""
_TRIED_BYTES = 32 * 1024 * 1024
_DEAR_SECONDS_PER_BYTE = 0.5e-9
"""CPU seconds. Clearing a page takes a fifth of it or less."""


class Arena:
    """Room for the part of each shard that is `held`, by shard number; its offset is a multiple of 4 KiB. Raises NoRoom
    before anything is touched. `close()` gives the memory back."""

    def __init__(self, held: Sequence[Extent], map_memory: Callable[[int], mmap.mmap] = map_anonymous) -> None:
        self.held = held
        self._begins: list[int] = []
        end = 0
        for size in (part.length_bytes for part in held):
            unit = HUGE_PAGE_BYTES if size >= HUGE_PAGE_BYTES else ALIGN_BYTES
            begin = -(-end // unit) * unit
            self._begins.append(begin)
            end = begin + -(-size // ALIGN_BYTES) * ALIGN_BYTES
        self.total_bytes = max(HUGE_PAGE_BYTES, -(-end // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES)
        available = available_bytes()
        if available is not None and self.total_bytes + _SPARE_BYTES > available:
            raise NoRoom(self.total_bytes, max(0, available - _SPARE_BYTES))
        size = self.total_bytes + HUGE_PAGE_BYTES
        self._mapping = map_memory(size)
        self._start = distance_to_alignment(self._mapping)
        self.huge_pages = ask_for_huge_pages(self._mapping, self._start, self.total_bytes)
        """Whether all of it may have them."""
        self._touched_bytes, self._touching_cpu_seconds = 0, 0.0
        self._lock = threading.Lock()
        self._whole = memoryview(self._mapping)

    def place(self, extent: Extent) -> memoryview:
        """Where the extent's bytes go: as long as the extent, rounded up to 4 KiB, and resident when this returns."""
        inside = extent.offset_bytes - self.held[extent.shard].offset_bytes
        begin = self._start + self._begins[extent.shard] + inside
        length_bytes = -(-extent.length_bytes // ALIGN_BYTES) * ALIGN_BYTES
        cpu_before = time.thread_time()
        touch(self._mapping, begin, length_bytes)
        self._weigh(length_bytes, time.thread_time() - cpu_before)
        return self._whole[begin : begin + length_bytes]

    def _weigh(self, touched_bytes: int, cpu_seconds: float) -> None:
        with self._lock:
            self._touched_bytes += touched_bytes
            self._touching_cpu_seconds += cpu_seconds
            is_dear = self._touching_cpu_seconds > self._touched_bytes * _DEAR_SECONDS_PER_BYTE
            if self.huge_pages and self._touched_bytes >= _TRIED_BYTES and is_dear:
                self.huge_pages = False
                advise(self._mapping, self._start, self.total_bytes, mmap.MADV_NOHUGEPAGE)

    def shard(self, number: int) -> memoryview:
        """The bytes that are held of one shard."""
        begin = self._start + self._begins[number]
        return self._whole[begin : begin + self.held[number].length_bytes]

    def close(self) -> None:
        """Views that somebody still holds keep the memory until they are dropped."""
        with contextlib.suppress(BufferError):
            self._whole.release()
            self._mapping.close()
