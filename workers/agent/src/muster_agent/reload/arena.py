"""Host memory that keeps every byte of the shards that are read: one mapping of huge pages, touched before the clock of
"read" starts, with each shard at an offset that direct reads can use."""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from muster_agent.reload.buffers import HUGE_PAGE_BYTES, distance_to_alignment, make_resident
from muster_agent.reload.memory import NoRoom, available_bytes, map_anonymous
from muster_agent.reload.plan import Extent
from muster_agent.storage.posix import ALIGN_BYTES

_PART_BYTES = 256 * 1024 * 1024
_SPARE_BYTES = 256 * 1024 * 1024
"""Left to everything else on the node; an arena that takes the last page gets the process killed."""


class Arena:
    """Room for shards of the given sizes. Raises NoRoom before anything is touched, and what `check` raises between
    parts of 256 MiB. `close()` gives the memory back."""

    def __init__(
        self,
        sizes_bytes: Sequence[int],
        check: Callable[[], None] = lambda: None,
        map_memory: Callable[[int], mmap.mmap] = map_anonymous,
    ) -> None:
        self._sizes = sizes_bytes
        self._begins: list[int] = []
        end = 0
        for size in sizes_bytes:
            self._begins.append(end)
            end += -(-size // ALIGN_BYTES) * ALIGN_BYTES
        self.total_bytes = max(HUGE_PAGE_BYTES, -(-end // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES)
        available = available_bytes()
        if available is not None and self.total_bytes + _SPARE_BYTES > available:
            raise NoRoom(self.total_bytes, max(0, available - _SPARE_BYTES))
        size = self.total_bytes + HUGE_PAGE_BYTES
        self._mapping = map_memory(size)
        self._start = distance_to_alignment(self._mapping)
        self.huge_pages = self._touch(check)
        self._whole = memoryview(self._mapping)

    def _touch(self, check: Callable[[], None]) -> bool:
        """Make all of it resident, on every CPU: first touch costs more than the read that would pay for it."""
        begins = range(self._start, self._start + self.total_bytes, _PART_BYTES)
        end = self._start + self.total_bytes

        def touch(begin: int) -> tuple[bool, float]:
            check()
            cpu_before = time.thread_time()
            huge, _ = make_resident(self._mapping, begin, min(_PART_BYTES, end - begin))
            return huge, time.thread_time() - cpu_before

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            touched = list(pool.map(touch, begins))
        self.cpu_seconds = sum(cpu_seconds for _, cpu_seconds in touched)
        return all(huge for huge, _ in touched)

    def place(self, extent: Extent) -> memoryview:
        """Where the extent's bytes go: as long as the extent, rounded up to 4 KiB."""
        begin = self._start + self._begins[extent.shard] + extent.offset_bytes
        return self._whole[begin : begin + -(-extent.length_bytes // ALIGN_BYTES) * ALIGN_BYTES]

    def shard(self, number: int) -> memoryview:
        """The bytes of one shard."""
        begin = self._start + self._begins[number]
        return self._whole[begin : begin + self._sizes[number]]

    def close(self) -> None:
        """Views that somebody still holds keep the memory until they are dropped."""
        with contextlib.suppress(BufferError):
            self._whole.release()
            self._mapping.close()
