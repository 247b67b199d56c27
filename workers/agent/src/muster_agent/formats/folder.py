"""Looking at one folder: sizes and times of its files, with links resolved once and trouble reported, never raised."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self

from muster_agent.formats.base import Finding
from muster_agent.formats.codes import finding
from muster_agent.formats.names import is_noise, is_text
from muster_agent.formats.tree import Opened, Tree


class PosixFile:
    """See `tree.Opened`. A FIFO or a device does not hang the opening, and is refused. An open descriptor may be given
    instead of a path; it is then this object's to close."""

    def __init__(self, path: str | int) -> None:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        self._descriptor: int | None = path if isinstance(path, int) else os.open(path, flags)
        seen = os.fstat(self._descriptor)
        if not stat.S_ISREG(seen.st_mode):
            self.close()
            raise OSError(errno.EINVAL, "not a regular file", path)
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PosixTree:
    """A mounted file system. See `tree.Tree`."""

    def look(self, path: str, root: str) -> Folder:
        return look(path, root)

    def open(self, path: str) -> Opened:
        return PosixFile(path)

    def take(self, folder: Folder, name: str) -> None:
        _take_named(folder, name)


POSIX = PosixTree()


class FileSeen(NamedTuple):
    size_bytes: int
    mtime_ns: int


@dataclass(slots=True)
class Folder:
    """One level of a folder. `files` are readable-looking regular files; `blocked` exist but could not be looked at, so
    they are never called missing; `links` are the names of entries that are symbolic links."""

    path: str
    root: str
    files: dict[str, FileSeen] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    links: set[str] = field(default_factory=set)
    blocked: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    listed: bool = True
    gone: bool = False
    mtime_ns: int | None = None
    tree: Tree = POSIX
    _subs: dict[str, Folder] = field(default_factory=dict)

    def sub(self, name: str) -> Folder:
        """The folder `name` in this one, looked at once. `name` must be one of `folders`."""
        if name not in self._subs:
            self._subs[name] = self.tree.look(os.path.join(self.path, name), self.root)
        return self._subs[name]

    def open(self, name: str) -> Opened:
        """The file `name` of this folder (or of a sub-folder, with `/`). Raises OSError."""
        return self.tree.open(os.path.join(self.path, name))

    def read(self, name: str, limit_bytes: int) -> bytes:
        """The first `limit_bytes` of the file `name`, fewer where it is shorter. Raises OSError."""
        with self.open(name) as opened:
            return opened.pread(min(limit_bytes, opened.size_bytes), 0)

    @property
    def newest_mtime_ns(self) -> int | None:
        """Of the files; of the folder itself while it is empty."""
        return max((seen.mtime_ns for seen in self.files.values()), default=self.mtime_ns)


def look(path: str, root: str) -> Folder:
    """List `path`. `root` is a resolved folder that links may not lead out of. Raises nothing."""
    folder = Folder(path, root)
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                _take(folder, entry)
        folder.mtime_ns = os.stat(path).st_mtime_ns
    except OSError as error:
        folder.listed = False
        folder.gone = error.errno in (errno.ENOENT, errno.ENOTDIR)
        folder.findings.append(trouble(error, path))
    folder.folders.sort()
    return folder


def reach(folder: Folder, name: str) -> None:
    """Take the promised file `name`, a safe relative path into a sub-folder, into `folder`'s files if it is there."""
    if "/" in name and name not in folder.files and name not in folder.blocked:
        folder.tree.take(folder, name)


def _take_named(folder: Folder, name: str) -> None:
    path = os.path.join(folder.path, name)
    try:
        if escapes(path, folder.root):
            folder.blocked.add(name)
            folder.findings.append(_escape(name, path))
            return
        seen = os.stat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        folder.blocked.add(name)
        folder.findings.append(_named(trouble(error, path), name))
        return
    if stat.S_ISREG(seen.st_mode):
        folder.files[name] = FileSeen(seen.st_size, seen.st_mtime_ns)


def trouble(error: OSError, path: str) -> Finding:
    """The finding for an operating-system error at `path`."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return finding(
            "permission_denied", path=path, detail=f"{path} may not be read by this user (uid {os.geteuid()})"
        )
    if error.errno in (errno.ELOOP, errno.ENOENT) and os.path.islink(path):
        return finding("link_broken", path=path, detail=_broken(path, error))
    reason = error.strerror or type(error).__name__
    return finding("listing_failed", path=path, detail=f"{path} could not be read: {reason}")


def _broken(path: str, error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "the symbolic link leads in a circle"
    return f"the symbolic link's target {os.readlink(path)!r} is not there"


def _take(folder: Folder, entry: os.DirEntry[str]) -> None:
    name = entry.name
    if is_noise(name):
        return
    if not is_text(name):
        folder.findings.append(
            finding("path_unsafe", path=ascii(name)[1:-1], detail="the file's name is not valid UTF-8")
        )
        return
    try:
        if entry.is_symlink():
            folder.links.add(name)
            if escapes(entry.path, folder.root):
                folder.blocked.add(name)
                folder.findings.append(_escape(name, entry.path))
                return
        seen = entry.stat()
    except OSError as error:
        folder.blocked.add(name)
        folder.findings.append(_named(trouble(error, entry.path), name))
        return
    if stat.S_ISDIR(seen.st_mode):
        folder.folders.append(name)
    elif stat.S_ISREG(seen.st_mode):
        folder.files[name] = FileSeen(seen.st_size, seen.st_mtime_ns)


def escapes(path: str, root: str) -> bool:
    """Whether `path`, with all links resolved, lies outside the resolved folder `root`."""
    real = os.path.realpath(path)
    return real != root and not real.startswith(root.rstrip("/") + "/")


def _escape(name: str, path: str) -> Finding:
    return finding("link_escapes_root", path=name, detail=f"the link leads to {os.path.realpath(path)}")


def _named(found: Finding, name: str) -> Finding:
    return finding(found.code, path=name, detail=found.detail)
