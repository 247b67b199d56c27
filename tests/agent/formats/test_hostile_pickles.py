"""Hostile pickles are read in a process of their own, whose memory may grow by no more than the file and 100 MiB."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import hostile_pickles  # noqa: E402

HOSTILE = Path(__file__).parents[2] / "data" / "hostile"
FILES = {path.name: path.read_bytes() for path in sorted(HOSTILE.glob("*.pkl"))}
MEMORY_BYTES = 100 * 1024 * 1024
SECONDS = 1.0
"""Of a processor as fast as LOOP_SECONDS says, in the best of a few attempts. Where others use its caches and its
other half the same work takes longer, so a plain loop beside it says how much; a faster one gets no more time."""
LOOP_SECONDS = 0.04
"""What the loop of READER takes on an idle processor of the machine that the goal was set on."""
ATTEMPTS = 4
READER = """
import json, resource, sys, time
from muster_agent.formats import limits
from muster_agent.formats.dcp_metadata import parse_plan
from muster_agent.formats.torch_pickle import PickleRefused, named_tensors, read_torch_pickle
data = open(sys.argv[1], "rb").read()
def loop():
    began, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number & 7
    return time.process_time() - began
modules = set(sys.modules)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + int(sys.argv[2]),) * 2)
told = {}
loops = [loop()]
for reader in (parse_plan, read_torch_pickle):
    began = time.process_time()
    try:
        read = reader(data)
        told[reader.__name__] = "read"
        if reader is read_torch_pickle:
            told["unsafe"] = sorted(read.unsafe)
            told["tensors"] = sum(1 for _ in named_tensors(read.value))
        del read
    except PickleRefused as refused:
        told[reader.__name__] = "unsafe" if refused.unsafe else "refused"
    except limits.NeedsChild:
        told[reader.__name__] = "needs a child"
    told[reader.__name__ + " seconds"] = time.process_time() - began
    loops.append(loop())
told["loop seconds"] = sum(loops) / len(loops)
told["modules"] = sorted(one for one in set(sys.modules) - modules if not one.startswith("encodings."))
print(json.dumps(told))
"""


def told_of(data: bytes, place: Path) -> dict[str, Any]:
    """What the readers made of it. Asserts what holds for every file: nothing ran, nothing was imported, and the bounds
    were kept."""
    for _ in range(ATTEMPTS):
        told = read_apart(data, place)
        if seconds_of(told) < SECONDS:
            break
    assert seconds_of(told) < SECONDS
    return told


def seconds_of(told: dict[str, Any]) -> float:
    """As on a processor that nobody else uses."""
    slower = max(told["loop seconds"] / LOOP_SECONDS, 1.0)
    return max(told["parse_plan seconds"], told["read_torch_pickle seconds"]) / slower


def read_apart(data: bytes, place: Path) -> dict[str, Any]:
    file = place / "file"
    file.write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", READER, str(file), str(MEMORY_BYTES + len(data))],
        capture_output=True,
        text=True,
        cwd=place,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout)
    assert not (place / hostile_pickles.CANARY).exists()
    assert told["modules"] == []
    return told


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", hostile_pickles.RUNS)
def test_a_pickle_that_would_run_something_is_unsafe_and_runs_nothing(name: str, tmp_path: Path) -> None:
    told = told_of(hostile_pickles.RUNS[name], tmp_path)
    assert told["parse_plan"] in ("unsafe", "refused")
    assert told.get("unsafe") or told["read_torch_pickle"] == "refused"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", hostile_pickles.COSTS)
def test_a_pickle_costs_no_more_than_its_size_allows(name: str, tmp_path: Path) -> None:
    told = told_of(hostile_pickles.COSTS[name], tmp_path)
    assert told["parse_plan"] != "read"


@pytest.mark.parametrize("name", FILES)
def test_hostile_files_keep_the_bounds(name: str, tmp_path: Path) -> None:
    assert told_of(FILES[name], tmp_path)["parse_plan"] != "read"


def test_the_tricks_are_many() -> None:
    assert len(hostile_pickles.RUNS) + len(hostile_pickles.COSTS) >= 80
