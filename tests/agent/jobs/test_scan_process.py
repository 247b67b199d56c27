"""Inventories in a process of their own: the same answer, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from muster_agent.formats.walk import RootUnreadable
from muster_agent.jobs import scan_process
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.jobs.inventory import run_inventory
from muster_agent.jobs.scan_process import KEPT, ScanEnded, run_apart
from muster_agent.protocol.wire import InventoryBody, InventoryParams

from tests.agent.checkpoint_factory import write_checkpoint


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    for step in range(1, 6):
        write_checkpoint(tmp_path / "run", step, rank_bytes=300, world_size=2)
    yield tmp_path / "run"
    KEPT.end()


def plain(body: InventoryBody) -> tuple[object, ...]:
    return body.checkpoints, body.findings, body.pointers, body.entries, body.root_mark


def kept_pid() -> int:
    assert KEPT._idle is not None
    return KEPT._idle._process.pid


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()


def unfinished(run: Path) -> InventoryParams:
    """A scan that waits for a second look."""
    (run / "step-00000005" / "rank-00001-of-00002.safetensors").unlink()
    return InventoryParams(root=str(run), settle_seconds=60)


def started(params: InventoryParams, control: JobControl, ended: list[BaseException]) -> threading.Thread:
    def work() -> None:
        try:
            run_apart(params, control)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.fixture
def pids(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of the processes that were started."""
    seen: list[int] = []
    plain_spawn = scan_process._spawn

    def spawn(*arguments: object) -> subprocess.Popen[bytes]:
        process = plain_spawn(*arguments)  # type: ignore[arg-type]
        seen.append(process.pid)
        return process

    monkeypatch.setattr(scan_process, "_spawn", spawn)
    return seen


def test_it_finds_what_this_process_would_and_may_use_more_processors(run: Path, pids: list[int]) -> None:
    here = run_inventory(InventoryParams(root=str(run)))
    assert plain(run_apart(InventoryParams(root=str(run)), JobControl())) == plain(here)
    assert len(os.listdir(f"/proc/{kept_pid()}/task")) == 1, "a process with threads must not fork"
    assert os.getpriority(os.PRIO_PROCESS, kept_pid()) > os.getpriority(os.PRIO_PROCESS, os.getpid())
    assert plain(run_apart(InventoryParams(root=str(run)), JobControl())) == plain(here)
    assert len(pids) == 1, "it is kept for the next scan"


def test_its_progress_and_notes_come_through_and_its_cache_is_kept(run: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    cache = tmp_path / "cache.sqlite3"
    for _ in range(2):
        run_apart(InventoryParams(root=str(run)), JobControl(), cache_file=cache, note=notes.append)
    # Files this young are read again each time.
    assert notes == ["0 of 5 checkpoints lay as they were known"] * 2 and cache.exists()


def test_a_root_that_is_not_there_is_told_as_here_and_the_process_goes_on(run: Path, pids: list[int]) -> None:
    with pytest.raises(RootUnreadable) as there:
        run_apart(InventoryParams(root=str(run / "gone")), JobControl())
    with pytest.raises(RootUnreadable) as here:
        run_inventory(InventoryParams(root=str(run / "gone")))
    assert (str(there.value), there.value.hint, there.value.is_missing) == (
        str(here.value),
        here.value.hint,
        here.value.is_missing,
    )
    run_apart(InventoryParams(root=str(run)), JobControl())
    assert len(pids) == 1


def test_a_scan_that_is_cancelled_ends_at_once_with_its_process(run: Path, pids: list[int]) -> None:
    stop, ended, moved = threading.Event(), list[BaseException](), threading.Event()
    control = JobControl(cancel=stop, tell=lambda _counts: moved.set())
    thread = started(unfinished(run), control, ended)
    assert moved.wait(20)
    stop.set()
    thread.join(20)
    assert [type(error) for error in ended] == [Cancelled] and not is_there(pids[0])


def test_a_process_that_is_killed_is_told_and_the_next_scan_has_another(run: Path, pids: list[int]) -> None:
    ended, moved = list[BaseException](), threading.Event()
    thread = started(unfinished(run), JobControl(tell=lambda _counts: moved.set()), ended)
    assert moved.wait(20)
    os.kill(pids[0], signal.SIGKILL)
    thread.join(20)
    assert [type(error) for error in ended] == [ScanEnded] and "signal 9" in str(ended[0])
    assert len(run_apart(InventoryParams(root=str(run), settle_seconds=0), JobControl()).checkpoints) == 5
    assert len(pids) == 2


def test_an_idle_process_that_was_killed_is_replaced(run: Path, pids: list[int]) -> None:
    run_apart(InventoryParams(root=str(run)), JobControl())
    os.kill(pids[0], signal.SIGKILL)
    assert eventually(lambda: KEPT._idle is not None and not KEPT._idle.is_alive)
    assert len(run_apart(InventoryParams(root=str(run)), JobControl()).checkpoints) == 5


def test_where_no_process_can_be_started_this_one_lists(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_there: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    notes: list[str] = []
    monkeypatch.setattr(scan_process, "_spawn", refuse)
    body = run_apart(InventoryParams(root=str(run)), JobControl(), note=notes.append)
    assert len(body.checkpoints) == 5 and notes == [
        "no process could be started to list in (Resource temporarily unavailable), so this one lists, on one processor"
    ]


@pytest.mark.slow
def test_it_ends_when_its_agent_is_killed_idle_or_in_the_middle_of_a_scan(run: Path) -> None:
    for params in (InventoryParams(root=str(run)), unfinished(run)):
        agent = subprocess.Popen(
            [sys.executable, "-c", _AGENT, str(run), str(params.settle_seconds)], stdout=subprocess.PIPE, text=True
        )
        assert agent.stdout is not None
        pid = int(agent.stdout.readline())
        assert is_there(pid)
        agent.kill()
        agent.wait()
        agent.stdout.close()
        assert eventually(lambda pid=pid: not is_there(pid)), "it outlived its agent"  # type: ignore[misc]


_AGENT = """
import sys, time
from muster_agent.jobs import scan_process
from muster_agent.jobs.control import JobControl
from muster_agent.protocol.wire import InventoryParams
def told(_counts):
    print(process._process.pid, flush=True)
process = scan_process.ScanProcess()
process.run(InventoryParams(root=sys.argv[1], settle_seconds=float(sys.argv[2])), JobControl(tell=told), None, print)
told({})
time.sleep(600)
"""
