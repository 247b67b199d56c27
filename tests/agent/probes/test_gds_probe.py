"""What a cuFile probe's output means; outputs as the probe program prints them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from muster_agent.probes import gds
from muster_agent.probes.gds import parse_probe, read_cuda_devices, read_gds

DIRECT = '{"counts": {"p2p": 8, "nvfs": 0, "posix": 0, "unaligned": 0}, "canary_bytes": 67108864, "nvidia_fs": false}\n'
COMPAT = '{"counts": {"p2p": 0, "nvfs": 0, "posix": 8, "unaligned": 0}, "canary_bytes": 67108864, "nvidia_fs": false}\n'
NO_COUNTERS = '{"counts": null, "canary_bytes": 67108864, "nvidia_fs": true}\n'
NO_BINDING = '{"error": "the package cuda-bindings is not installed"}\n'


@pytest.mark.parametrize(
    ("returncode", "stdout", "stderr", "usable", "says"),
    [
        (0, DIRECT, "", True, "8 reads went straight"),
        (0, "a library's chatter\n" + DIRECT, "", True, "straight"),
        (0, COMPAT, "", False, "compatibility mode"),
        (0, NO_COUNTERS, "", False, "no per-path counters"),
        (1, NO_BINDING, "", False, "cuda-bindings is not installed"),
        (None, "", "", False, "did not open within 20 s"),
        (-11, "", "", False, "ended with -11: no output"),
        (1, "", "Traceback\nImportError: no module\n", False, "ImportError: no module"),
        (0, "[1, 2]\n", "", False, "not a report"),
        (0, "", "", False, "no output"),
    ],
)
def test_only_a_canary_that_went_straight_makes_it_usable(
    returncode: int | None, stdout: str, stderr: str, usable: bool, says: str
) -> None:
    probe = parse_probe(returncode, stdout, stderr)
    assert probe.usable is usable
    assert says in probe.reason


def test_a_node_without_a_driver_is_told_without_starting_a_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has an NVIDIA driver")
    monkeypatch.setattr(gds.subprocess, "run", lambda *_a, **_k: pytest.fail("a probe was started"))
    assert read_cuda_devices()[0] == 0
    assert "no CUDA driver" in read_gds(str(tmp_path)).reason


def test_a_probe_that_never_returns_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gds, "read_cuda_devices", lambda: (1, ""))
    monkeypatch.setattr(gds, "PROBE_TIMEOUT_SECONDS", 0.5)
    spinner = tmp_path / "spinner.py"
    spinner.write_text("while True: pass\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(gds, "_PROBE_MODULE", "spinner")
    assert "did not open within" in read_gds("x").reason


def test_the_probe_runs_apart_from_our_descriptors_and_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gds, "read_cuda_devices", lambda: (1, ""))
    seen: dict[str, object] = {}

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        seen.update(options, command=command)
        return subprocess.CompletedProcess(command, 0, DIRECT, "")

    monkeypatch.setattr(gds.subprocess, "run", run)
    assert read_gds("/data/shard").usable
    assert seen["stdin"] == subprocess.DEVNULL
    assert seen["env"]["CUFILE_LOGFILE_PATH"] == os.devnull  # type: ignore[index]
    assert seen["command"][-2:] == ["/data/shard", "0"]  # type: ignore[index]


def test_a_device_that_is_not_there_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gds, "read_cuda_devices", lambda: (1, ""))
    assert "no CUDA device 3" in read_gds("x", 3).reason
