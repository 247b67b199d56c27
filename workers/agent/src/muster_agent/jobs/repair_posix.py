"""Repairing files in place: what is bad is overwritten, a tail that is missing is written last of all."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable

from muster_agent.jobs.copy_trouble import CopyTrouble, target_trouble
from muster_agent.jobs.failpoints import failpoint
from muster_agent.jobs.repair import BadFile, GoodCopy, Save
from muster_agent.manifest.model import Manifest


class PosixRepair:
    """See `RepairTarget`."""

    def write(self, file: BadFile, good: GoodCopy, save: Save, check: Callable[[], None]) -> int:
        """See `RepairTarget.write`. A file whose size is right by its name alone is whole only once its last chunk is
        written, after all before it are durable: until then it is as short as it was."""
        sealed = good.sealed(file.path)
        try:
            fd = _open(file)
            try:
                if not file.is_touched:
                    file.is_touched = True
                    save()
                failpoint("repair.noted")
                written = self._chunks(fd, file, good, check)
                os.ftruncate(fd, sealed.size_bytes)
                os.fsync(fd)
                os.utime(fd, ns=(sealed.mtime_ns, sealed.mtime_ns))
                os.fsync(fd)
            finally:
                os.close(fd)
            _sync_folder(os.path.dirname(file.location))
        except OSError as error:
            raise target_trouble(error, file.location) from error
        return written

    def _chunks(self, fd: int, file: BadFile, good: GoodCopy, check: Callable[[], None]) -> int:
        written = 0
        while file.chunks:
            check()
            index = file.chunks[0]
            data = good.chunk(file.path, index, check)
            if len(file.chunks) == 1:
                os.fsync(fd)
            _write_all(fd, data, index * good.chunk_bytes)
            written += len(data)
            failpoint("repair.half")
            file.chunks.pop(0)
        return written

    def settle(self, manifest: Manifest) -> Manifest:
        """See `RepairTarget.settle`: sizes and times are as they were sealed."""
        return manifest


def _open(file: BadFile) -> int:
    """The file that was surveyed, or a new one where it was missing. Raises CopyTrouble where it is another one now."""
    if os.path.islink(file.location):
        told = f"{file.location} is a link; repair what it leads to by hand"
        raise CopyTrouble("links", told)
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    if file.found_bytes is None:
        os.makedirs(os.path.dirname(file.location), exist_ok=True)
        like = os.stat(os.path.dirname(file.location)).st_mode & 0o666
        return os.open(file.location, flags | os.O_CREAT | (0 if file.is_touched else os.O_EXCL), like)
    fd = os.open(file.location, flags)
    seen = os.fstat(fd)
    same = stat.S_ISREG(seen.st_mode) and (seen.st_size, seen.st_mtime_ns) == (file.found_bytes, file.mtime_ns)
    if not same and not file.is_touched:
        os.close(fd)
        raise CopyTrouble("target_changed", f"{file.location} changed since its damage was found; nothing was written")
    return fd


def _write_all(fd: int, data: bytes, offset_bytes: int) -> None:
    left = memoryview(data)
    while left:
        count = os.pwrite(fd, left, offset_bytes)
        left, offset_bytes = left[count:], offset_bytes + count


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some network file systems refuse to sync a folder
            os.fsync(fd)
    finally:
        os.close(fd)
