"""Shards on a mounted file system: names that stay inside the checkpoint, and reads that may bypass the page cache."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import PurePosixPath

from muster_agent.formats.fence import require_inside
from muster_agent.formats.names import family_folder

ALIGN_BYTES = 4096
RWF_DONTCACHE = 0x80  # Linux 6.14; not named in Python's os module: read through the page cache and leave nothing there


class PathUnsafe(OSError):
    """A shard's name leads out of its checkpoint, or cannot be a file name."""

    def __init__(self, shard_path: str) -> None:
        super().__init__(errno.EINVAL, "the name leads out of the checkpoint", shard_path)


def is_safe_name(shard_path: str) -> bool:
    """Whether a relative path stays inside its folder whatever the folder is (links are not followed here)."""
    path = PurePosixPath(shard_path)
    return bool(shard_path) and "\0" not in shard_path and not path.is_absolute() and ".." not in path.parts


def locate(checkpoint_path: str, shard_path: str) -> str:
    """The absolute path of a shard; a checkpoint that is one file is its own shard, and one that shares its folder with
    others has its files there. Raises PathUnsafe."""
    if not is_safe_name(shard_path):
        raise PathUnsafe(shard_path)
    together = family_folder(checkpoint_path)
    if together is not None and not os.path.lexists(checkpoint_path):
        return os.path.join(together, shard_path)
    if os.path.basename(checkpoint_path) == shard_path and os.path.isfile(checkpoint_path):
        return checkpoint_path
    return os.path.join(checkpoint_path, shard_path)


def stat_shard(path: str) -> tuple[int, int]:
    """(size in bytes, mtime in ns) of a regular file, links followed. Raises OSError, also for what is no file."""
    status = os.stat(path)
    _require_regular(path, status)
    return status.st_size, status.st_mtime_ns


class PosixShard:
    """An open file. With `direct`, reads bypass the page cache where the file system allows it and fall back to reads
    through it where it does not, which leave nothing there where the kernel can do that. `direct_bytes` and
    `buffered_bytes` say what really happened; `dropped_bytes` are those of the latter that left nothing."""

    def __init__(self, path: str, *, direct: bool) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._buffered_fd: int | None = None
        self._drops_behind = direct
        self._direct_fd = _open_direct(path) if direct else None
        try:
            status = os.fstat(self._direct_fd if self._direct_fd is not None else self._buffered())
            _require_regular(path, status)
        except OSError:
            self.close()
            raise
        self.size_bytes = status.st_size
        self.mtime_ns = status.st_mtime_ns
        self.inode = status.st_ino
        self.direct_bytes = 0
        self.buffered_bytes = 0
        self.dropped_bytes = 0

    def read_into(self, buffer: memoryview, offset_bytes: int, length_bytes: int) -> int:
        """See `ShardSource.read_into`."""
        done = self._read_direct(buffer, offset_bytes, length_bytes) if self._direct_fd is not None else 0
        direct = done
        while done < length_bytes:
            count = self._read_through_cache(buffer[done:length_bytes], offset_bytes + done)
            if count == 0:
                break
            done += count
        with self._lock:
            self.direct_bytes += min(direct, length_bytes)
            self.buffered_bytes += max(0, done - direct)
            self.dropped_bytes += max(0, done - direct) if self._drops_behind else 0
        return min(done, length_bytes)

    def _read_through_cache(self, view: memoryview, offset_bytes: int) -> int:
        if self._drops_behind:
            try:
                return os.preadv(self._buffered(), [view], offset_bytes, RWF_DONTCACHE)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise
                self._drops_behind = False
        return os.preadv(self._buffered(), [view], offset_bytes)

    def _read_direct(self, buffer: memoryview, offset_bytes: int, length_bytes: int) -> int:
        """Bytes read around the page cache; the rest (after an unaligned short count at the end of the file, or where
        the file system refuses) is left to the ordinary path, which knows the end for sure."""
        assert self._direct_fd is not None
        aligned = -(-length_bytes // ALIGN_BYTES) * ALIGN_BYTES
        done = 0
        while done < length_bytes and done % ALIGN_BYTES == 0:
            try:
                count = os.preadv(self._direct_fd, [buffer[done:aligned]], offset_bytes + done)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                return done
            if count == 0:
                break
            done += count
            if count > ALIGN_BYTES and done < length_bytes and offset_bytes + done < self.size_bytes:
                done -= done % ALIGN_BYTES  # a short count amid the file: the page it ended in is read again
        return done

    def _buffered(self) -> int:
        if self._buffered_fd is None:
            with self._lock:
                if self._buffered_fd is None:
                    self._buffered_fd = open_to_read(self.path)
        return self._buffered_fd

    def close(self) -> None:
        """See `ShardSource.close`."""
        for fd in (self._direct_fd, self._buffered_fd):
            if fd is not None:
                os.close(fd)
        self._direct_fd = self._buffered_fd = None


def open_to_read(path: str, flags: int = 0) -> int:
    """A descriptor of what lies inside the fence (`formats.fence`). Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    try:
        require_inside(fd, path)
    except OSError:
        os.close(fd)
        raise
    return fd


def _open_direct(path: str) -> int | None:
    try:
        return open_to_read(path, os.O_DIRECT)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return None
        raise


def _require_regular(path: str, status: os.stat_result) -> None:
    # A FIFO or a device would block or never end; O_NONBLOCK keeps the open itself from hanging on one.
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
