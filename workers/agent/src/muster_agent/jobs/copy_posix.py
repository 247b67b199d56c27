"""Copies on a mounted file system: written beside their place under a name that nobody reads, then renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from muster_agent.formats.root import RootUnreadable, check_folder, check_mount
from muster_agent.jobs.checkpoint_place import PosixPlace
from muster_agent.jobs.chunks import ReadingPass, StatedShard, read_shards
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.copy_target import Stat
from muster_agent.jobs.copy_trouble import CopyTrouble, target_trouble
from muster_agent.jobs.failpoints import failpoint
from muster_agent.manifest import beside
from muster_agent.manifest.model import Manifest, manifest_id
from muster_agent.protocol.copies import CopiedFile, CopyCursor, CopyOrder
from muster_agent.reload.plan import BLOCK_BYTES, Extent
from muster_agent.reload.reader import Consumer
from muster_agent.storage.posix import ALIGN_BYTES
from muster_agent.storage.small_files import clear_half_written

STAGE_PREFIX = ".muster-copy-"
_SYNCERS = 8
_SPARE_BYTES = 16 * 1024 * 1024
"""For the manifest, folders and what the file system itself needs."""


def mark_of(root: str, code: str = "target_unreachable") -> list[int]:
    """Device and inode of a tier's root. Raises CopyTrouble with `code` where it is not there, or is a mount point
    without its mount."""
    try:
        check_folder(root)
        check_mount(root)
        seen = os.stat(root)
    except RootUnreadable as error:
        raise CopyTrouble(code, f"{error}; {error.hint}") from error
    except OSError as error:
        raise CopyTrouble(code, f"{root} cannot be looked at: {error.strerror}") from error
    return [seen.st_dev, seen.st_ino]


def same_mark(root: str, before: list[int], code: str) -> list[int]:
    """The root's mark. Raises CopyTrouble where it is another one than `before`."""
    mark = mark_of(root, code)
    if before and mark != before:
        raise CopyTrouble("mount_changed", f"{root} is not the folder that it was when the copy began; is it mounted?")
    return mark


class _Written:
    """An open file of the copy. Whole blocks go around the page cache where the file system allows it: they are read
    back from the storage anyway, and must be durable by then."""

    def __init__(self, path: str) -> None:
        self.turn = threading.Lock()
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o600)
        self._direct_fd = _open_direct(path)

    def write(self, data: memoryview, offset_bytes: int) -> None:
        """All of it. Raises OSError."""
        aligned = len(data) - len(data) % ALIGN_BYTES if self._direct_fd is not None else 0
        while aligned and self._direct_fd is not None:
            try:
                count = os.pwrite(self._direct_fd, data[:aligned], offset_bytes)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                break
            data, offset_bytes, aligned = data[count:], offset_bytes + count, aligned - count
            if count % ALIGN_BYTES:
                break
        while data:
            count = os.pwrite(self._fd, data, offset_bytes)
            data, offset_bytes = data[count:], offset_bytes + count

    def close(self) -> None:
        for fd in (self._fd, self._direct_fd):
            if fd is not None:
                os.close(fd)


def _open_direct(path: str) -> int | None:
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECT)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return None
        raise


