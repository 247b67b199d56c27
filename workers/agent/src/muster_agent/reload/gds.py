"""Reads straight into GPU memory through cuFile, and the proof of the path that they took.

Importable anywhere; CUDA and cuFile are loaded only inside `GdsSession`. As a program it is the child process that
`muster_agent.probes.gds` starts: a canary read of the named file, one JSON line on stdout.

Bytes that never pass the CPU cannot be hashed by it: our own kernel hashes their chunks in GPU memory. Where it cannot
run, each block is copied back to be hashed in the ring, and the report says `evidence.verify_path = device_to_host`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import xxhash

from muster_agent.probes.nvidia_fs import NvidiaFs, read_nvidia_fs, reads_between
from muster_agent.reload.gpu.device import CudaDevice, DeviceUnavailable
from muster_agent.reload.gpu.hasher import ChunkHasher, HasherUnavailable
from muster_agent.reload.gpu.memory import DeviceArena, NoDeviceRoom, require_room
from muster_agent.reload.plan import BLOCK_BYTES
from muster_agent.storage.posix import ALIGN_BYTES, open_to_read

CANARY_BYTES = 64 * 1024 * 1024
_MAX_GPUS = 16


class GdsUnavailable(Exception):
    """cuFile or CUDA refused; the message says which call and what it answered."""


class GdsSession:
    """cuFile opened once for one reload, counting the path of every read. Raises GdsUnavailable, and NoDeviceRoom
    before anything is read. With an `arena` the device keeps every byte of its shards.

    With `hash_chunks` the device hashes what it reads; where it cannot, `hasher` is None and `no_hasher` says why.
    """

    def __init__(
        self,
        device_index: int = 0,
        block_bytes: int = BLOCK_BYTES,
        *,
        readers: int = 1,
        hash_chunks: bool = False,
        arena: DeviceArena | None = None,
    ) -> None:
        self._block_bytes, self.arena = block_bytes, arena
        self.hasher: ChunkHasher | None = None
        self.no_hasher = ""
        self._local = threading.local()
        self._lock = threading.Lock()
        with contextlib.ExitStack() as undo:
            self._open(undo, device_index)
            require_room(self.device, readers * block_bytes)
            if hash_chunks:
                self._prepare_hasher(undo)
            self._cleanup = undo.pop_all()

    def _open(self, undo: contextlib.ExitStack, device_index: int) -> None:
        try:
            self.device = CudaDevice(device_index)
        except DeviceUnavailable as error:
            raise GdsUnavailable(str(error)) from error
        undo.callback(self.device.release)
        try:
            from cuda.bindings import cufile
        except ImportError as error:
            raise GdsUnavailable("the package cuda-bindings is not installed") from error
        self.cufile: Any = cufile
        self._attempt("cuFileDriverOpen", cufile.driver_open)
        undo.callback(cufile.driver_close)
        self._counting = self._start_counting()

    def _prepare_hasher(self, undo: contextlib.ExitStack) -> None:
        try:
            self.hasher = ChunkHasher(self.device)
        except HasherUnavailable as error:
            self.no_hasher = str(error)
        else:
            undo.callback(self.hasher.close)

    def _attempt(self, what: str, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:  # cuFileError, and RuntimeError of the binding's loader
            raise GdsUnavailable(f"{what}: {str(error).partition(chr(10))[0]}") from error

    def _start_counting(self) -> bool:
        try:
            self.cufile.set_stats_level(3)
            self.cufile.stats_start()
        except Exception:  # the symbols are absent before libcufile 1.15; then nothing proves the path
            return False
        return True

    def open(self, path: str, shard: int = 0) -> GdsSource:
        """Open a shard (its number in the arena, where there is one) for reads into this session's device. Raises
        OSError."""
        return GdsSource(self, path, shard)

    def device_block(self) -> int:
        """This thread's block of device memory, registered with cuFile."""
        address: int | None = getattr(self._local, "address", None)
        if address is None:
            self.device.make_current()
            with self._lock:
                address = self._local.address = self._register(self.device.allocate(self._block_bytes))
        return address

    def _register(self, address: int) -> int:
        self._cleanup.callback(self.device.free, address)
        self._attempt("cuFileBufRegister", self.cufile.buf_register, address, self._block_bytes, 0)
        self._cleanup.callback(self.cufile.buf_deregister, address)
        return address

    def copy_back(self, length_bytes: int) -> memoryview:
        """The first bytes of this thread's block, in host memory until the next call: for a device that cannot hash."""
        host: memoryview | None = getattr(self._local, "host", None)
        if host is None:
            host = self._local.host = memoryview(bytearray(self._block_bytes))
        self.device.copy_to_host(host, self.device_block(), length_bytes)
        return host[:length_bytes]

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
        """Give device memory and the driver back; calling it twice is harmless."""
        with contextlib.suppress(DeviceUnavailable):
            self.device.make_current()
        self._cleanup.close()


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    """The engine's one kind of trouble with a shard, whatever the binding raised."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"cuFile read failed: {error}") from error


class GdsSource:
    """One shard read through cuFile; see `ShardSource` and `InPlaceSource`."""

    def __init__(self, session: GdsSession, path: str, shard: int) -> None:
        self._session, self._shard = session, shard
        self._handle: int | None = None
        self._fd: int | None = open_to_read(path, os.O_DIRECT)
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
        """See `ShardSource.read_into`: the block comes back to host memory."""
        with _as_os_error():
            address, count = self._read(offset_bytes, length_bytes)
            if count:
                self._session.device.copy_to_host(buffer, address, count)
        return count

    def read_in_place(self, offset_bytes: int, length_bytes: int) -> int:
        """See `InPlaceSource.read_in_place`. Where the device keeps every byte, the block is then copied to its place
        in there: cuFile's registered block stays small, and the device copies at the rate of its own memory."""
        arena = self._session.arena
        with _as_os_error():
            address, count = self._read(offset_bytes, length_bytes)
            if count and arena is not None:
                self._session.device.copy_within(arena.place(self._shard, offset_bytes), address, count)
            return count

    def digests_in_place(self, length_bytes: int, chunk_bytes: int) -> list[int]:
        """See `InPlaceSource.digests_in_place`."""
        ranges = [(begin, min(chunk_bytes, length_bytes - begin)) for begin in range(0, length_bytes, chunk_bytes)]
        session = self._session
        with _as_os_error():
            if session.hasher is not None:
                return session.hasher.digests(session.device_block(), ranges)
            data = session.copy_back(length_bytes)
            return [xxhash.xxh3_64_intdigest(data[begin : begin + size]) for begin, size in ranges]

    def _read(self, offset_bytes: int, length_bytes: int) -> tuple[int, int]:
        """(device address, bytes there) of the block at an offset."""
        wanted = max(0, min(length_bytes, self.size_bytes - offset_bytes))
        if wanted == 0:
            return 0, 0
        aligned = -(-wanted // ALIGN_BYTES) * ALIGN_BYTES
        address = self._session.device_block()
        count = self._session.cufile.read(self._handle, address, aligned, offset_bytes, 0)
        if count < 0:
            raise OSError(-count, f"cuFile read gave {count}")
        return address, min(int(count), wanted)

    def close(self) -> None:
        """See `ShardSource.close`."""
        if self._handle is not None:
            self._session.cufile.handle_deregister(self._handle)
        if self._fd is not None:
            os.close(self._fd)
        self._handle = self._fd = None


def canary(path: str, device_index: int) -> dict[str, Any]:
    """Read up to 64 MiB of `path` in aligned blocks through cuFile and report the path counters, for the probe."""
    module_before = read_nvidia_fs()
    session = GdsSession(device_index)
    try:
        source = session.open(path)
        host = memoryview(bytearray(BLOCK_BYTES))
        end = min(CANARY_BYTES, source.size_bytes // ALIGN_BYTES * ALIGN_BYTES)
        read_bytes = sum(
            source.read_into(host, offset, min(BLOCK_BYTES, end - offset)) for offset in range(0, end, BLOCK_BYTES)
        )
        source.close()
        facts = {"device_name": session.device.name(), "driver": _driver_version(), **_module(module_before)}
        return {"counts": session.counts(), "canary_bytes": read_bytes, **facts}
    finally:
        session.close()


def _module(before: NvidiaFs | None) -> dict[str, Any]:
    """The kernel module's own counters, as evidence beside cuFile's: off by default, and then unknown."""
    after = read_nvidia_fs()
    if after is None:
        return {"nvidia_fs": None}
    reads = reads_between(before, after)
    return {"nvidia_fs": {"version": after.version, "counts_reads": after.counts_reads, "reads": reads}}


def _driver_version() -> str | None:
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return None


def main(arguments: list[str]) -> int:
    """`PATH DEVICE_INDEX`: print the canary's report as one JSON line; exit 1 with `error` where it failed."""
    try:
        report = canary(arguments[0], int(arguments[1]))
    except (GdsUnavailable, NoDeviceRoom, OSError) as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return 1
    sys.stdout.write(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
