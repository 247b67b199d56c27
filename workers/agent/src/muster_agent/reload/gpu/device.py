"""The little of the CUDA driver API that reading and hashing need, through ctypes: nothing is loaded on import."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from muster_agent.probes.cuda import load_driver

PER_THREAD_STREAM = 2
"""CU_STREAM_PER_THREAD: what one thread starts does not wait for what another did."""
_NON_BLOCKING = _BLOCKING_SYNC = 1
"""CU_STREAM_NON_BLOCKING, CU_EVENT_BLOCKING_SYNC."""
_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*."""


class DeviceUnavailable(Exception):
    """CUDA refused; the message says which call and what it answered."""


class CudaDevice:
    """One device's primary context. Usable from many threads, each of which calls `make_current` first."""

    def __init__(self, index: int) -> None:
        try:
            self._driver = load_driver()
        except OSError as error:
            raise DeviceUnavailable("libcuda.so.1 is not installed") from error
        self._device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(self._device), index)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        self.make_current()

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status != 0:
            raise DeviceUnavailable(f"{name} gave CUDA error {status}{self._name_of(status)}")

    def _name_of(self, status: int) -> str:
        name = ctypes.c_char_p()
        if self._driver.cuGetErrorName(status, ctypes.byref(name)) != 0 or name.value is None:
            return ""
        return f" ({name.value.decode()})"

    def make_current(self) -> None:
        """Needed once in every thread that uses the device."""
        self._call("cuCtxSetCurrent", self._context)

    def compute_capability(self) -> tuple[int, int]:
        """(major, minor) of the architecture: (9, 0) for an H100 or H200."""
        found = []
        for attribute in (_MAJOR, _MINOR):
            value = ctypes.c_int()
            self._call("cuDeviceGetAttribute", ctypes.byref(value), attribute, self._device)
            found.append(value.value)
        return found[0], found[1]

    def name(self) -> str:
        """The product's name."""
        text = ctypes.create_string_buffer(128)
        self._call("cuDeviceGetName", text, len(text), self._device)
        return text.value.decode(errors="replace")

    def free_bytes(self) -> int:
        """Device memory that is free now, of all processes' sharing it."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, size_bytes: int) -> int:
        """Device address of fresh memory."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes))
        return address.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def copy_to_host(self, buffer: memoryview, address: int, size_bytes: int) -> None:
        """The first `size_bytes` at a device address into `buffer`."""
        target = (ctypes.c_char * size_bytes).from_buffer(buffer)
        self._call("cuMemcpyDtoH_v2", target, ctypes.c_uint64(address), ctypes.c_size_t(size_bytes))

    def copy_to_device(self, address: int, data: bytes) -> None:
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def copy_within(self, target: int, source: int, size_bytes: int) -> None:
        """From one device address to another, and wait."""
        size = ctypes.c_size_t(size_bytes)
        stream = ctypes.c_void_p(PER_THREAD_STREAM)
        self._call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(target), ctypes.c_uint64(source), size, stream)
        self._call("cuStreamSynchronize", stream)

    # -- pinned memory, streams, events: what asynchronous copies need -------------------------------------------------
    def pin(self, address: int, size_bytes: int) -> None:
        """Make host memory one that the device's copy engines read by themselves."""
        self._call("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(size_bytes), 0)

    def unpin(self, address: int) -> None:
        self._call("cuMemHostUnregister", ctypes.c_void_p(address))

    def create_stream(self) -> int:
        """A stream that does not wait for the default one."""
        return self._created("cuStreamCreate", _NON_BLOCKING)

    def create_event(self) -> int:
        """An event with a time; whoever waits for it sleeps."""
        return self._created("cuEventCreate", _BLOCKING_SYNC)

    def _created(self, call: str, flags: int) -> int:
        handle = ctypes.c_void_p()
        self._call(call, ctypes.byref(handle), flags)
        return handle.value or 0

    def destroy_stream(self, stream: int) -> None:
        self._call("cuStreamDestroy_v2", ctypes.c_void_p(stream))

    def destroy_event(self, event: int) -> None:
        self._call("cuEventDestroy_v2", ctypes.c_void_p(event))

    def copy_to_device_async(self, target: int, host_address: int, size_bytes: int, stream: int) -> None:
        """Start a copy; the host's bytes must stay as they are until the stream has done it."""
        host, size = ctypes.c_void_p(host_address), ctypes.c_size_t(size_bytes)
        self._call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(target), host, size, ctypes.c_void_p(stream))

    def record(self, event: int, stream: int) -> None:
        self._call("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(stream))

    def wait_for(self, event: int) -> None:
        self._call("cuEventSynchronize", ctypes.c_void_p(event))

    def seconds_between(self, begin: int, end: int) -> float:
        """By the device's own clock, of two events that have passed."""
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), ctypes.c_void_p(begin), ctypes.c_void_p(end))
        return milliseconds.value / 1e3

    # -- kernels -------------------------------------------------------------------------------------------------------
    def load_function(self, cubin: bytes, name: str) -> Any:
        """The kernel `name` of a module. The module stays loaded for the life of the context."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), cubin)
        self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def run_words(self, kernel: Any, blocks: int, threads: int, inputs: Sequence[int], scratch: int) -> list[int]:
        """Run a kernel over 64-bit words and wait. `inputs` are `blocks` words for each of its middle arguments; they
        are copied to `scratch`, device memory for them and for one word of result a block.

        The kernel's arguments are those that `kernel` was prepared with; see `hasher.ChunkHasher`.
        """
        words = (ctypes.c_uint64 * len(inputs))(*inputs)
        results = (ctypes.c_uint64 * blocks)()
        stream = ctypes.c_void_p(PER_THREAD_STREAM)
        self._call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(scratch), words, ctypes.c_size_t(8 * len(inputs)), stream)
        function, arguments = kernel
        pointers = (ctypes.c_void_p * len(arguments))(*[ctypes.addressof(argument) for argument in arguments])
        self._call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, None)
        source = ctypes.c_uint64(scratch + 8 * len(inputs))
        self._call("cuMemcpyDtoHAsync_v2", results, source, ctypes.c_size_t(8 * blocks), stream)
        self._call("cuStreamSynchronize", stream)
        return list(results)

    def release(self) -> None:
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)
