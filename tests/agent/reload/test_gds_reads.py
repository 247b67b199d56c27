"""cuFile reads, against a stand-in for the driver and the binding that keeps cuFile's documented manners."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cuda.bindings import nvrtc
from muster_agent.jobs import reload_facts
from muster_agent.jobs.reload import reload
from muster_agent.jobs.seal import seal
from muster_agent.probes.gds import GdsProbe
from muster_agent.reload import gds
from muster_agent.reload.gds import GdsSession, GdsUnavailable
from muster_agent.reload.gpu.device import CudaDevice
from muster_agent.reload.gpu.memory import DeviceArena

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.reload.gpu_stand_in import StandIn
from tests.agent.reload.held import sized


class FakeCufile:
    """Reads with pread into the "device", counts as level 3 does, answers errors with negative numbers."""

    FileHandleType = SimpleNamespace(OPAQUE_FD=1)

    def __init__(self, path: str = "p2p", fail: int = 0) -> None:
        self._path, self._fail = path, fail
        self.reads = 0
        self.open_handles: set[int] = set()
        self.registered: set[int] = set()
        self.gpu: StandIn

    def Descr(self) -> Any:  # noqa: N802
        descriptor = SimpleNamespace(type=0, handle=SimpleNamespace(fd=-1), fs_ops=None)
        self._descriptor = descriptor
        descriptor.ptr = descriptor
        return descriptor

    def driver_open(self) -> None: ...

    def driver_close(self) -> None: ...

    def set_stats_level(self, _level: int) -> None: ...

    def stats_start(self) -> None: ...

    def buf_register(self, address: int, _size: int, _flags: int) -> None:
        self.registered.add(address)

    def buf_deregister(self, address: int) -> None:
        self.registered.remove(address)

    def handle_register(self, descriptor: Any) -> int:
        self.open_handles.add(descriptor.handle.fd)
        return int(descriptor.handle.fd)

    def handle_deregister(self, handle: int) -> None:
        self.open_handles.discard(handle)

    def read(self, handle: int, address: int, size: int, offset: int, _buffer_offset: int) -> int:
        if self._fail:
            return -self._fail
        assert size % 4096 == 0 and offset % 4096 == 0
        self.reads += 1
        flags = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY)
        data = os.pread(flags, size, offset)
        os.close(flags)
        ctypes.memmove(self.gpu.host_pointer(address), data, len(data))
        return len(data)

    def StatsLevel3(self) -> Any:  # noqa: N802
        counts = {f"n_{name}_reads": 0 for name in ("p2p", "nvfs", "posix", "unaligned")}
        counts[f"n_{self._path}_reads"] = self.reads
        return SimpleNamespace(ptr=0, num_gpus=1, per_gpu_stats=[SimpleNamespace(**counts)])

    def get_stats_l3(self, _pointer: int) -> None: ...


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, gpu: StandIn) -> Any:
    def install(cufile: FakeCufile) -> FakeCufile:
        cufile.gpu = gpu
        bindings = SimpleNamespace(cufile=cufile, nvrtc=nvrtc)
        monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(bindings=bindings))
        monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
        return cufile

    return install


def test_bytes_come_back_whole_with_an_unaligned_end(tmp_path: Path, fake: Any) -> None:
    cufile = fake(FakeCufile())
    data = os.urandom(10_000)
    (tmp_path / "a").write_bytes(data)
    session = GdsSession(block_bytes=8192)
    source = session.open(str(tmp_path / "a"))
    buffer = memoryview(bytearray(8192))
    assert source.read_into(buffer, 0, 8192) == 8192 and bytes(buffer) == data[:8192]
    assert source.read_into(buffer, 8192, 8192) == 1808 and bytes(buffer[:1808]) == data[8192:]
    assert source.read_into(buffer, 16384, 4096) == 0
    assert session.counts() == {"p2p": 2, "nvfs": 0, "posix": 0, "unaligned": 0}
    source.close()
    source.close()
    assert cufile.open_handles == set()
    session.close()


def test_a_negative_answer_is_an_error_and_never_a_short_read(tmp_path: Path, fake: Any) -> None:
    fake(FakeCufile(fail=5))
    (tmp_path / "a").write_bytes(b"x" * 8192)
    session = GdsSession(block_bytes=8192)
    with pytest.raises(OSError, match="gave -5"):
        session.open(str(tmp_path / "a")).read_into(memoryview(bytearray(8192)), 0, 8192)
    session.close()
    session.close()


def test_a_session_that_cannot_open_gives_the_device_back(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cufile = fake(FakeCufile())

    def refuse() -> None:
        raise RuntimeError("cuFileError 5033: NVFS setup error")

    monkeypatch.setattr(cufile, "driver_open", refuse)
    with pytest.raises(GdsUnavailable, match="cuFileDriverOpen: cuFileError 5033"):
        GdsSession()


def test_a_buffer_that_cufile_refuses_is_an_error_of_the_read_and_is_freed(
    tmp_path: Path, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cufile = fake(FakeCufile())

    def refuse(*_arguments: int) -> None:
        raise RuntimeError("cuFileError 5011")

    monkeypatch.setattr(cufile, "buf_register", refuse)
    (tmp_path / "a").write_bytes(b"x" * 8192)
    session = GdsSession(block_bytes=8192)
    source = session.open(str(tmp_path / "a"))
    with pytest.raises(OSError, match="cuFileBufRegister: cuFileError 5011"):
        source.read_in_place(0, 8192)
    source.close()
    session.close()


def test_bytes_that_the_device_keeps_lie_at_their_places(tmp_path: Path, fake: Any, gpu: StandIn) -> None:
    cufile = fake(FakeCufile())
    data = os.urandom(20_000)
    (tmp_path / "a").write_bytes(data)
    arena = DeviceArena(0, sized(100, len(data)))
    session = GdsSession(block_bytes=8192, arena=arena)
    source = session.open(str(tmp_path / "a"), 1)
    counts = [source.read_in_place(offset, 8192) for offset in range(0, len(data), 8192)]
    source.close()
    session.close()
    assert counts == [8192, 8192, 3616] and cufile.registered == set()
    assert gpu.bytes_at(arena.place(1, 0), len(data)) == data
    arena.close()


def test_the_canary_reports_which_path_its_reads_took(tmp_path: Path, fake: Any) -> None:
    fake(FakeCufile(path="posix"))
    (tmp_path / "a").write_bytes(b"x" * 10_000)
    report = gds.canary(str(tmp_path / "a"), 0)
    assert report["counts"]["posix"] == 1
    assert report["canary_bytes"] == 8192


def test_without_a_driver_the_session_says_what_is_missing() -> None:
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has an NVIDIA driver")
    with pytest.raises(GdsUnavailable, match=r"libcuda\.so\.1 is not installed"):
        GdsSession()


def test_the_probe_program_answers_in_json_where_nothing_works(capsys: pytest.CaptureFixture[str]) -> None:
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has an NVIDIA driver")
    assert gds.main(["/nonexistent", "0"]) == 1
    assert '"error": "libcuda.so.1 is not installed"' in capsys.readouterr().out


def _sealed(folder: Path) -> Path:
    checkpoint = write_checkpoint(folder / "run", 1, world_size=2, rank_bytes=5 << 20)
    assert seal(str(checkpoint)).manifest is not None
    return checkpoint


@pytest.fixture
def usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        reload_facts, "read_gds", lambda *_: GdsProbe(usable=True, reason="the canary went peer to peer")
    )


def test_a_reload_into_gpu_memory_is_proven_there(tmp_path: Path, fake: Any, usable: None) -> None:
    fake(FakeCufile())
    report = reload(str(_sealed(tmp_path)), backend="gds", evict=False)
    assert (report.effective, report.verified) == ("gds", True)
    assert report.evidence["verify_path"] == "device"


def test_damage_that_only_the_device_saw_names_shard_and_bytes(tmp_path: Path, fake: Any, usable: None) -> None:
    fake(FakeCufile())
    checkpoint = _sealed(tmp_path)
    shard = sorted(checkpoint.glob("*.safetensors"))[1]
    seen, data = shard.stat(), bytearray(shard.read_bytes())
    data[(4 << 20) + 77] ^= 1
    shard.write_bytes(data)
    os.utime(shard, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    report = reload(str(checkpoint), backend="gds", evict=False)
    (found,) = [one for one in report.findings if one.code == "digest_mismatch"]
    assert (report.verified, found.path, found.begin_byte) == (False, shard.name, 4 << 20)


def test_where_the_device_cannot_hash_blocks_come_back_and_the_report_says_so(
    tmp_path: Path, fake: Any, usable: None, gpu: StandIn
) -> None:
    fake(FakeCufile())
    gpu.set_capability(1, 0)
    report = reload(str(_sealed(tmp_path)), backend="gds", evict=False)
    assert (report.verified, report.evidence["verify_path"]) == (True, "device_to_host")
    assert "NVRTC" in report.evidence["device_hash_unavailable_because"]


def test_bytes_that_nothing_was_sealed_about_are_read_and_stay_on_the_device(
    tmp_path: Path, fake: Any, usable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(FakeCufile())
    monkeypatch.setattr(CudaDevice, "copy_to_host", None)
    checkpoint = write_checkpoint(tmp_path / "run", 1, world_size=2, rank_bytes=1 << 20)
    report = reload(str(checkpoint), backend="gds", evict=False)
    assert (report.effective, report.verified) == ("gds", None)
    assert report.bytes == sum(file.stat().st_size for file in checkpoint.iterdir())
