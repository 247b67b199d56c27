"""Small files of Muster's own beside a checkpoint: manifests and verdicts, on a file system or in a bucket."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tempfile
import time
from typing import Protocol

from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.places import bucket_and_prefix
from muster_agent.formats.tree import ARCHIVED
from muster_agent.storage.posix import open_to_read


class SmallFiles(Protocol):
    """Paths are absolute."""

    def is_folder(self, path: str) -> bool:
        """Raises OSError where that cannot be told."""
        ...

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """The whole file; None where it is larger than that, or no ordinary file. Raises OSError."""
        ...

    def replace(self, path: str, data: bytes, *, mode_like: str) -> None:
        """Write it so that readers see the old one, the new one or none, never a part; on a file system for whoever may
        read `mode_like`. Raises OSError, and leaves nothing behind then."""
        ...


_HALF_WRITTEN = re.compile(r"\.muster-[a-z0-9_]{8}\.tmp")
_SURELY_LEFT_SECONDS = 3600.0
"""Writing such a file takes seconds: one that is older was left by a process that was killed."""


def clear_half_written(folder: str, *, older_than_seconds: float) -> None:
    """Remove what a killed process left of `PosixFiles.replace` in this folder. Raises nothing: what cannot be removed
    is in nobody's way."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        left = [entry for entry in entries if _HALF_WRITTEN.fullmatch(entry.name)]
        for entry in left:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and time.time() - status.st_mtime >= older_than_seconds:
                    os.unlink(entry.path)


class PosixFiles:
    """See `SmallFiles`."""

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def read(self, path: str, max_bytes: int) -> bytes | None:
        with open(open_to_read(path), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            # By its size and not by the limit: a read asks for room for as much as it may bring.
            data = file.read(min(os.fstat(file.fileno()).st_size, max_bytes) + 1)
        return data if len(data) <= max_bytes else None

    def replace(self, path: str, data: bytes, *, mode_like: str) -> None:
        folder = os.path.dirname(os.path.abspath(path))
        clear_half_written(folder, older_than_seconds=_SURELY_LEFT_SECONDS)
        handle, temporary = tempfile.mkstemp(prefix=".muster-", suffix=".tmp", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                # mkstemp gives 0600; whoever may read the checkpoint must be able to read what lies beside it.
                # Where several files share a folder, nothing is there under the checkpoint's own name.
                like = mode_like if os.path.exists(mode_like) else folder
                os.fchmod(file.fileno(), os.stat(like).st_mode & 0o666 | 0o600)
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(folder)


POSIX_FILES = PosixFiles()


def _sync_folder(folder: str) -> None:
    with contextlib.suppress(OSError):  # some network file systems refuse to sync a folder; the rename stands anyway
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class BucketFiles:
    """See `SmallFiles`. What somebody else wrote since this one read the file, or found none, is not written over."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._read: dict[str, str] = {}
        """The ETag of each object that was read, by its path."""

    def is_folder(self, path: str) -> bool:
        bucket, prefix = bucket_and_prefix(path)
        return self._store.first(bucket, prefix) is not None

    def read(self, path: str, max_bytes: int) -> bytes | None:
        bucket, key = _key_of(path)
        seen = self._store.first(bucket, key)
        if seen is None or seen.key != key:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if seen.is_archived:
            raise OSError(ARCHIVED, "it lies in an archive class", path)
        self._read[path] = seen.etag
        if seen.size_bytes > max_bytes:
            return None
        return self._store.read(bucket, key, 0, seen.size_bytes, seen.etag)[0] if seen.size_bytes else b""

    def replace(self, path: str, data: bytes, *, mode_like: str) -> None:
        bucket, key = _key_of(path)
        known, there = self._read.get(path), ""
        if known is not None:
            seen = self._store.first(bucket, key)
            there = known if seen is not None else ""
            if seen is not None and (seen.key, seen.etag) != (key, known):
                raise FileExistsError(
                    errno.EEXIST, "somebody else wrote it meanwhile: look at it, then run again", path
                )
        self._read[path] = self._store.write(bucket, key, data, only_new=known is None, replaces=there)


def _key_of(path: str) -> tuple[str, str]:
    bucket, prefix = bucket_and_prefix(path)
    return bucket, prefix.removesuffix("/")
