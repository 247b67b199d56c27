"""A stand-in for a GPU: device memory is host memory, and the kernel is the same source compiled for the CPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from muster_agent.reload.gpu.kernel import KERNEL_NAME, KERNEL_THREADS, kernel_source

WORD = 8


@cache
def host_kernel(folder: str) -> Any:
    """`hash_chunks(base, offsets, lengths, count, seed, digests)`; the test is skipped where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the program cc is not installed")
    source, library = Path(folder, "kernel.c"), Path(folder, "kernel.so")
    source.write_text(kernel_source())
    options = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-DMUSTER_HOST", "-include", "stddef.h"]
    subprocess.run([compiler, *options, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return ctypes.CDLL(str(library)).hash_chunks


class StandInDevice:
    """See `reload.gpu.device.CudaDevice`."""

    folder = ""

    def __init__(self, _index: int) -> None:
        self._blocks: dict[int, Any] = {}
        self.launches: list[int] = []

    def make_current(self) -> None: ...

    def release(self) -> None:
        assert not self._blocks, "device memory was not given back"

    def compute_capability(self) -> tuple[int, int]:
        return 9, 0

    def allocate(self, size_bytes: int) -> int:
        block = (ctypes.c_char * size_bytes)()
        self._blocks[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def free(self, address: int) -> None:
        del self._blocks[address]

    def copy_to_host(self, buffer: memoryview, address: int, size_bytes: int) -> None:
        buffer[:size_bytes] = ctypes.string_at(address, size_bytes)

    def load_function(self, cubin: bytes, name: str) -> Any:
        assert name == KERNEL_NAME and cubin[:4] == b"\x7fELF"
        return host_kernel(self.folder)

    def run_words(self, kernel: Any, blocks: int, threads: int, inputs: Sequence[int], scratch: int) -> list[int]:
        function, arguments = kernel
        assert threads == KERNEL_THREADS
        self.launches.append(blocks)
        words = (ctypes.c_uint64 * len(inputs))(*inputs)
        ctypes.memmove(scratch, words, WORD * len(inputs))
        base, offsets, lengths, seed, digests = (argument.value for argument in arguments)
        assert digests == scratch + WORD * len(inputs), "results follow the inputs"
        function(*map(ctypes.c_void_p, (base, offsets, lengths)), *map(ctypes.c_uint64, (blocks, seed, digests)))
        return list((ctypes.c_uint64 * blocks).from_address(digests))
