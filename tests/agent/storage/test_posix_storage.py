"""Shards on a mounted file system."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from muster_agent.probes.page_cache import cached_ratio, evict
from muster_agent.reload.buffers import BufferRing
from muster_agent.storage import posix
from muster_agent.storage.posix import PathUnsafe, PosixShard, locate


def read_all(shard: PosixShard, block_bytes: int = 8192) -> bytes:
    ring = BufferRing(1, block_bytes)
    pieces = []
    with ring.lend() as buffer:
        for offset in range(0, shard.size_bytes + 1, block_bytes):
            count = shard.read_into(buffer, offset, block_bytes)
            pieces.append(bytes(buffer[:count]))
    ring.close()
    return b"".join(pieces)


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("size", [0, 1, 511, 4096, 8192, 10_000, 16_384 + 487])
def test_every_byte_comes_back_whatever_the_length(tmp_path: Path, direct: bool, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "a").write_bytes(data)
    shard = PosixShard(str(tmp_path / "a"), direct=direct)
    assert read_all(shard) == data
    assert shard.direct_bytes + shard.buffered_bytes == size
    shard.close()
    shard.close()


def test_a_file_system_without_direct_reads_falls_back_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refuse(path: str, flags: int, *rest: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags, *rest)

    monkeypatch.setattr(posix.os, "open", refuse)
    data = os.urandom(20_000)
    (tmp_path / "a").write_bytes(data)
    shard = PosixShard(str(tmp_path / "a"), direct=True)
    assert read_all(shard) == data
    assert (shard.direct_bytes, shard.buffered_bytes) == (0, 20_000)
    shard.close()


def test_a_file_system_that_refuses_the_direct_read_itself_falls_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(20_000)
    (tmp_path / "a").write_bytes(data)
    shard = PosixShard(str(tmp_path / "a"), direct=True)
    direct_fd, real = shard._direct_fd, os.preadv

    def refuse(fd: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
        if fd == direct_fd:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(fd, buffers, offset, flags)

    monkeypatch.setattr(posix.os, "preadv", refuse)
    assert read_all(shard) == data
    assert (shard.direct_bytes, shard.buffered_bytes) == (0, 20_000)
    shard.close()


def test_a_read_that_may_not_go_around_the_page_cache_leaves_nothing_there_where_the_kernel_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posix, "_open_direct", lambda _path: None)
    data = os.urandom(2_000_000)
    file = tmp_path / "a"
    file.write_bytes(data)
    shard = PosixShard(str(file), direct=True)
    os.sync()
    evict([str(file)])
    if cached_ratio([str(file)]) != 0.0:
        pytest.skip("the page cache of this file system cannot be emptied")
    assert read_all(shard, 1 << 20) == data
    assert shard.buffered_bytes == len(data) and shard.dropped_bytes in (0, len(data))
    if shard.dropped_bytes:
        assert (cached_ratio([str(file)]) or 0.0) < 0.2
    shard.close()


def test_a_kernel_that_does_not_know_the_flag_gets_an_ordinary_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.preadv

    def older(fd: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real(fd, buffers, offset)

    monkeypatch.setattr(posix, "_open_direct", lambda _path: None)
    monkeypatch.setattr(posix.os, "preadv", older)
    data = os.urandom(20_000)
    (tmp_path / "a").write_bytes(data)
    shard = PosixShard(str(tmp_path / "a"), direct=True)
    assert read_all(shard) == data
    assert (shard.buffered_bytes, shard.dropped_bytes) == (20_000, 0)
    shard.close()


def test_short_counts_amid_the_file_stay_around_the_page_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.preadv

    def short(fd: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
        return real(fd, [buffers[0][:8192]], offset, flags) - 512 if fd == direct_fd else real(fd, buffers, offset)

    data = os.urandom(40_000)
    (tmp_path / "a").write_bytes(data)
    shard = PosixShard(str(tmp_path / "a"), direct=True)
    direct_fd = shard._direct_fd
    if direct_fd is None:
        pytest.skip("this file system refuses O_DIRECT")
    monkeypatch.setattr(posix.os, "preadv", short)
    assert read_all(shard, 32_768) == data
    assert shard.direct_bytes > 30_000
    shard.close()


def test_an_input_output_error_is_raised_and_not_taken_for_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "a").write_bytes(b"x" * 8192)
    shard = PosixShard(str(tmp_path / "a"), direct=True)
    monkeypatch.setattr(posix.os, "preadv", fail)
    with pytest.raises(OSError, match="Input/output"):
        shard.read_into(memoryview(bytearray(8192)), 0, 8192)
    shard.close()


def test_what_is_no_file_is_refused_without_hanging(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("fifo", "."):
        with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
            PosixShard(str(tmp_path / name), direct=False)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/../../b", "", "a\0b"])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PathUnsafe):
        locate(str(tmp_path), name)


def test_a_single_file_is_its_own_shard(tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    file.write_bytes(b"x")
    assert locate(str(file), "m.safetensors") == str(file)
    assert locate(str(tmp_path), "m.safetensors") == str(file)
