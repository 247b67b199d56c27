"""How much memory this process may still take, and whether it may have huge pages. Only reads; nothing is changed."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import resource
from collections.abc import Iterator

_CGROUP = "/sys/fs/cgroup"
_HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
_PR_GET_THP_DISABLE = 42
_MADVISE = ctypes.CDLL(None, use_errno=True).madvise
_MADVISE.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class NoRoom(Exception):
    """What is wanted does not fit into this node's memory; nothing was read. The message gives both sizes."""

    def __init__(self, wanted_bytes: int, available_bytes: int) -> None:
        wanted, available = wanted_bytes / (1 << 30), available_bytes / (1 << 30)
        super().__init__(f"the shards need {wanted:.1f} GiB of memory, and {available:.1f} GiB are available here")
        self.wanted_bytes, self.available_bytes = wanted_bytes, available_bytes


def map_anonymous(size_bytes: int) -> mmap.mmap:
    """Private memory that is not touched yet. Raises NoRoom where the kernel or a limit of this process refuses."""
    try:
        return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, MemoryError) as error:
        raise NoRoom(size_bytes, min(size_bytes, available_bytes() or 0)) from error


def advise(mapping: mmap.mmap, start: int, length_bytes: int, advice: int) -> bool:
    """madvise(2) on a part of a mapping; False where the kernel refuses. Python's own holds its lock meanwhile, and one
    piece of memory that is touched so would stop every reader."""
    anchor = ctypes.c_char.from_buffer(mapping)
    address = ctypes.addressof(anchor) + start
    del anchor  # its export would keep the mapping from closing
    return bool(_MADVISE(address, length_bytes, advice) == 0)


def available_bytes() -> int | None:
    """What this process may still take: of the machine's memory, of its control groups' and below its own limits; None
    where nothing is known."""
    known = [value for value in (_machine_bytes(), *_group_bytes(), *_limit_bytes()) if value is not None]
    return min(known, default=None)


def may_have_huge_pages() -> bool:
    """Whether asking for huge pages can have an effect: the machine and this process may have them switched off."""
    with contextlib.suppress(OSError), open(_HUGE_PAGES, encoding="ascii") as file:
        if "[never]" in file.read():
            return False
    return bool(ctypes.CDLL(None).prctl(_PR_GET_THP_DISABLE, 0, 0, 0, 0) != 1)


def _machine_bytes() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _limit_bytes() -> Iterator[int]:
    """What RLIMIT_AS and RLIMIT_DATA leave, each where it is set."""
    pages = (0,) * 6
    with contextlib.suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as file:
        pages = tuple(int(field) for field in file.read().split()[:6])  # type: ignore[assignment]
    for which, used in ((resource.RLIMIT_AS, pages[0]), (resource.RLIMIT_DATA, pages[5])):
        limit = resource.getrlimit(which)[0]
        if limit != resource.RLIM_INFINITY:
            yield max(0, limit - used * mmap.PAGESIZE)


def _group_bytes() -> Iterator[int]:
    """What the control group and each one above it leave; pages of files that nobody writes can be had back."""
    group = ""
    with contextlib.suppress(OSError), open("/proc/self/cgroup", encoding="utf-8") as file:
        group = next((line.strip().partition("::")[2] for line in file if line.startswith("0::")), "")
    while group:
        with contextlib.suppress(OSError, ValueError):
            place = os.path.join(_CGROUP, group.strip("/"))
            limit, used = _number(f"{place}/memory.max"), _number(f"{place}/memory.current")
            if limit is not None and used is not None:
                yield max(0, limit - used + _clean_file_bytes(place))
        group = "" if group == "/" else os.path.dirname(group)


def _clean_file_bytes(place: str) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"{place}/memory.stat", encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("inactive_file "))
    return 0


def _number(path: str) -> int | None:
    """None for `max`, which is no limit."""
    with open(path, encoding="ascii") as file:
        text = file.read().strip()
    return int(text) if text.isdigit() else None
