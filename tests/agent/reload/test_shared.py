"""One read for many ranks of a host: real processes that attach the same memory."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from muster_agent.cli import main
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.host_ranks import share_among_ranks
from muster_agent.jobs.reload import prepare
from muster_agent.jobs.seal import seal
from muster_agent.protocol.wire import ReloadParams
from muster_agent.reload import shared
from muster_agent.reload.plan import Extent
from muster_agent.reload.shared import NotShared, SharedArena, deliver

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.reload.held import sized

MIB = 1 << 20


def _filled(sizes: list[int]) -> SharedArena:
    arena = SharedArena(sized(*sizes))
    for number, size in enumerate(sizes):
        arena.place(Extent(number, 0, size))[:size] = os.urandom(size)
    return arena


def test_every_rank_gets_every_byte_of_one_copy() -> None:
    arena = _filled([3 * MIB + 5, 0, 77])
    found = deliver(arena, 3)
    assert found["unique_bytes"] == 3 * MIB + 82
    assert found["delivered_bytes"] == 3 * found["unique_bytes"] and found["ranks"] == 3
    arena.close()
    arena.close()


def test_a_rank_that_sees_other_bytes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = _filled([MIB])
    monkeypatch.setattr(shared, "_digest", lambda *_: "0" * 16)
    with pytest.raises(NotShared, match="rank 0 sees other bytes than were read"):
        deliver(arena, 2)
    arena.close()


def test_a_rank_that_cannot_attach_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = _filled([MIB])
    monkeypatch.setattr(shared.sys, "executable", "/bin/false")
    with pytest.raises(NotShared, match="rank 0 could not attach"):
        deliver(arena, 1)
    arena.close()


def test_a_reload_reads_each_file_once_for_all_ranks(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "run", 1, world_size=2, rank_bytes=2 * MIB)
    assert seal(str(folder)).manifest is not None
    prepared = prepare(ReloadParams(path=str(folder), shards=(), resident=True, ranks_on_host=4))
    report = prepared.run().report
    found = report.evidence["shared"]
    assert report.verified is True and found["unique_bytes"] == report.bytes
    assert found["delivered_bytes"] == 4 * report.bytes
    prepared.close()


def test_the_command_says_what_was_read_and_what_was_delivered(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "run", 1, world_size=2, rank_bytes=MIB)
    result = CliRunner().invoke(main, ["reload", str(folder), "--ranks-on-host", "2"])
    assert result.exit_code == 0, result.output
    assert "read once" in result.stdout and "delivered to 2 ranks of this host" in result.stdout


def test_being_told_to_stop_ends_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    arena, control, started = _filled([MIB]), JobControl(), []
    popen = shared.subprocess.Popen

    def start_one_that_hangs(_command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(["/bin/sleep", "60"], **options))
        control.cancel()
        return started[-1]

    monkeypatch.setattr(shared.subprocess, "Popen", start_one_that_hangs)
    assert share_among_ranks(arena, 2, control)["shared"]["not_shared_because"].startswith("it was stopped")
    assert len(started) == 1 and started[0].poll() is not None
    arena.close()


def test_a_rank_that_cannot_be_started_is_named_and_the_others_end(monkeypatch: pytest.MonkeyPatch) -> None:
    arena, started = _filled([MIB]), []
    popen = shared.subprocess.Popen

    def only_one(_command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        if started:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        started.append(popen(["/bin/sleep", "60"], **options))
        return started[-1]

    monkeypatch.setattr(shared.subprocess, "Popen", only_one)
    with pytest.raises(NotShared, match="rank 1 could not be started: Resource temporarily unavailable"):
        deliver(arena, 2)
    assert started[0].poll() is not None
    arena.close()


def test_a_rank_ends_where_its_starter_is_gone() -> None:
    arena = _filled([MIB])
    nobody = subprocess.Popen(["/bin/true"])
    nobody.wait()
    places = json.dumps(arena.places())
    command = [sys.executable, "-m", shared.__name__, str(arena.fd), places, str(nobody.pid)]
    done = subprocess.run(command, pass_fds=[arena.fd], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (3, b"")
    arena.close()


def test_a_host_that_gives_no_shared_memory_says_so() -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, limits[1]))
    try:
        with pytest.raises(NotShared, match="gives no shared memory of"):
            SharedArena([Extent(0, 0, 8 * MIB)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
