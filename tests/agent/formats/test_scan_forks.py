"""Several processors find what one finds, whatever becomes of the processes."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from muster_agent.formats import limits, scan_forks, scan_reading
from muster_agent.formats.walk import Inventory, inventory
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.jobs.scan_cache import ScanCache

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.formats.damage import age

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(DATA, tmp_path / "data", symlinks=True)
    for step in range(1, 20):
        write_checkpoint(tmp_path / "data" / "run", step, rank_bytes=300, world_size=2)
    (tmp_path / "data" / "run" / "step-00000003" / ".muster-manifest.json").write_text("{}")
    age(tmp_path / "data")  # so old that the ages in sentences do not change between two scans
    return tmp_path / "data"


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Every scan forks; the processes that were started. None of them may be left over."""
    pids: list[int] = []
    plain = os.fork

    def fork() -> int:
        pid = plain()
        pids.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(scan_reading, "processes_for", lambda _tasks: 3)
    monkeypatch.setattr(scan_reading, "FIRST_TASKS", 0)
    yield pids
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def same(one: Inventory, other: Inventory) -> bool:
    return [getattr(one, name) for name in ("checkpoints", "findings", "pointers", "entries", "sealed")] == [
        getattr(other, name) for name in ("checkpoints", "findings", "pointers", "entries", "sealed")
    ]


def alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> Inventory:
    with monkeypatch.context() as patched:
        patched.setattr(scan_reading, "processes_for", lambda _tasks: 1)
        return inventory(root, grace_seconds=0)


def test_forks_find_what_one_process_finds(root: Path, forks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = alone(root, monkeypatch)
    assert same(inventory(root, grace_seconds=0), expected)
    assert len(forks) >= 3


def test_what_forks_found_is_remembered(
    root: Path, forks: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = alone(root, monkeypatch)
    for unchanged in (False, True):
        with ScanCache(tmp_path / "cache", str(root)) as cache:
            found = inventory(root, grace_seconds=0, memory=cache)
            assert same(found, expected)
            assert (found.unchanged > 19) is unchanged


def test_a_fork_that_dies_costs_time_only(root: Path, forks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = alone(root, monkeypatch)
    plain = scan_forks._reply

    def die(reading: Any, index: int, task: Any, *, is_known: bool) -> bytes:
        if index == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(reading, index, task, is_known=is_known)

    monkeypatch.setattr(scan_forks, "_reply", die)
    assert same(inventory(root, grace_seconds=0), expected)


def test_what_a_fork_cannot_read_its_parent_reads(
    root: Path, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = alone(root, monkeypatch)
    monkeypatch.setattr(scan_forks, "_answer", lambda *_, **_named: 1 / 0)
    assert same(inventory(root, grace_seconds=0), expected)


def test_without_processes_to_be_had_all_is_read_here(
    root: Path, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = alone(root, monkeypatch)

    def refuse() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", refuse)
    assert same(inventory(root, grace_seconds=0), expected)


def test_large_metadata_is_left_to_the_parent(root: Path, forks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    place = root / "dcp" / "w2"
    expected = alone(place, monkeypatch)
    monkeypatch.setattr(limits._Here, "pickle_bytes", 10)
    assert same(inventory(place, grace_seconds=0), expected)


def test_a_cancelled_scan_ends_its_forks(root: Path, forks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_forks, "_reply", lambda *_, **_named: time.sleep(60))
    stop = threading.Event()
    control = JobControl(cancel=stop)
    monkeypatch.setattr(control, "check", lambda: stop.set() or JobControl.check(control) if forks else None)
    began = time.monotonic()
    with pytest.raises(Cancelled):
        inventory(root, control=control)
    assert time.monotonic() - began < 2


def test_a_process_with_threads_does_not_fork() -> None:
    assert scan_forks.processes_for(scan_forks.LEAST_TASKS - 1) == 1
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert scan_forks.processes_for(10_000) == 1
    finally:
        end.set()
        thread.join()
