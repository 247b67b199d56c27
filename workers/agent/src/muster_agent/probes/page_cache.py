"""How much of a file the kernel holds in memory, and asking it to let go."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from muster_agent.probes.filesystem import read_file_system

_WRITERS = 16
_SYS_CACHESTAT = 451  # Linux 6.5; the same number on every architecture
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


class _Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _CacheStat(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")]


def evict(paths: Iterable[str]) -> None:
    """Ask the kernel to drop the files' pages. Dirty pages are written first, since it keeps those. It may keep more
    (pages mapped or in use elsewhere, tmpfs), so measure `cached_ratio` afterwards; a file that cannot be opened is
    left alone."""
    listed = list(paths)
    # Several at a time: many small files that were just written are then on the disk after a few of its flushes.
    with ThreadPoolExecutor(_WRITERS, thread_name_prefix="muster-evict") as pool:
        list(pool.map(_evict_each, (listed[first::_WRITERS] for first in range(_WRITERS))))


def _evict_each(paths: Iterable[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                with contextlib.suppress(OSError):
                    os.fdatasync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def cached_ratio(paths: Iterable[str]) -> float | None:
    """Share (0..1) of the files' bytes in the page cache; None where the client's cache is not the kernel's, or the
    kernel cannot be asked. Files that are not there count for nothing; no bytes at all give None."""
    cached = total = 0
    for path in paths:
        try:
            measured = _cached_pages(path)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        if measured is None:
            return None
        cached, total = cached + measured[0], total + measured[1]
    return min(1.0, cached / total) if total else None


def why_unknown(paths: Iterable[str]) -> str:
    """Why `cached_ratio` of the same files is None, as half a sentence. Raises nothing."""
    for path in paths:
        try:
            if _cached_pages(path) is not None:
                continue
            file_system = read_file_system(path)
        except FileNotFoundError:
            continue
        except PermissionError:
            return f"this user may not read {os.path.basename(path)}"
        except OSError as error:
            return f"{os.path.basename(path)} cannot be read: {error.strerror}"
        if not file_system.uses_page_cache:
            return f"the client of this file system ({file_system.name}) keeps a cache of its own"
        if not os.access(path, os.W_OK):
            return "this kernel tells it only to a user who may write the files"
        return "this kernel cannot be asked"
    return "there are no bytes to measure"


def _cached_pages(path: str) -> tuple[int, int] | None:
    """(pages cached, pages) of one file; None where nobody can tell."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        size = os.fstat(fd).st_size
        if not read_file_system(path).uses_page_cache:
            return None
        pages = -(-size // mmap.PAGESIZE)
        count = 0 if pages == 0 else _by_cachestat(fd, size)
        if count is None and os.access(path, os.W_OK):
            # Without write access mincore calls every page resident, so as not to leak what others read.
            count = _by_mincore(fd, size, pages)
        return None if count is None else (min(count, pages), pages)
    finally:
        os.close(fd)


def _by_cachestat(fd: int, size_bytes: int) -> int | None:
    span, result = _Range(0, size_bytes), _CacheStat()
    status = _LIBC.syscall(_SYS_CACHESTAT, fd, ctypes.byref(span), ctypes.byref(result), 0)
    return int(result.cached) if status == 0 else None


def _by_mincore(fd: int, size_bytes: int, pages: int) -> int | None:
    address = _LIBC.mmap(None, size_bytes, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    try:
        resident = (ctypes.c_ubyte * pages)()
        if _LIBC.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size_bytes), resident) != 0:
            return None
        return sum(flag & 1 for flag in bytes(resident))
    finally:
        _LIBC.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size_bytes))