class PosixTarget:
    """See `CopyTarget`."""

    block_bytes = BLOCK_BYTES
    patches = True

    def __init__(self, order: CopyOrder) -> None:
        self._order = order
        self._parent, self._name = os.path.split(order.target)
        self._stage = os.path.join(self._parent, STAGE_PREFIX + order.tag)
        self._payload = os.path.join(self._stage, self._name)
        self._open_files: dict[str, _Written] = {}
        self._lock = threading.Lock()
        self._is_of_many = False

    # -- before --------------------------------------------------------------------------------------------------------
    def look(self, cursor: CopyCursor) -> None:
        """See `CopyTarget.look`."""
        # In a bucket there are no folders to ask: a lone object is called as its checkpoint is.
        self._is_of_many = any(one.path != self._name for one in cursor.files)
        cursor.target_mark = same_mark(self._order.target_root, cursor.target_mark, "target_unreachable")

    def begin(self, cursor: CopyCursor) -> None:
        """See `CopyTarget.begin`."""
        self.look(cursor)
        with _writing(self._order.target):
            self._require_free(cursor)
            for folder in ("", *cursor.folders):
                os.makedirs(os.path.join(self._folder(), folder), exist_ok=True)
            self._require_room(cursor)

    def _folder(self) -> str:
        """Where files lie until the switch."""
        return self._payload if self._is_folder() else self._stage

    def _is_folder(self) -> bool:
        places = (self._order.source, self._payload, self._order.target)
        return self._is_of_many or any(map(os.path.isdir, places))

    def _require_free(self, cursor: CopyCursor) -> None:
        """The place must be free, unless this very copy was put there before."""
        if os.path.lexists(self._order.target) and not cursor.is_switched:
            raise CopyTrouble(
                "target_exists",
                f"{self._order.target} is there already and was not made by this transfer; scan its tier, and remove "
                "or verify what lies there",
            )

    def _require_room(self, cursor: CopyCursor) -> None:
        seen = os.statvfs(self._stage)
        free = seen.f_bavail * seen.f_frsize
        needed = sum(max(0, one.size_bytes - self._allocated(one)) for one in cursor.files) + _SPARE_BYTES
        if needed > free:
            told = f"{self._order.target} needs {needed} bytes more, and {free} are free there"
            raise CopyTrouble("no_space", f"there is no space left: {told}")

    def _allocated(self, file: CopiedFile) -> int:
        with contextlib.suppress(OSError):
            return os.stat(self._at(file)).st_blocks * 512
        return 0

    def _at(self, file: CopiedFile) -> str:
        return os.path.join(self._folder(), file.path)

    # -- bytes ---------------------------------------------------------------------------------------------------------
    def write(self, file: CopiedFile, offset_bytes: int, data: memoryview) -> None:
        """See `CopyTarget.write`."""
        with _writing(self._order.target):
            opened = self._open(file)
            with opened.turn:  # the kernel lets one write into a file at a time, and burns CPU on those that wait
                opened.write(data, offset_bytes)

    def _open(self, file: CopiedFile) -> _Written:
        with self._lock:
            if file.path not in self._open_files:
                self._open_files[file.path] = _Written(self._at(file))
            return self._open_files[file.path]

    def pause(self) -> None:
        """See `CopyTarget.pause`."""
        with self._lock, _writing(self._order.target):
            files, self._open_files = self._open_files, {}
            for one in files.values():
                one.close()

    def written(self, file: CopiedFile) -> Iterator[memoryview]:
        """See `CopyTarget.written`."""
        left = file.copied_bytes
        try:
            with open(self._at(file), "rb", buffering=0) as opened:
                while left and (data := opened.read(min(left, BLOCK_BYTES))):
                    left -= len(data)
                    yield memoryview(data)
        except FileNotFoundError:
            return
        except OSError as error:
            raise target_trouble(error, self._order.target) from error

    def close(self, cursor: CopyCursor, check: Callable[[], None]) -> None:
        """See `CopyTarget.close`."""
        self.pause()
        with ThreadPoolExecutor(_SYNCERS, "muster-sync") as pool:
            for _ in pool.map(self._settle, cursor.files):
                check()
        with _writing(self._order.target):
            for folder in sorted(("", *cursor.folders), reverse=True):
                place = os.path.join(self._folder(), folder)
                self._take_mode(place, folder)
                _sync_folder(place)

    def _take_mode(self, place: str, folder: str) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            like = os.stat(os.path.join(self._order.source, folder, "")).st_mode
            os.chmod(place, like & 0o777 | 0o700)

    def _settle(self, file: CopiedFile) -> None:
        with _writing(self._order.target):
            fd = os.open(self._at(file), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.ftruncate(fd, file.size_bytes)
                os.fchmod(fd, file.mode | 0o600)
                os.utime(fd, ns=(file.mtime_ns, file.mtime_ns))
                os.fsync(fd)
            finally:
                os.close(fd)

    # -- proof ---------------------------------------------------------------------------------------------------------
    def checksum(self, cursor: CopyCursor) -> str:
        """See `CopyTarget.checksum`."""
        return ""

    def read_back(
        self, extents: Sequence[Extent], files: Sequence[CopiedFile], consumer: Consumer, control: JobControl
    ) -> dict[int, OSError]:
        """See `CopyTarget.read_back`."""
        shards = [StatedShard(one.path, self._at(one), one.size_bytes, one.mtime_ns) for one in files]
        totals = read_shards(
            extents,
            shards,
            consumer,
            control,
            ReadingPass("prove", self._order.chunk_bytes, self._order.threads),
            place=PosixPlace(self._order.target),
        )
        return dict(totals.errors)

    def stats(self, files: Sequence[CopiedFile]) -> list[Stat]:
        """See `CopyTarget.stats`."""
        found = []
        with _writing(self._order.target):
            for one in files:
                seen = os.stat(self._place(one))
                found.append((one.path, seen.st_size, seen.st_mtime_ns))
        return found

    def _place(self, file: CopiedFile) -> str:
        if os.path.lexists(self._payload):
            return self._at(file)
        return os.path.join(self._order.target, file.path) if os.path.isdir(self._order.target) else self._order.target

    # -- after ---------------------------------------------------------------------------------------------------------
    def switch(self, manifest: Manifest, cursor: CopyCursor) -> None:
        """See `CopyTarget.switch`."""
        target = self._order.target
        with _writing(target):
            if os.path.lexists(self._payload):
                self._require_absent(target)
                # nobody else writes here, so one of any age is left from an attempt that was killed
                clear_half_written(os.path.dirname(beside.beside_path(self._payload)), older_than_seconds=0.0)
                written = beside.write_beside(self._payload, manifest)
                failpoint("switch.manifest")
                if os.path.isdir(self._payload):
                    os.rename(self._payload, target)
                else:
                    os.replace(written, beside.beside_path(target))
                    _link(self._payload, target)
                failpoint("switch.renamed")
            else:
                self._require_ours(manifest)
            _sync_folder(self._parent)
            shutil.rmtree(self._stage, ignore_errors=True)

    def _require_absent(self, target: str) -> None:
        same = os.path.lexists(target) and os.path.samefile(target, self._payload)
        if os.path.lexists(target) and not same:
            raise CopyTrouble("target_exists", f"{target} appeared while it was copied; scan its tier and look at it")

    def _require_ours(self, manifest: Manifest) -> None:
        """Nothing is left to switch: an earlier attempt did it, and what lies there says so itself."""
        target, there = self._order.target, None
        if not os.path.lexists(target):
            raise CopyTrouble("copy_lost", f"the copy for {target} is not there any more; it is made again")
        with contextlib.suppress(beside.ManifestUnreadable):
            there = beside.read_beside(target)
        if there is None or manifest_id(there) != manifest_id(manifest):
            raise CopyTrouble("target_exists", f"{target} is not what this transfer put there; scan its tier")

    def discard(self, cursor: CopyCursor) -> None:
        """See `CopyTarget.discard`."""
        self.pause()
        mark_of(self._order.target_root)
        if not os.path.lexists(self._stage):
            return
        with _writing(self._order.target):
            shutil.rmtree(self._stage)


def _link(payload: str, target: str) -> None:
    """Give a file its place without ever replacing another one."""
    try:
        os.link(payload, target)
    except FileExistsError:
        if not os.path.samefile(payload, target):
            raise
    except OSError:  # a file system without hard links
        os.rename(payload, target)
        return
    os.unlink(payload)


@contextlib.contextmanager
def _writing(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise target_trouble(error, place) from error


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some network file systems refuse to sync a folder
            os.fsync(fd)
    finally:
        os.close(fd)
