"""A stand-in for the CUDA driver (stand_in_driver.c): real memory behind device addresses, streams that work late, and
the hash kernel's own source compiled for the CPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from enum import IntEnum
from functools import cache
from pathlib import Path

import pytest
from muster_agent.reload.gpu.kernel import kernel_source

LIBRARY_NAME = "libcuda.so.1"


class Count(IntEnum):
    """What the stand-in counts; the first five must be 0 once a session is closed."""

    ALLOCATIONS = 0
    REGISTERED = 1
    STREAMS = 2
    EVENTS = 3
    CONTEXTS = 4
    UNPINNED_COPIES = 5
    COPIES = 6
    LAUNCHES = 7


HELD = (Count.ALLOCATIONS, Count.REGISTERED, Count.STREAMS, Count.EVENTS, Count.CONTEXTS)


@cache
def compile_driver(folder: str) -> str:
    """The path of the stand-in library; the test is skipped where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the program cc is not installed")
    source, library = Path(folder, "stand_in.c"), Path(folder, LIBRARY_NAME)
    source.write_text(kernel_source() + Path(__file__).with_name("stand_in_driver.c").read_text())
    options = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-DMUSTER_HOST", "-include", "stddef.h", "-pthread"]
    subprocess.run([compiler, *options, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return str(library)


class StandIn:
    """The library as a test sees it; settings are those of a fresh one."""

    def __init__(self, library: str) -> None:
        self._driver = ctypes.CDLL(library)
        self._driver.stand_in_count.restype = ctypes.c_long
        self._driver.stand_in_host_pointer.restype = ctypes.c_void_p
        self.set_memory(1 << 30)
        self.set_late(200)
        self.refuse_pinning(False)
        self.set_capability(9, 0)
        self.set_devices(1)
        self._before = {count: self._count(count) for count in Count}

    def _count(self, count: Count) -> int:
        return int(self._driver.stand_in_count(int(count)))

    def count(self, count: Count) -> int:
        """Since this object was made."""
        return self._count(count) - self._before[count]

    def held(self) -> dict[str, int]:
        """What was taken from the device and not given back."""
        return {count.name: self.count(count) for count in HELD if self.count(count)}

    def set_memory(self, size_bytes: int) -> None:
        self._driver.stand_in_set_memory(ctypes.c_uint64(size_bytes))

    def set_late(self, microseconds: int) -> None:
        """How long each copy waits before it runs."""
        self._driver.stand_in_set_late(ctypes.c_long(microseconds))

    def refuse_pinning(self, refuses: bool) -> None:
        self._driver.stand_in_set_refuses_pinning(ctypes.c_long(refuses))

    def set_capability(self, major: int, minor: int) -> None:
        self._driver.stand_in_set_capability(ctypes.c_long(major), ctypes.c_long(minor))

    def set_devices(self, count: int) -> None:
        self._driver.stand_in_set_devices(ctypes.c_long(count))

    def host_pointer(self, address: int) -> int:
        """Where the bytes behind a device address really lie."""
        pointer: int = self._driver.stand_in_host_pointer(ctypes.c_uint64(address))
        return pointer

    def bytes_at(self, address: int, size_bytes: int) -> bytes:
        return ctypes.string_at(self.host_pointer(address), size_bytes)
