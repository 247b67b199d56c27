"""Read buffers: one anonymous mapping of 2 MiB pages, touched before the clock of "read" starts.

Huge pages make a read one segment for the block device (twice the bandwidth where segments are capped), and first touch
inside a read would be charged to the storage. Python's default anonymous mmap is shared memory, which gets no huge
pages, hence MAP_PRIVATE.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import queue
from collections.abc import Iterator

from muster_agent.reload.memory import advise, map_anonymous, may_have_huge_pages

HUGE_PAGE_BYTES = 2 * 1024 * 1024
_MADV_POPULATE_WRITE = 23  # Linux 5.14; not named in Python's mmap module


class BufferRing:
    """`count` buffers of `size_bytes` (rounded up to 2 MiB), 2 MiB-aligned and resident. Use `lend()` from any thread;
    `close()` gives the memory back. Raises NoRoom."""

    def __init__(self, count: int, size_bytes: int) -> None:
        self.size_bytes = -(-size_bytes // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
        self.total_bytes = count * self.size_bytes
        self._mapping = map_anonymous(self.total_bytes + HUGE_PAGE_BYTES)
        start = distance_to_alignment(self._mapping)
        self.huge_pages = ask_for_huge_pages(self._mapping, start, self.total_bytes)
        self.prefaulted = touch(self._mapping, start, self.total_bytes)
        self._whole = memoryview(self._mapping)
        self._free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        self._views = []
        for index in range(count):
            begin = start + index * self.size_bytes
            view = self._whole[begin : begin + self.size_bytes]
            self._views.append(view)
            self._free.put(view)

    @contextlib.contextmanager
    def lend(self) -> Iterator[memoryview]:
        """One buffer for the duration of the block; waits while all are lent."""
        view = self._free.get()
        try:
            yield view
        finally:
            self._free.put(view)

    def close(self) -> None:
        """Give the memory back. Views that somebody still holds keep the mapping alive until they are dropped."""
        with contextlib.suppress(BufferError):
            for view in self._views:
                view.release()
            self._whole.release()
            self._mapping.close()


def distance_to_alignment(mapping: mmap.mmap) -> int:
    """Bytes from the mapping's begin to its first 2 MiB boundary."""
    anchor = ctypes.c_char.from_buffer(mapping)
    address = ctypes.addressof(anchor)
    del anchor  # its export would keep the mapping from closing
    return -address % HUGE_PAGE_BYTES


def touch(mapping: mmap.mmap, start: int, length_bytes: int) -> bool:
    """Make a part resident. False where it took more than one call: older kernels get the same by writing each page."""
    populated = advise(mapping, start, length_bytes, _MADV_POPULATE_WRITE)
    if not populated:
        for offset in range(start, start + length_bytes, mmap.PAGESIZE):
            mapping[offset] = 0
    return populated


def ask_for_huge_pages(mapping: mmap.mmap, start: int, length_bytes: int) -> bool:
    """Whether they can be had."""
    return advise(mapping, start, length_bytes, mmap.MADV_HUGEPAGE) and may_have_huge_pages()
