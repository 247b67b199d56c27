"""Looking at one folder: sizes and times of its files, with links resolved once and trouble reported, never raised."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import msgspec

from muster_agent.formats.ahead import bring_ends, in_turn
from muster_agent.formats.base import Finding
from muster_agent.formats.codes import finding
from muster_agent.formats.fence import require_inside
from muster_agent.formats.names import is_noise, is_ours, is_text
from muster_agent.formats.places import is_bucket, lies_in, resolved
from muster_agent.formats.posix_file import PosixFile, special_kind
from muster_agent.formats.tree import ARCHIVED, Opened, Tree
from muster_agent.probes.filesystem import made_up_by_the_kernel

CHECK_ENTRIES = 4096


def _go_on() -> None:
    return


class PosixTree:
    """A mounted file system. See `tree.Tree`. `check` is called every few thousand entries, and may raise to end the
    listing of a huge folder."""

    def __init__(self, check: Callable[[], None] = _go_on) -> None:
        self.check = check

    def look(self, path: str, root: str) -> Folder:
        return look(path, root, self)

    def open(self, path: str) -> Opened:
        return PosixFile(path)

    def ahead(self, paths: Iterable[str]) -> Iterator[str]:
        return in_turn(paths, bring_ends)

    def take(self, folder: Folder, name: str) -> None:
        _take_named(folder, name)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def stamp(self, path: str) -> FileSeen | None:
        try:
            return seen_of(os.stat(path))
        except OSError:
            return None


POSIX = PosixTree()


class FileSeen(NamedTuple):
    """One file as a listing shows it. Names with equal (`device`, `inode`) share their bytes; `inode` is 0 where the
    storage has none."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int = 0
    inode: int = 0
    device: int = 0
    link_count: int = 1


def seen_of(status: os.stat_result) -> FileSeen:
    """What a listing shows of a file with this status."""
    return FileSeen(
        status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev, status.st_nlink
    )


