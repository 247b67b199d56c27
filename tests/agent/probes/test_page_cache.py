"""Asking the kernel what it holds in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from muster_agent.probes import page_cache
from muster_agent.probes.filesystem import FileSystem, parse_magic, read_file_system
from muster_agent.probes.page_cache import cached_ratio, evict, why_unknown
from muster_agent.probes.process import parse_status

MIB = 1024 * 1024


@pytest.fixture
def file(tmp_path: Path) -> str:
    if not read_file_system(str(tmp_path)).uses_page_cache or read_file_system(str(tmp_path)).name == "tmpfs":
        pytest.skip("the folder for temporary files has no page cache that can be evicted")
    path = tmp_path / "data"
    path.write_bytes(os.urandom(4 * MIB))
    return str(path)


def test_a_fresh_file_is_cached_and_an_evicted_one_is_not(file: str) -> None:
    assert cached_ratio([file]) == 1.0
    evict([file])
    assert cached_ratio([file]) == 0.0


def test_the_share_is_of_all_bytes(file: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(os.urandom(12 * MIB))
    evict([file])
    assert cached_ratio([file, str(other)]) == pytest.approx(0.75)


def test_an_older_kernel_gives_the_same_answer_through_mincore(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_SYS_CACHESTAT", 100_000)
    assert cached_ratio([file]) == 1.0
    evict([file])
    assert cached_ratio([file]) == 0.0


def test_without_either_way_the_answer_is_unknown(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_SYS_CACHESTAT", 100_000)
    monkeypatch.setattr(page_cache.os, "access", lambda _path, _mode: False)
    assert cached_ratio([file]) is None


def test_a_cache_that_is_not_the_kernels_is_unknown(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "read_file_system", lambda _path: FileSystem("gpfs", False, True))
    assert cached_ratio([file]) is None


def test_it_says_why_the_share_is_unknown(file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert why_unknown([]) == "there are no bytes to measure" == why_unknown([str(tmp_path / "gone")])
    with monkeypatch.context() as patch:
        patch.setattr(page_cache, "read_file_system", lambda _path: FileSystem("gpfs", False, True))
        assert "(gpfs)" in why_unknown([file])
    monkeypatch.setattr(page_cache, "_SYS_CACHESTAT", 100_000)
    monkeypatch.setattr(page_cache.os, "access", lambda _path, _mode: False)
    assert "only to a user who may write" in why_unknown([file])

    def deny(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(page_cache, "_cached_pages", deny)
    assert why_unknown([file]) == "this user may not read data"


def test_missing_and_empty_files_count_for_nothing(file: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert cached_ratio([file, str(tmp_path / "gone"), str(tmp_path / "empty")]) == 1.0
    assert cached_ratio([str(tmp_path / "gone")]) is None
    evict([str(tmp_path / "gone"), str(tmp_path)])


@pytest.mark.parametrize(
    ("magic", "name", "uses_page_cache"),
    [
        (0xEF53, "ext4", True),
        (0x6969, "nfs", True),
        (0x0BD00BD0, "lustre", True),
        (0x65735546, "fuse", False),
        (0x47504653, "gpfs", False),
        (0xFFFFFFFFFF534D42, "cifs", True),
        (0x12345, "unknown (0x12345)", False),
    ],
)
def test_file_systems_are_known_by_their_magic(magic: int, name: str, uses_page_cache: bool) -> None:
    assert parse_magic(magic)[:2] == (name, uses_page_cache)


def test_a_path_that_is_not_there_has_an_unknown_file_system() -> None:
    assert read_file_system("/nonexistent/path").name == "unknown"


def test_memory_is_read_from_the_status_text() -> None:
    assert parse_status("Name:\tx\nVmHWM:\t  200 kB\nVmRSS:\t  100 kB\n") == (102_400, 204_800)
    assert parse_status("") == (0, 0)


def test_an_earlier_larger_peak_does_not_hide_this_one() -> None:
    # In a process of its own: a heap that grew earlier would give out memory that is resident already.
    script = """
from muster_agent.probes.process import PeakMemory
MIB = 1 << 20
big = bytearray(b"y") * (64 * MIB)
del big
memory = PeakMemory()
small = bytearray(b"x") * (16 * MIB)
print(memory.extra_bytes() // MIB)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert 14 <= int(done.stdout) < 48
