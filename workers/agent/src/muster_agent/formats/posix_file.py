"""One open file of a mounted file system."""

from __future__ import annotations

import errno
import os
import stat

from muster_agent.formats.fence import require_inside
from muster_agent.formats.tree import Opened


class PosixFile(Opened):
    """See `tree.Opened`. A FIFO or a device does not hang the opening, and is refused. An open descriptor may be given
    instead of a path; it is then this object's to close."""

    def __init__(self, path: str | int) -> None:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        self._descriptor: int | None = path if isinstance(path, int) else os.open(path, flags)
        seen = os.fstat(self._descriptor)
        try:
            if not stat.S_ISREG(seen.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
            require_inside(self._descriptor, str(path))
        except OSError:
            self.close()
            raise
        self.size_bytes = seen.st_size
        self._may_have_holes = seen.st_blocks * 512 < seen.st_size

    def fileno(self) -> int:
        assert self._descriptor is not None
        return self._descriptor

    def pread(self, length_bytes: int, offset_bytes: int) -> bytes:
        """See `tree.Opened.pread`."""
        parts: list[bytes] = []
        while length_bytes > 0:
            part = os.pread(self.fileno(), length_bytes, offset_bytes)
            if not part:
                break
            if not parts and len(part) == length_bytes:
                return part
            parts.append(part)
            length_bytes, offset_bytes = length_bytes - len(part), offset_bytes + len(part)
        return b"".join(parts)

    def hole(self) -> tuple[int, int] | None:
        """Block counts only hint (file systems compress), so the kernel is asked for the hole."""
        if not self._may_have_holes:
            return None
        try:
            begin = os.lseek(self.fileno(), 0, os.SEEK_HOLE)
        except OSError:
            return None
        if begin >= self.size_bytes:
            return None
        try:
            return begin, os.lseek(self.fileno(), begin, os.SEEK_DATA)
        except OSError:
            return begin, self.size_bytes

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None


def special_kind(kind: int) -> str:
    """What a directory entry of this kind (`S_IFMT`) is called that is neither a file, a folder nor a link."""
    return _SPECIAL_KINDS.get(kind, "special file")


_SPECIAL_KINDS = {
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}
