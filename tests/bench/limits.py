"""What the machine itself can do: memcpy, fio, and the read loop that anybody would write."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import xxhash
from muster_agent.reload.buffers import BufferRing

BLOCK_BYTES = 8 * 1024 * 1024
THREADS = 8
FIO_HUGE_PAGES = 40
FIO_SETTINGS = (("psync", 1), ("io_uring", 4), ("io_uring", 16))
_COPY_BYTES = 256 * 1024 * 1024


def memcpy_rate(threads: int, rounds: int = 4) -> float:
    """Bytes per second that so many threads copy from one place in memory to another, all of it resident before."""
    ring = BufferRing(2 * threads, _COPY_BYTES)
    copy = ctypes.CDLL(None).memcpy
    copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    addresses = [ctypes.addressof(ctypes.c_char.from_buffer(view)) for view in ring._views]

    def work(number: int) -> None:
        for _ in range(rounds):
            copy(addresses[2 * number], addresses[2 * number + 1], _COPY_BYTES)

    began = time.monotonic()
    _together([threading.Thread(target=work, args=(number,)) for number in range(threads)])
    seconds = time.monotonic() - began
    ring.close()
    return threads * rounds * _COPY_BYTES / seconds


def pread_loop(paths: Sequence[Path]) -> int:
    """What a careful engineer writes in ten minutes: threads, one buffer each, buffered preadv, no digests."""
    work = [
        (path, offset)
        for path in sorted(paths, key=lambda path: -path.stat().st_size)
        for offset in range(0, path.stat().st_size, BLOCK_BYTES)
    ]
    lock, total = threading.Lock(), [0]
    descriptors = {path: os.open(path, os.O_RDONLY) for path in paths}

    def reader() -> None:
        buffer = memoryview(bytearray(BLOCK_BYTES))
        while True:
            with lock:
                if not work:
                    return
                path, offset = work.pop(0)
            count = os.preadv(descriptors[path], [buffer], offset)
            with lock:
                total[0] += count

    _together([threading.Thread(target=reader) for _ in range(THREADS)])
    for descriptor in descriptors.values():
        os.close(descriptor)
    return total[0]


def hashing_loop(paths: Sequence[Path], threads: int, piece_bytes: int = 1 << 20) -> tuple[float, float]:
    """(bytes per second, CPU seconds per GB) of the least that a reader of cached files can do which copies and hashes
    every byte: one kept, touched buffer per thread that fits into its CPU's cache, buffered preadv, XXH3, no tallies.
    No process that reads so can be faster, whatever language its loop is written in: both calls run without Python."""
    work = iter([(path, at) for path in paths for at in range(0, path.stat().st_size, BLOCK_BYTES)])
    descriptors = {path: os.open(path, os.O_RDONLY) for path in paths}
    ring, total = BufferRing(threads, piece_bytes), [0] * threads

    def reader(number: int) -> None:
        with ring.lend() as lent:
            while (one := next(work, None)) is not None:
                path, begin = one
                hasher = xxhash.xxh3_64()
                for at in range(begin, begin + BLOCK_BYTES, piece_bytes):
                    count = os.preadv(descriptors[path], [lent[:piece_bytes]], at)
                    hasher.update(lent[:count])
                    total[number] += count

    cpu_before, began = time.process_time(), time.monotonic()
    _together([threading.Thread(target=reader, args=(number,)) for number in range(threads)])
    seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu_before
    ring.close()
    for descriptor in descriptors.values():
        os.close(descriptor)
    return sum(total) / seconds, cpu_seconds / sum(total) * 1e9


def timed(read: Callable[[], int]) -> float:
    """Bytes per second."""
    began = time.monotonic()
    count = read()
    return count / (time.monotonic() - began)


def has_fio() -> bool:
    """Whether the program fio is installed."""
    return shutil.which("fio") is not None


def has_huge_pages() -> bool:
    """Whether the administrator has set aside the 2 MiB pages (`vm.nr_hugepages`) that fio needs to be at its best."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("HugePages_Free:"):
            return int(line.split()[1]) >= FIO_HUGE_PAGES
    return False


def fio_rate(paths: Sequence[Path], engine: str, depth: int) -> float | None:
    """Bytes per second of fio with O_DIRECT and 4 MiB reads over the same files, None where fio cannot do that."""
    command = ["fio", "--name=r", "--readonly", "--rw=read", "--bs=4m", "--direct=1", f"--ioengine={engine}",
               f"--iodepth={depth}", "--allow_file_create=0", "--output-format=json",
               f"--filename={':'.join(map(str, paths))}", "--file_service_type=sequential"]  # fmt: skip
    if has_huge_pages():
        command.append("--mem=mmaphuge")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    except (ValueError, KeyError, IndexError):
        return None
    return float(job["read"]["bw_bytes"]) if job["error"] == 0 else None


def _together(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
