"""deploy/examples with the real frameworks: killed, started again, and told by their own records.

They run in an environment of their own (`make frameworks`, or MUSTER_FRAMEWORKS_PYTHON names one): nothing of Muster
needs torch, transformers or lightning.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("MUSTER_FRAMEWORKS_PYTHON") or ROOT / ".venv-frameworks/bin/python")
EXAMPLES = {
    "dcp": ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "train_dcp.py"],
    "dcp-async": [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--standalone",
        "train_dcp.py",
        "--asynchronous",
    ],  # fmt: skip
    "lightning": ["train_lightning.py"],
    "transformers": ["train_transformers.py"],
}
STEPS, EVERY = 60, 20

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """`start("dcp", "demo-1")`: the example as a process, saving to `ckpt` and reporting to `hooks`."""
    if not PYTHON.exists():
        pytest.skip("the frameworks are not installed: run `make frameworks`")
    started: list[subprocess.Popen[bytes]] = []
    muster = tmp_path / "bin/muster"
    muster.parent.mkdir()
    muster.write_text(f"#!/bin/sh\nexec {PYTHON} -c 'from muster_agent.cli import main; main()' \"$@\"\n")
    muster.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{muster.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "workers/agent/src"),
        "MUSTER_HOOK_DIR": str(tmp_path / "hooks"),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }

    def begin(example: str, attempt: str, steps: int = STEPS) -> subprocess.Popen[bytes]:
        words = [
            word if not word.endswith(".py") else str(ROOT / "deploy/examples" / word) for word in EXAMPLES[example]
        ]
        at = next(number for number, word in enumerate(words) if word.endswith(".py")) + 1
        given = [str(tmp_path / "ckpt"), "--attempt", attempt, "--steps", str(steps), "--save-every", str(EVERY)]
        with (tmp_path / f"{attempt}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(PYTHON), *words[:at], *given, *words[at:]],
                env=environment, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        started.append(process)
        return process

    yield begin
    for process in started:
        die(process, tmp_path)


def die(launcher: subprocess.Popen[bytes], folder: Path) -> None:
    """As its node does: torchrun's workers, each in a session of its own, would outlive their launcher."""
    ranks = {one["pid"] for one in all_records(folder) if is_of(one["pid"], folder)}
    for pid in {launcher.pid, *ranks} if launcher.poll() is None else ranks:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    launcher.wait()


def is_of(pid: int, folder: Path) -> bool:
    try:
        return os.fsencode(folder) in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def all_records(folder: Path) -> list[dict[str, Any]]:
    lines = [line for file in sorted((folder / "hooks").glob("*.jsonl")) for line in file.read_bytes().splitlines()]
    return [json.loads(line) for line in lines]


def records(folder: Path, attempt: str) -> list[dict[str, Any]]:
    return [one for one in all_records(folder) if one["attempt"] == attempt and one.get("rank") == 0]


def steps_of(told: list[dict[str, Any]], kind: str) -> list[int]:
    return [one["step"] for one in told if one["kind"] == kind]


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_killed_run_goes_on_from_its_newest_whole_checkpoint(example: str, start: Start, tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    first = start(example, "demo-1", steps=10_000)
    deadline = time.monotonic() + 600
    while len(steps_of(records(tmp_path, "demo-1"), "save_finished")) < 2:
        assert first.poll() is None, (tmp_path / "demo-1.log").read_text()[-3000:]
        assert time.monotonic() < deadline, (tmp_path / "demo-1.log").read_text()[-3000:]
        time.sleep(0.2)
    die(first, tmp_path)

    told = records(tmp_path, "demo-1")
    finished = steps_of(told, "save_finished")
    assert set(finished) <= set(steps_of(told, "save_started"))
    assert finished == [EVERY * number for number in range(1, len(finished) + 1)]
    steps = steps_of(told, "step")
    assert steps == list(range(1, len(steps) + 1))

    goal = max(steps) + 2 * EVERY
    second = start(example, "demo-2", steps=goal)
    assert second.wait(600) == 0, (tmp_path / "demo-2.log").read_text()[-3000:]
    told = records(tmp_path, "demo-2")
    (resumed,) = [one for one in told if one["kind"] == "resumed_from"]
    assert resumed["step"] >= finished[-1]
    assert Path(resumed["data"]["path"]).exists()
    assert steps_of(told, "step") == list(range(resumed["step"] + 1, goal + 1))
    assert [one["edge"] for one in told if one.get("phase") == "resolve"] == ["begin", "end"]
