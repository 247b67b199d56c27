"""A scan that remembers finds exactly what a full scan finds, whatever happened to the files or to the cache."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from muster_agent.formats import finder
from muster_agent.formats.base import Status
from muster_agent.formats.walk import Inventory, inventory
from muster_agent.jobs import scan_cache
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.jobs.scan_cache import ScanCache

from tests.agent.checkpoint_factory import write_checkpoint

NOW = time.time() + 3600
"""One moment for all scans of a test, since what is said of a save that was abandoned tells its age."""
DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run-a"
    for step in (10, 20, 30):
        write_checkpoint(folder, step, rank_bytes=300, world_size=2)
    shutil.copytree(DATA, folder / "samples")
    return folder


@pytest.fixture
def cache_file(tmp_path: Path) -> Path:
    return tmp_path / "cache.sqlite3"


def scan(root: Path, cache_file: Path, **options: bool) -> Inventory:
    with ScanCache(cache_file, str(root), **options) as cache:
        found = inventory(root, grace_seconds=0, now_unix_seconds=NOW, memory=cache)
        cache.finish()
        return found


def same(one: Inventory, other: Inventory) -> bool:
    return (one.checkpoints, one.findings, one.pointers) == (other.checkpoints, other.findings, other.pointers)


def full(root: Path) -> Inventory:
    return inventory(root, grace_seconds=0, now_unix_seconds=NOW)


def remembered(cache_file: Path) -> int:
    with sqlite3.connect(cache_file) as connection:
        return int(connection.execute("SELECT count(*) FROM found").fetchone()[0])


def test_what_is_unchanged_is_not_opened_again(run: Path, cache_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = scan(run, cache_file)
    whole = [one for one in first.checkpoints if one.status is Status.COMPLETE]
    opened: list[str] = []
    monkeypatch.setattr(finder, "begin_folder", lambda folder, *_, **__: opened.append(folder.path))
    again = scan(run, cache_file)
    assert again.unchanged >= len(whole) > 3
    assert not {one.path for one in whole} & set(opened)


def test_a_second_scan_finds_the_same_on_every_sample(run: Path, cache_file: Path) -> None:
    expected = full(run)
    assert same(scan(run, cache_file), expected)
    assert same(scan(run, cache_file), expected)


def _rewrite(path: Path) -> None:
    """Other bytes of the same size, with the time of change set back."""
    seen = path.stat()
    path.write_bytes(bytes(seen.st_size))
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def _swap(path: Path) -> None:
    other = path.with_name(path.name.replace("00000-of", "00001-of"))
    path.rename(path.with_name("aside"))
    other.rename(path)
    path.with_name("aside").rename(other)


CHANGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: os.truncate(path, 100),
    "grown": lambda path: path.open("ab").write(b"x"),
    "deleted": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
    "rewritten with size and time kept": _rewrite,
    "swapped with another": _swap,
    "replaced by a folder": lambda path: (path.unlink(), path.mkdir()),
    "replaced by a broken link": lambda path: (path.unlink(), path.symlink_to("nowhere")),
    "joined by another": lambda path: path.with_name("rank-00009-of-00002.safetensors").write_bytes(b"x"),
    "renamed": lambda path: path.rename(path.with_name("else")),
    "its folder renamed": lambda path: path.parent.rename(path.parent.with_name("step-77")),
    "its folder deleted": lambda path: shutil.rmtree(path.parent),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_after_every_kind_of_change_it_finds_what_a_full_scan_finds(
    run: Path, cache_file: Path, change: Callable[[Path], object]
) -> None:
    scan(run, cache_file)
    change(run / "step-00000020" / "rank-00000-of-00002.safetensors")
    expected = full(run)
    found = scan(run, cache_file)
    assert same(found, expected)
    assert 0 < found.unchanged < len(expected.checkpoints) + 1
    assert same(scan(run, cache_file), expected)


def test_unfinished_and_young_checkpoints_are_read_every_time(run: Path, cache_file: Path) -> None:
    (run / "step-00000010" / "rank-00000-of-00002.safetensors").unlink()
    scan(run, cache_file)
    with sqlite3.connect(cache_file) as connection:
        paths = {path for (path,) in connection.execute("SELECT path FROM found")}
    assert str(run / "step-00000010") not in paths
    assert str(run / "step-00000020") in paths
    with ScanCache(cache_file, str(run)) as cache:
        assert inventory(run, memory=cache, grace_seconds=3600).checkpoints
    assert remembered(cache_file) == len(paths), "nothing young was added"


def test_what_is_gone_is_forgotten(run: Path, cache_file: Path) -> None:
    scan(run, cache_file)
    before = remembered(cache_file)
    shutil.rmtree(run / "step-00000030")
    scan(run, cache_file)
    assert remembered(cache_file) == before - 1


def test_two_roots_do_not_disturb_each_other(run: Path, cache_file: Path) -> None:
    scan(run, cache_file)
    before = remembered(cache_file)
    assert scan(run / "samples" / "dcp", cache_file).unchanged == 0
    assert remembered(cache_file) > before
    assert scan(run, cache_file).unchanged == before


def test_reading_again_can_be_asked_for(run: Path, cache_file: Path) -> None:
    scan(run, cache_file)
    assert scan(run, cache_file, recalls=False).unchanged == 0
    assert scan(run, cache_file).unchanged > 0


def test_a_killed_scan_goes_on_where_it_was(run: Path, cache_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_cache, "FLUSH_COUNT", 1)
    stop = threading.Event()
    control = JobControl(progress=lambda _phase, done, _all: stop.set() if done == 6 else None, cancel=stop)
    cache = ScanCache(cache_file, str(run))
    with pytest.raises(Cancelled):
        inventory(run, grace_seconds=0, memory=cache, control=control)
    # No close: the process was killed.
    kept = remembered(cache_file)
    assert kept >= 1
    found = scan(run, cache_file)
    assert found.unchanged == kept
    assert same(found, full(run))


def test_other_readers_read_everything_again(run: Path, cache_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan(run, cache_file)
    monkeypatch.setattr(scan_cache, "readers_version", lambda: "another")
    assert scan(run, cache_file).unchanged == 0
    assert scan(run, cache_file).unchanged > 0


@pytest.mark.parametrize("length", [0, 1, 100, 4096, 10_000])
def test_a_damaged_cache_is_told_and_hides_nothing(run: Path, cache_file: Path, length: int) -> None:
    expected = full(run)
    scan(run, cache_file)
    data = bytearray(cache_file.read_bytes())
    data[length : length + 3000] = b"\xa5" * 3000
    cache_file.write_bytes(data[: max(length * 2, 50)] if length else data)
    with ScanCache(cache_file, str(run)) as cache:
        assert same(inventory(run, grace_seconds=0, now_unix_seconds=NOW, memory=cache), expected)
        cache.finish()
        assert cache.trouble is not None
    scan(run, cache_file, replace_damaged=True)
    assert scan(run, cache_file, replace_damaged=True).unchanged > 0


def test_a_remembered_result_that_rotted_is_read_again(run: Path, cache_file: Path) -> None:
    scan(run, cache_file)
    with sqlite3.connect(cache_file) as connection:
        connection.execute("UPDATE found SET body = replace(body, x'73746570', x'73746571')")
    found = scan(run, cache_file)
    assert found.unchanged == 0
    assert same(found, full(run))


@pytest.mark.parametrize("content", [b"my notes\n" * 1000, b"x", None])
def test_a_file_that_is_no_cache_is_left_alone(run: Path, cache_file: Path, content: bytes | None) -> None:
    if content is None:
        with sqlite3.connect(cache_file) as connection:
            connection.execute("CREATE TABLE mine (a)")
        connection.close()
    else:
        cache_file.write_bytes(content)
    before = cache_file.read_bytes()
    with ScanCache(cache_file, str(run)) as cache:
        assert inventory(run, grace_seconds=0, memory=cache).checkpoints
        assert cache.trouble is not None
    assert cache_file.read_bytes() == before


def test_a_cache_that_cannot_be_opened_is_told(run: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "none" / "file", tmp_path / "pipe"):
        with ScanCache(place, str(run)) as cache:
            assert len(inventory(run / "step-00000010", memory=cache).checkpoints) == 1
            assert cache.trouble is not None and str(place) in cache.trouble


def test_another_writer_costs_the_memory_of_this_scan_only(
    run: Path, cache_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_cache, "WAIT_SECONDS", 0.05)
    scan(run, cache_file)
    expected = full(run)
    other = sqlite3.connect(cache_file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    (run / "step-00000010" / "note.txt").write_text("x")
    assert same(scan(run, cache_file), full(run))
    other.execute("ROLLBACK")
    other.close()
    assert len(scan(run, cache_file).checkpoints) == len(expected.checkpoints)


def test_two_scans_at_once_share_a_cache(run: Path, cache_file: Path) -> None:
    expected = full(run)
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.append(same(scan(run, cache_file), expected))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


def test_the_cache_is_readable_by_its_owner_only(run: Path, cache_file: Path) -> None:
    scan(run, cache_file)
    assert cache_file.stat().st_mode & 0o077 == 0
