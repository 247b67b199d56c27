"""One read for many ranks of a host: real processes that attach the same memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from muster_agent.cli import main
from muster_agent.jobs.reload import prepare
from muster_agent.jobs.seal import seal
from muster_agent.protocol.wire import ReloadParams
from muster_agent.reload import shared
from muster_agent.reload.plan import Extent
from muster_agent.reload.shared import NotShared, SharedArena, deliver

from tests.agent.checkpoint_factory import write_checkpoint

MIB = 1 << 20


def _filled(sizes: list[int]) -> SharedArena:
    arena = SharedArena(sizes)
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
