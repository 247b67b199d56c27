"""One process's spool on disk: JSON lines, appended and flushed at once, in parts that stay small."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from muster_agent.hooks.paths import WriterName, default_directory, spool_name

PART_BYTES = 8 * 1024 * 1024
MAX_PARTS = 8
"""Parts of one writer that may wait for an agent; a run without an agent must not fill the disk."""


class SpoolFull(OSError):
    """The parts that no agent fetched have reached their bound."""


class SpoolFile:
    """Appends lines. Every method may raise OSError; the next `append` tries again from a clean state.

    The open part is flocked for as long as its writer lives, so that a reader knows that more may come, also where
    the writer's pid means nothing to it (another pid namespace).
    """

    def __init__(self, directory: Path, writer: WriterName, *, part_bytes: int = PART_BYTES) -> None:
        self._directory = directory
        self._writer = writer
        self._part_bytes = part_bytes
        self._next_part = 0
        self._descriptor: int | None = None
        self._size_bytes = 0
        self._torn = False

    def append(self, line: bytes) -> None:
        """Write one whole line in one write. A line that a full disk cut short is closed off by the next one."""
        descriptor = self._open_part(len(line))
        data = (b"\n" if self._torn else b"") + line
        written = os.write(descriptor, data)
        self._size_bytes += written
        if written != len(data):
            self._torn = True
            raise OSError(errno.ENOSPC, "the record was written in part")
        self._torn = False

    def close(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._descriptor = None

    def _open_part(self, line_bytes: int) -> int:
        if self._descriptor is not None and (self._is_full(line_bytes) or self._is_unlinked(self._descriptor)):
            self.close()
        if self._descriptor is None:
            self._descriptor = self._create_part()
        return self._descriptor

    def _is_full(self, line_bytes: int) -> bool:
        return self._size_bytes > 0 and self._size_bytes + line_bytes > self._part_bytes

    def _is_unlinked(self, descriptor: int) -> bool:
        """Somebody tidied the folder up: what is appended now would be seen by nobody."""
        return os.fstat(descriptor).st_nlink == 0

    def _create_part(self) -> int:
        self._prepare_directory()
        waiting = [name for name in os.listdir(self._directory) if f"-{self._writer.source}-" in name]
        if len(waiting) >= MAX_PARTS:
            raise SpoolFull(errno.EDQUOT, f"{len(waiting)} files wait for an agent", str(self._directory))
        path = self._directory / spool_name(self._writer, self._next_part)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o640)
        # Some file systems have no locks; the reader then goes by the pid alone.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._next_part += 1
        self._size_bytes = 0
        self._torn = False
        return descriptor

    def _prepare_directory(self) -> None:
        """Make the folder where only its last component is missing. Under the default name, in the folder that all
        users share for temporary files, another user may have planted one: that must not collect our records."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._directory, 0o700)
        if self._directory == default_directory() and os.lstat(self._directory).st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "the hook folder belongs to another user", str(self._directory))