@dataclass(slots=True)
class Folder:
    """One level of a folder. `files` are readable-looking regular files; `blocked` exist but could not be looked at, so
    they are never called missing; `links` are the names of entries that are symbolic links; `own` are Muster's own
    files, which are no part of a checkpoint. `identities` tells a sub-folder that is reached twice."""

    path: str
    root: str
    files: dict[str, FileSeen] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    links: set[str] = field(default_factory=set)
    blocked: set[str] = field(default_factory=set)
    targets: dict[str, str] = field(default_factory=dict)
    """What the links among `blocked` say, by their names."""
    special: dict[str, str] = field(default_factory=dict)
    """Pipes, sockets and devices, which are never opened: what each is, by name."""
    own: set[str] = field(default_factory=set)
    identities: dict[str, tuple[int, int]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    listed: bool = True
    gone: bool = False
    mtime_ns: int | None = None
    tree: Tree = POSIX
    subs: dict[str, Folder] = field(default_factory=dict)
    """The sub-folders that were looked at, by name."""
    reached: dict[str, FileSeen | None] = field(default_factory=dict)
    """Files of sub-folders that were asked for by name, as they lay before any of them was opened."""
    archived: set[str] = field(default_factory=set)
    """Those of `files` that must be restored from an archive before they can be read."""
    uploads: dict[str, int] = field(default_factory=dict)
    """When uploads of files in it, also deeper, were begun (ns) that have not ended, by relative path."""

    def sub(self, name: str) -> Folder:
        """The folder `name` in this one, looked at once. `name` must be one of `folders`."""
        if name not in self.subs:
            self.subs[name] = self.tree.look(os.path.join(self.path, name), self.root)
        return self.subs[name]

    def open(self, name: str) -> Opened:
        """The file `name` of this folder (or of a sub-folder, with `/`). Raises OSError."""
        if "/" in name and name not in self.reached:
            self.reached[name] = self.tree.stamp(os.path.join(self.path, name))
        return self.tree.open(os.path.join(self.path, name))

    def ahead(self, names: Iterable[str]) -> Iterator[str]:
        """The names in their order, for a loop that opens each: see `Tree.ahead`. Nothing but `files` is touched."""
        listed = list(names)
        known = {name for name in listed if name in self.files}
        near = iter(self.tree.ahead([os.path.join(self.path, name) for name in listed if name in known]))
        for name in listed:
            if name in known:
                next(near)
            yield name

    def read(self, name: str, limit_bytes: int) -> bytes:
        """The first `limit_bytes` of the file `name`, fewer where it is shorter. Raises OSError."""
        with self.open(name) as opened:
            return opened.pread(min(limit_bytes, opened.size_bytes), 0)

    def ends(self, names: Iterable[str], length_bytes: int) -> Iterator[tuple[str, int, bytes, bytes]]:
        """(name, size, first four bytes, last `length_bytes` bytes) of those of the `files` that are as they were
        listed and have no holes; others are left out, and so are all where the storage has no quick way. Raises
        nothing."""
        return _ends(self, names, length_bytes) if isinstance(self.tree, PosixTree) else iter(())

    @property
    def newest_mtime_ns(self) -> int | None:
        """Of the files, also in sub-folders that were looked at; of the folder itself while there are none."""
        return max(self._file_times(), default=self.mtime_ns)

    def _file_times(self) -> Iterator[int]:
        yield from (seen.mtime_ns for seen in self.files.values())
        yield from (seen.mtime_ns for seen in self.reached.values() if seen is not None)
        for sub in self.subs.values():
            yield from sub._file_times()

    def seen(self, path: str) -> FileSeen | None:
        """The file at the relative `path`, also in a sub-folder that was looked at."""
        found = self.files.get(path) or self.reached.get(path)
        if found is None and "/" in path:
            name, _, rest = path.partition("/")
            return self.subs[name].seen(rest) if name in self.subs else None
        return found

    def is_archived(self, path: str) -> bool:
        """Whether the file at the relative `path`, also in a sub-folder that was looked at, lies in an archive."""
        if path in self.archived:
            return True
        name, _, rest = path.partition("/")
        return bool(rest) and name in self.subs and self.subs[name].is_archived(rest)


_READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_HEAD_BYTES = 4


def _ends(folder: Folder, names: Iterable[str], length_bytes: int) -> Iterator[tuple[str, int, bytes, bytes]]:
    """As few system calls as can be: sizes were listed, and a file that has another one now shows by what is read."""
    try:
        descriptor = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    files, read = folder.files, os.pread
    try:
        for name in names:
            size_bytes = files[name].size_bytes
            begin = size_bytes - length_bytes if size_bytes > length_bytes else 0
            try:
                opened = os.open(name, _READ_FLAGS, dir_fd=descriptor)
            except OSError:
                continue
            try:
                require_inside(opened, name)
                tail = read(opened, size_bytes - begin + 1, begin)
                head = read(opened, _HEAD_BYTES, 0) if begin else tail[:_HEAD_BYTES]
                is_filled = os.lseek(opened, 0, os.SEEK_HOLE) >= size_bytes
            except OSError:
                continue
            finally:
                os.close(opened)
            if is_filled and len(tail) == size_bytes - begin:
                yield name, size_bytes, head, tail
    finally:
        os.close(descriptor)


def look(path: str, root: str, tree: PosixTree = POSIX) -> Folder:
    """List `path`. `root` is a resolved folder that links may not lead out of. Raises only what `tree.check` does."""
    folder = Folder(path, root, tree=tree)
    try:
        _list(folder, tree.check)
    except OSError as error:
        # A part of a listing would make what it lacks look missing.
        gone = error.errno in (errno.ENOENT, errno.ENOTDIR)
        folder = Folder(path, root, listed=False, gone=gone, tree=tree)
        folder.findings.append(trouble(error, path))
    folder.folders.sort()
    return folder


def _list(folder: Folder, check: Callable[[], None]) -> None:
    """Names are resolved from the open folder: shorter for the kernel, and the same folder even while one is renamed
    over it."""
    descriptor = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        own = os.fstat(descriptor)
        with os.scandir(descriptor) as entries:
            while batch := list(islice(entries, CHECK_ENTRIES)):
                _take(folder, batch, own.st_dev)
                check()
        if not folder.files:
            folder.mtime_ns = own.st_mtime_ns
    finally:
        os.close(descriptor)


def _take(folder: Folder, entries: list[os.DirEntry[str]], device: int) -> None:
    """The time of a scan goes here: ordinary files are nearly all there is, and take the short way through."""
    files = folder.files
    for entry in entries:
        name = entry.name
        special = name[0] in _SPECIAL_FIRST or name[-1] == _SPECIAL_LAST or not name.isascii()
        if special and _is_left_out(folder, name, entry):
            continue
        if entry.is_symlink() and not _take_link(folder, name):
            continue
        try:
            seen = entry.stat()
        except OSError as error:
            _take_trouble(folder, name, error)
            continue
        kind = seen.st_mode & _KIND
        if kind == _REGULAR:
            status = seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino, seen.st_dev, seen.st_nlink
            files[name] = _seen(FileSeen, status)
        elif kind == stat.S_IFDIR:
            if seen.st_dev != device and made_up_by_the_kernel(os.path.join(folder.path, name)):
                continue
            folder.folders.append(name)
            folder.identities[name] = seen.st_dev, seen.st_ino
        else:
            folder.special[name] = special_kind(kind)


_SPECIAL_FIRST, _SPECIAL_LAST = ".l", "n"
"""What every name that `is_noise` knows begins or ends with; a test holds the two together."""
_REGULAR = stat.S_IFREG
_KIND = 0o170000
_seen = tuple.__new__


def _is_left_out(folder: Folder, name: str, entry: os.DirEntry[str]) -> bool:
    if is_noise(name):
        if is_ours(name):
            folder.own.add(name)
        return True
    if is_text(name):
        return False
    shown = ascii(name)[1:-1]
    if entry.is_dir():
        detail = "the folder's name is not valid UTF-8, so it was not looked into"
        folder.findings.append(finding("listing_failed", path=shown, detail=detail, cure=_RENAME))
    else:
        detail = "the file's name is not valid UTF-8"
        folder.findings.append(finding("path_unsafe", path=shown, detail=detail, cure=_RENAME))
    return True


_RENAME = "Rename it in UTF-8 (`convmv` does so for whole trees), or name it itself as the path to look at."


def reach(folder: Folder, name: str) -> None:
    """Take the promised file `name`, a safe relative path into a sub-folder, into `folder`'s files if it is there."""
    if "/" in name and name not in folder.files and name not in folder.blocked:
        folder.tree.take(folder, name)
        folder.reached.setdefault(name, folder.files.get(name))


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
        folder.files[name] = seen_of(seen)
    elif not stat.S_ISDIR(seen.st_mode):
        folder.special[name] = special_kind(stat.S_IFMT(seen.st_mode))


def trouble(error: OSError, path: str) -> Finding:
    """The finding for an operating-system error at `path`."""
    if error.errno == ARCHIVED:
        return finding("archived", path=path, detail=f"{path} must be restored from the archive before it can be read")
    if is_bucket(path):
        return _bucket_trouble(error, path)
    if error.errno in (errno.EACCES, errno.EPERM):
        return finding(
            "permission_denied", path=path, detail=f"{path} may not be read by this user (uid {os.geteuid()})"
        )
    if error.errno in (errno.ELOOP, errno.ENOENT) and os.path.islink(path):
        return finding("link_broken", path=path, detail=_broken(path, error))
    reason = error.strerror or type(error).__name__
    return finding("listing_failed", path=path, detail=f"{path} could not be read: {reason}")


def _bucket_trouble(error: OSError, path: str) -> Finding:
    detail = f"{path} could not be read: {error.strerror or type(error).__name__}"
    if error.errno != errno.EACCES:
        cure = "Check the endpoint and the network, then run again; nothing is taken for gone."
        return finding("listing_failed", path=path, detail=detail, cure=cure)
    cure = "Use credentials that may read it, or give these s3:ListBucket and s3:GetObject."
    return finding("permission_denied", path=path, detail=detail, cure=cure)


def _broken(path: str, error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "the symbolic link leads in a circle"
    return f"the symbolic link's target {os.readlink(path)!r} is not there"


def _take_link(folder: Folder, name: str) -> bool:
    """Note a link; whether what it leads to may be looked at."""
    folder.links.add(name)
    path = os.path.join(folder.path, name)
    try:
        if not escapes(path, folder.root):
            return True
    except OSError as error:
        _take_trouble(folder, name, error)
        return False
    _take_target(folder, name)
    folder.blocked.add(name)
    folder.findings.append(_escape(name, path))
    return False


def _take_trouble(folder: Folder, name: str, error: OSError) -> None:
    """An entry that is gone by now was deleted while the folder was being listed, unless it is a broken link."""
    if error.errno == errno.ENOENT and name not in folder.links:
        return
    _take_target(folder, name)
    folder.blocked.add(name)
    folder.findings.append(_named(trouble(error, os.path.join(folder.path, name)), name))


def _take_target(folder: Folder, name: str) -> None:
    if name in folder.links:
        with contextlib.suppress(OSError):
            folder.targets[name] = os.readlink(os.path.join(folder.path, name))


def escapes(path: str, root: str) -> bool:
    """Whether `path`, with all links resolved, lies outside the resolved folder `root`."""
    return not lies_in(resolved(path), root)


def _escape(name: str, path: str) -> Finding:
    return finding("link_escapes_root", path=name, detail=f"the link leads to {os.path.realpath(path)}")


def _named(found: Finding, name: str) -> Finding:
    return finding(found.code, path=name, detail=found.detail)


def absolute(found: Finding, path: str) -> Finding:
    """A finding about a folder's entry, as one about a place of its own."""
    return found if found.path.startswith("/") else msgspec.structs.replace(found, path=os.path.join(path, found.path))
