"""Reads straight into GPU memory through cuFile, and the proof of the path that they took.

Importable anywhere; CUDA and cuFile are loaded only inside `GdsSession`. As a program it is the child process that
`muster_agent.probes.gds` starts: a canary read of the named file, one JSON line on stdout.

Bytes that never pass the CPU cannot be hashed by it: each block is copied back to the ring and hashed there. The report
declares that as `evidence.verify_path = device_to_host`.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from typing import Any

from muster_agent.reload.plan import BLOCK_BYTES
from muster_agent.storage.posix import ALIGN_BYTES

CANARY_BYTES = 64 * 1024 * 1024
_MAX_GPUS = 16


class GdsUnavailable(Exception):
    """cuFile or CUDA refused; the message says which call and what it answered."""


class CudaDevice:
    """The little of the CUDA driver API that reading needs, on one device's primary context."""

    def __init__(self, index: int) -> None:
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise GdsUnavailable("libcuda.so.1 is not installed") from error
        self._device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(self._device), index)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        self.make_current()

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status != 0:
            raise GdsUnavailable(f"{name} gave CUDA error {status}")

    def make_current(self) -> None:
        """Needed once in every thread that uses the device."""
        self._call("cuCtxSetCurrent", self._context)

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

    def release(self) -> None:
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)


class GdsSession:
    """cuFile opened once for one reload, counting the path of every read. Raises GdsUnavailable."""

    def __init__(self, device_index: int = 0, block_bytes: int = BLOCK_BYTES) -> None:
        self.device = CudaDevice(device_index)
        self._block_bytes = block_bytes
        self._local = threading.local()
        self._blocks: list[int] = []
        self._lock = threading.Lock()
        try:
            from cuda.bindings import cufile
        except ImportError as error:
            raise GdsUnavailable("the package cuda-bindings is not installed") from error
        self.cufile: Any = cufile
        self._attempt("cuFileDriverOpen", cufile.driver_open)
        self._counting = self._start_counting()

    def _attempt(self, what: str, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:  # cuFileError, and RuntimeError of the binding's loader
            raise GdsUnavailable(f"{what}: {error}") from error

    def _start_counting(self) -> bool:
        try:
            self.cufile.set_stats_level(3)
            self.cufile.stats_start()
        except Exception:  # the symbols are absent before libcufile 1.15; then nothing proves the path
            return False
        return True

    def open(self, path: str) -> GdsSource:
        """Open a shard for reads into this session's device. Raises OSError."""
        return GdsSource(self, path)

    def device_block(self) -> int:
        """This thread's block of device memory, registered with cuFile."""
        address: int | None = getattr(self._local, "address", None)
        if address is None:
            self.device.make_current()
            address = self.device.allocate(self._block_bytes)
            self._attempt("cuFileBufRegister", self.cufile.buf_register, address, self._block_bytes, 0)
            self._local.address = address
            with self._lock:
                self._blocks.append(address)
        return address

    def counts(self) -> dict[str, int] | None:
        """Reads by path since the session began, over all GPUs; None where this cuFile does not count."""
        if not self._counting:
            return None
        stats = self.cufile.StatsLevel3()
        self._attempt("cuFileGetStatsL3", self.cufile.get_stats_l3, stats.ptr)
        gpus = [stats.per_gpu_stats[index] for index in range(min(int(stats.num_gpus), _MAX_GPUS))]
        return {
            name: sum(int(getattr(gpu, f"n_{name}_reads")) for gpu in gpus)
            for name in ("p2p", "nvfs", "posix", "unaligned")
        }

    def close(self) -> None:
        """Give device memory and the driver back."""
        self.device.make_current()
        for address in self._blocks:
            self.cufile.buf_deregister(address)
            self.device.free(address)
        self._blocks.clear()
        self.cufile.driver_close()
        self.device.release()


class GdsSource:
    """One shard read through cuFile; see `ShardSource`. The block also comes back to host memory, for its digest."""

    def __init__(self, session: GdsSession, path: str) -> None:
        self._session = session
        self._handle: int | None = None
        self._fd: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_DIRECT)
        status = os.fstat(self._fd)
        self.size_bytes, self.mtime_ns = status.st_size, status.st_mtime_ns
        cufile = session.cufile
        descriptor = cufile.Descr()
        descriptor.type = cufile.FileHandleType.OPAQUE_FD
        descriptor.handle.fd = self._fd
        descriptor.fs_ops = 0
        try:
            self._handle = cufile.handle_register(descriptor.ptr)
        except Exception as error:
            self.close()
            raise OSError(f"cuFile does not take this file: {error}") from error

    def read_into(self, buffer: memoryview, offset_bytes: int, length_bytes: int) -> int:
        """See `ShardSource.read_into`."""
        wanted = max(0, min(length_bytes, self.size_bytes - offset_bytes))
        if wanted == 0:
            return 0
        aligned = -(-wanted // ALIGN_BYTES) * ALIGN_BYTES
        try:
            address = self._session.device_block()
            count = self._session.cufile.read(self._handle, address, aligned, offset_bytes, 0)
            if count < 0:
                raise OSError(-count, f"cuFile read gave {count}")
            count = min(int(count), wanted)
            if count:
                self._session.device.copy_to_host(buffer, address, count)
        except OSError:
            raise
        except Exception as error:
            raise OSError(f"cuFile read failed: {error}") from error
        return count

    def close(self) -> None:
        """See `ShardSource.close`."""
        if self._handle is not None:
            self._session.cufile.handle_deregister(self._handle)
        if self._fd is not None:
            os.close(self._fd)
        self._handle = self._fd = None


def canary(path: str, device_index: int) -> dict[str, Any]:
    """Read up to 64 MiB of `path` in aligned blocks through cuFile and report the path counters, for the probe."""
    session = GdsSession(device_index)
    try:
        source = session.open(path)
        host = memoryview(bytearray(BLOCK_BYTES))
        end = min(CANARY_BYTES, source.size_bytes // ALIGN_BYTES * ALIGN_BYTES)
        read_bytes = sum(
            source.read_into(host, offset, min(BLOCK_BYTES, end - offset)) for offset in range(0, end, BLOCK_BYTES)
        )
        source.close()
        return {"counts": session.counts(), "canary_bytes": read_bytes, **_versions()}
    finally:
        session.close()


def _versions() -> dict[str, Any]:
    facts: dict[str, Any] = {"nvidia_fs": os.path.exists("/proc/driver/nvidia-fs/version")}
    for name, path in (
        ("driver", "/proc/driver/nvidia/version"),
        ("nvidia_fs_version", "/proc/driver/nvidia-fs/version"),
    ):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                facts[name] = file.readline().strip()
        except OSError:
            facts[name] = None
    return facts


def main(arguments: list[str]) -> int:
    """`PATH DEVICE_INDEX`: print the canary's report as one JSON line; exit 1 with `error` where it failed."""
    try:
        report = canary(arguments[0], int(arguments[1]))
    except (GdsUnavailable, OSError) as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return 1
    sys.stdout.write(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
