from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from muster_agent.formats.storage_clock import storage_clock
from muster_agent.formats.verdict import AgeLimit

HOUR_NS = 3600 * 1_000_000_000
NOW = 1_800_000_000.0


def test_the_storage_is_asked_and_nothing_is_left_or_changed(tmp_path: Path) -> None:
    before = tmp_path.stat()
    clock = storage_clock(str(tmp_path))
    (tmp_path / "written").write_text("x")
    after = (tmp_path / "written").stat()
    assert clock.source == "storage"
    assert 0 <= after.st_mtime_ns / 1e9 - clock.unix_seconds < 5
    (tmp_path / "written").unlink()
    assert list(tmp_path.iterdir()) == []
    assert before.st_nlink == tmp_path.stat().st_nlink


def test_a_file_is_judged_by_the_clock_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert storage_clock(str(tmp_path / "file")).source == "storage"


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EROFS, errno.EACCES, errno.EISDIR, errno.ENOENT])
def test_where_it_cannot_be_asked_the_local_clock_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_args: object, **_options: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    assert storage_clock(str(tmp_path)).source == "local"


def test_a_local_clock_that_is_behind_learns_from_what_the_storage_wrote() -> None:
    written_ns = int(NOW * 1e9) + HOUR_NS
    limit = AgeLimit(NOW, 600, may_learn=True)
    assert not limit.is_recent(written_ns)
    limit.learn(written_ns)
    assert limit.is_recent(written_ns)
    assert not limit.is_recent(int(NOW * 1e9))


def test_a_time_that_no_clock_shows_is_not_learned_from() -> None:
    limit = AgeLimit(NOW, 600, may_learn=True)
    limit.learn(int(NOW * 1e9) + 48 * HOUR_NS)
    assert limit.is_recent(int(NOW * 1e9))


def test_the_storages_own_clock_needs_no_learning() -> None:
    limit = AgeLimit(NOW, 600)
    limit.learn(int(NOW * 1e9) + HOUR_NS)
    assert limit.is_recent(int(NOW * 1e9))
