"""The prepared run for a machine with a GPU, rehearsed without one."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from muster_agent.jobs.seal import seal

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.reload.gpu_stand_in import StandIn

SCRIPT = Path(__file__).resolve().parents[2] / "gpu/run_gpu_checks.py"
MIB = 1 << 20


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("run_gpu_checks", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_a_gpu_every_step_says_so(checks: ModuleType) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has an NVIDIA driver")
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "no CUDA driver on this node" in done.stderr
    assert done.stdout.count("| no GPU |") == len(checks.STEPS)


@pytest.mark.slow
def test_every_step_but_the_drill_runs_through_on_the_stand_in(
    checks: ModuleType, gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.set_late(0)
    folder = write_checkpoint(tmp_path / "run", 1, world_size=2, rank_bytes=2 * MIB)
    assert seal(str(folder)).manifest is not None
    monkeypatch.delitem(checks.STEPS, "drill")
    rows = checks.run_steps(checks.Scene(folder, tmp_path, "/nonexistent/python", 8 * MIB))
    by_step = {row.step: row for row in rows}
    assert by_step["digests against xxhash"].ok is True
    assert by_step["reload host_bounce"].ok is True and "host_bounce" in by_step["reload host_bounce, kept"].result
    assert by_step["descriptor 0 after the probe"].ok is True
    assert "hash / copy" in by_step and "FAILED" in by_step["other loaders"].result
    assert not [row for row in rows if row.ok is False and row.step not in ("hash / copy", "other loaders")]


def test_steps_that_would_begin_too_late_are_left_out(
    checks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "BUDGET_SECONDS", -1.0)
    rows = checks.run_steps(checks.Scene(tmp_path, tmp_path, "python", MIB))
    assert [row.result for row in rows] == ["left out: the five minutes are over"] * len(checks.STEPS)
