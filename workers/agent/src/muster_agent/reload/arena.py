"""Host memory that keeps every byte of the shards that are read: one mapping of huge pages, touched before the clock of
"read" starts, with each shard at an offset that direct reads can use."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from muster_agent.reload.buffers import HUGE_PAGE_BYTES, distance_to_alignment, make_resident
from muster_agent.reload.plan import Extent
from muster_agent.storage.posix import ALIGN_BYTES

_PART_BYTES = 256 * 1024 * 1024
_SPARE_BYTES = 256 * 1024 * 1024
"""Left to everything else on the node; an arena that takes the last page gets the process killed."""
_CGROUP = "/sys/fs/cgroup"


class NoRoom(Exception):
    """The shards do not fit into this node's memory; nothing was read. The message gives both sizes."""

    def __init__(self, wanted_bytes: int, available_bytes: int) -> None:
        wanted, available = wanted_bytes / (1 << 30), available_bytes / (1 << 30)
        super().__init__(f"the shards need {wanted:.1f} GiB of memory, and {available:.1f} GiB are available here")
        self.wanted_bytes, self.available_bytes = wanted_bytes, available_bytes


class Arena:
    """Room for shards of the given sizes. Raises NoRoom before anything is touched. `close()` gives the memory back."""

    def __init__(self, sizes_bytes: Sequence[int]) -> None:
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
        self._mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._start = distance_to_alignment(self._mapping)
        self.huge_pages = self._touch()
        self._whole = memoryview(self._mapping)

    def _touch(self) -> bool:
        """Make all of it resident, on every CPU: first touch costs more than the read that would pay for it."""
        begins = range(self._start, self._start + self.total_bytes, _PART_BYTES)
        end = self._start + self.total_bytes
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            made = pool.map(lambda begin: make_resident(self._mapping, begin, min(_PART_BYTES, end - begin)), begins)
            return all(huge for huge, _ in made)

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


def available_bytes() -> int | None:
    """What this process may still take: of the machine's memory, and of its control group's; None where not known."""
    known = [value for value in (_machine_bytes(), _group_bytes()) if value is not None]
    return min(known, default=None)


def _machine_bytes() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _group_bytes() -> int | None:
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            group = next((line.strip().partition("::")[2] for line in file if line.startswith("0::")), None)
        if group is None:
            return None
        limit, used = (_number(f"{_CGROUP}{group}/memory.{name}") for name in ("max", "current"))
        return None if limit is None or used is None else max(0, limit - used)
    return None


def _number(path: str) -> int | None:
    """None for `max`, which is no limit."""
    with open(path, encoding="ascii") as file:
        text = file.read().strip()
    return int(text) if text.isdigit() else None
