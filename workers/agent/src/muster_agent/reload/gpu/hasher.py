"""XXH3-64 digests of chunks where they lie, in GPU memory: bytes that never pass the CPU are proven all the same."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence

from muster_agent.reload.gpu.device import CudaDevice, DeviceUnavailable
from muster_agent.reload.gpu.kernel import KERNEL_NAME, KERNEL_THREADS, KernelUnavailable, compile_kernel

MAX_CHUNKS = 4096
"""Chunks hashed by one launch; more are hashed by several."""
_WORDS_PER_CHUNK = 3
_WORD_BYTES = 8


class HasherUnavailable(Exception):
    """Nothing can be hashed on this device; the message says why."""


class ChunkHasher:
    """The kernel, compiled for one device. Raises HasherUnavailable. Usable from many threads."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._local = threading.local()
        self._scratches: list[int] = []
        try:
            self._function = device.load_function(compile_kernel(*device.compute_capability()), KERNEL_NAME)
        except (DeviceUnavailable, KernelUnavailable) as error:
            raise HasherUnavailable(str(error)) from error

    def digests(self, address: int, ranges: Sequence[tuple[int, int]], seed: int = 0) -> list[int]:
        """The digest of each (offset, length) in bytes behind the device address. Raises DeviceUnavailable."""
        found: list[int] = []
        for begin in range(0, len(ranges), MAX_CHUNKS):
            found += self._launch(address, ranges[begin : begin + MAX_CHUNKS], seed)
        return found

    def _launch(self, address: int, ranges: Sequence[tuple[int, int]], seed: int) -> list[int]:
        scratch, count = self._scratch(), len(ranges)
        arguments = [
            ctypes.c_uint64(address),
            ctypes.c_uint64(scratch),
            ctypes.c_uint64(scratch + _WORD_BYTES * count),
            ctypes.c_uint64(seed),
            ctypes.c_uint64(scratch + 2 * _WORD_BYTES * count),
        ]
        words = [*(offset for offset, _ in ranges), *(length for _, length in ranges)]
        return self._device.run_words((self._function, arguments), count, KERNEL_THREADS, words, scratch)

    def _scratch(self) -> int:
        """This thread's device memory for a launch's offsets, lengths and digests."""
        scratch: int | None = getattr(self._local, "scratch", None)
        if scratch is None:
            self._device.make_current()
            scratch = self._local.scratch = self._device.allocate(MAX_CHUNKS * _WORDS_PER_CHUNK * _WORD_BYTES)
            self._scratches.append(scratch)
        return scratch

    def close(self) -> None:
        """Give the device memory back."""
        for scratch in self._scratches:
            self._device.free(scratch)
        self._scratches.clear()
