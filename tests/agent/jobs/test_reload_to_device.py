"""Reloads that end in a GPU's memory, on the stand-in for the driver: where the bytes are, and what is reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from muster_agent.jobs import reload_facts
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.jobs.reload import PreparedReload, prepare, reload
from muster_agent.jobs.seal import seal
from muster_agent.probes.gds import GdsProbe
from muster_agent.protocol.wire import ReloadParams
from muster_agent.reload.gpu.device import CudaDevice, DeviceUnavailable
from muster_agent.reload.gpu.memory import NoDeviceRoom

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.reload.gpu_stand_in import Count, StandIn

MIB = 1 << 20


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    folder = write_checkpoint(tmp_path / "run", 1, world_size=2, rank_bytes=9 * MIB)
    assert seal(str(folder)).manifest is not None
    return folder


@pytest.fixture(autouse=True)
def no_cufile(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = GdsProbe(usable=False, reason="cuFile is not usable: libcufile.so.0 is not there")
    monkeypatch.setattr(reload_facts, "read_gds", lambda *_: probe)


def _prepared(path: Path, **more: object) -> PreparedReload:
    return prepare(ReloadParams(path=str(path), shards=(), device="cuda:0", **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["auto", "host", "host_bounce", "gds"])
def test_bytes_go_to_the_device_that_was_asked_for(sealed: Path, gpu: StandIn, backend: str) -> None:
    report = reload(str(sealed), backend=backend, device="cuda:0")
    assert (report.effective, report.verified) == ("host_bounce", True)
    assert report.evidence["copied_bytes"] == report.bytes > 18 * MIB
    assert report.evidence["device"] == "stand-in 0" and report.evidence["pinned"] is True
    assert report.evidence["into_host"] in ("host_direct", "host_buffered", "mixed")
    assert report.evidence["verify_path"] == "host"
    assert "cuda:0 through pinned host memory" in report.reason
    assert ("gds was asked for, but cuFile is not usable" in report.reason) is (backend == "gds")
    assert gpu.count(Count.COPIES) > 0 and gpu.count(Count.UNPINNED_COPIES) == 0


def test_the_way_to_the_device_is_a_phase_of_its_own_and_the_phases_add_up(sealed: Path, gpu: StandIn) -> None:
    gpu.set_late(400_000)
    report = reload(str(sealed), device="cuda:0")
    assert report.phases["to_device"] > 0.05, "the last copy was still under way when the last byte was hashed"
    assert report.busy["to_device"] >= 0.4 * gpu.count(Count.COPIES) * 0.9
    assert sum(report.phases.values()) == pytest.approx(report.seconds)
    assert report.cpu_by_phase["to_device"] >= 0
    assert sum(report.cpu_by_phase.values()) == pytest.approx(report.cpu_seconds)


def test_without_a_device_no_gpu_is_touched(sealed: Path, gpu: StandIn) -> None:
    report = reload(str(sealed))
    assert report.effective in ("host_direct", "host_buffered") and "to_device" not in report.phases
    assert gpu.count(Count.COPIES) == 0


def test_a_device_keeps_every_byte_and_names_the_tensors(sealed: Path, gpu: StandIn) -> None:
    prepared = _prepared(sealed, resident=True)
    report = prepared.run().report
    assert prepared.on_device is not None and prepared.resident is None
    assert report.evidence["device_bytes"] == report.bytes
    assert report.evidence["device_tensors"] == len(prepared.on_device.tensors) > 0
    assert "materialize" in report.phases and "to_device" in report.phases
    for parts in prepared.on_device.tensors.values():
        for tensor in parts:
            whole = (sealed / tensor.shard).read_bytes()
            assert gpu.bytes_at(tensor.address, tensor.length_bytes) in whole
    assert gpu.count(Count.ALLOCATIONS) == 1, "only the kept bytes stay"
    prepared.close()


def test_a_device_without_room_is_told_before_anything_is_read(sealed: Path, gpu: StandIn) -> None:
    gpu.set_memory(260 * MIB)
    read: list[int] = []
    prepared = _prepared(sealed, resident=True)
    with pytest.raises(NoDeviceRoom, match="of GPU memory, and"):
        prepared.run(JobControl(lambda _phase, done, _total: read.append(done)))
    assert not read


def test_a_device_that_is_not_there_leaves_the_bytes_in_host_memory_and_says_so(sealed: Path, gpu: StandIn) -> None:
    report = reload(str(sealed), backend="host_bounce", device="cuda:5")
    assert report.effective in ("host_direct", "host_buffered") and report.verified is True
    assert "cuda:5 was asked for, but this node has 1 CUDA devices, counted from 0" in report.reason


def test_a_device_that_refuses_a_context_leaves_the_bytes_in_host_memory(
    sealed: Path, gpu: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise DeviceUnavailable("cuDevicePrimaryCtxRetain gave CUDA error 999")

    monkeypatch.setattr(CudaDevice, "__init__", refuse)
    prepared = _prepared(sealed, resident=True)
    report = prepared.run().report
    assert report.effective in ("host_direct", "host_buffered") and report.evidence["resident_bytes"]
    assert "the GPU could not be used (cuDevicePrimaryCtxRetain gave CUDA error 999)" in report.reason
    prepared.close()


def test_damage_is_found_on_the_way(sealed: Path, gpu: StandIn) -> None:
    shard = sorted(sealed.glob("*.safetensors"))[1]
    seen, data = shard.stat(), bytearray(shard.read_bytes())
    data[5 * MIB] ^= 1
    shard.write_bytes(data)
    os.utime(shard, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    report = reload(str(sealed), device="cuda:0")
    (found,) = [one for one in report.findings if one.code == "digest_mismatch"]
    assert (report.verified, found.path, found.begin_byte) == (False, shard.name, 4 * MIB)


def test_a_copy_that_fails_at_the_end_is_an_error_and_gives_all_back(
    sealed: Path, gpu: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> float:
        raise DeviceUnavailable("cuEventElapsedTime gave CUDA error 700")

    prepared = _prepared(sealed, resident=True)
    monkeypatch.setattr("muster_agent.reload.bounce.BounceSession.finish", fail)
    with pytest.raises(DeviceUnavailable, match="700"):
        prepared.run()


def test_a_reload_that_is_stopped_gives_the_device_back(sealed: Path, gpu: StandIn) -> None:
    control = JobControl()
    prepared = _prepared(sealed, resident=True)
    control.progress = lambda *_: control.cancel()
    with pytest.raises(Cancelled):
        prepared.run(control)


def test_unsealed_bytes_go_to_the_device_unhashed(tmp_path: Path, gpu: StandIn) -> None:
    folder = write_checkpoint(tmp_path / "run", 1, world_size=2, rank_bytes=MIB)
    report = reload(str(folder), device="cuda:0")
    assert (report.effective, report.verified) == ("host_bounce", None)
    assert "verify_path" not in report.evidence and report.evidence["copied_bytes"] == report.bytes


MUSTER = "import sys; from muster_agent.cli import main; sys.exit(main())"


def _muster(driver_library: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a user starts it, on a node whose only CUDA library is the stand-in."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(Path(driver_library).parent)}
    command = [sys.executable, "-c", MUSTER, "reload", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_command_probes_says_that_gds_is_not_effective_and_takes_the_ring(
    sealed: Path, driver_library: str
) -> None:
    done = _muster(driver_library, str(sealed), "--backend", "gds", "--json", "--no-write")
    report = json.loads(done.stdout)
    assert done.returncode == 1 and report["effective"] == "host_bounce" and report["verified"] is True
    assert "gds was asked for, but cuFile is not usable: cuFileDriverOpen" in report["reason"]
    assert "cuFileDriverOpen" in report["evidence"]["gds"]["reason"]
    assert "took the path host_bounce, not gds" in done.stderr


def test_the_command_keeps_a_checkpoint_on_the_device(sealed: Path, driver_library: str) -> None:
    done = _muster(driver_library, str(sealed), "--device", "cuda:0", "--backend", "host", "--resident", "--no-write")
    assert done.returncode == 0, done.stderr
    assert "in the memory of stand-in 0" in done.stdout and "to_device" in done.stdout


def test_the_command_refuses_a_device_that_makes_no_sense(sealed: Path, driver_library: str) -> None:
    done = _muster(driver_library, str(sealed), "--device", "cuda:0", "--backend", "host_direct")
    assert done.returncode == 2 and "keeps the bytes in host memory" in done.stderr
