"""A bucket as a tree of folders, by one listing of everything under a prefix.

Keys are split at `/` and taken literally. A key of zero bytes that ends in `/` only marks a folder. Keys with an empty
part, as `a//b`, are no names of files: they are told, and never merged with others.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from muster_agent.formats.ahead import in_turn
from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.folder import FileSeen, Folder, trouble
from muster_agent.formats.names import is_noise, is_ours
from muster_agent.formats.object_store import BucketMissing, BucketRefused, Listing, ObjectSeen, ObjectStore, UploadSeen
from muster_agent.formats.places import bucket_and_prefix
from muster_agent.formats.root import RootUnreadable
from muster_agent.formats.storage_clock import LOCAL, STORAGE, Clock
from muster_agent.formats.tree import ARCHIVED, Opened

READ_WHOLE_BYTES = 256 * 1024
"""A smaller object costs one request, however many places of it are read."""
_AHEAD = 128
"""Such objects held at a time: 32 MiB."""


class _Kept(msgspec.Struct, frozen=True, gc=False):
    """An object whose key is that of its folder and its name, else as `ObjectSeen` has it: there may be a million."""

    size_bytes: int
    mtime_ns: int
    etag: str
    is_archived: bool


@dataclass(slots=True)
class _Level:
    """One folder: `uploads` are those below it too, by relative path, with the time at which they were begun."""

    files: dict[str, _Kept] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    uploads: dict[str, int] = field(default_factory=dict)
    strange: list[str] = field(default_factory=list)
    newest_ns: int | None = None


_Levels = dict[str, _Level]


class S3Tree:
    """See `tree.Tree`. `place` is `s3://bucket/prefix`; what lies beside it is listed one level at a time, when asked
    for. `check` is called between pages, and may raise to end the listing. `findings` are about the bucket."""

    def __init__(self, store: ObjectStore, place: str, check: Callable[[], None] = lambda: None) -> None:
        self.store, self.place, self.check = store, place, check
        self.bucket, self.prefix = bucket_and_prefix(place)
        self.findings: list[Finding] = []
        self._lock = threading.RLock()
        self._inside: _Levels | OSError | None = None
        self._outside: _Levels = {}
        self._clock: Clock | None = None
        self._near: dict[str, _S3File] = {}

    def begin(self) -> None:
        """List the place. Raises RootUnreadable."""
        try:
            levels = self._inside_levels()
            is_there = not self.prefix or self.place in levels or self.stamp(self.place) is not None
        except BucketMissing:
            hint = "check the bucket's name, and the endpoint (--endpoint-url or AWS_ENDPOINT_URL)"
            raise RootUnreadable(self.place, f"there is no bucket {self.bucket}", hint, is_missing=True) from None
        except BucketRefused as error:
            raise RootUnreadable(self.place, error.strerror or "it may not be listed", error.hint) from None
        except OSError as error:
            hint = "check the endpoint and the network, then run again; nothing is taken for gone"
            raise RootUnreadable(self.place, f"it could not be listed ({error.strerror})", hint) from None
        if not is_there:
            hint = "check the spelling and the bucket; a prefix is matched up to a whole name between `/`"
            raise RootUnreadable(self.place, "no key begins with it", hint, is_missing=True)

    def forget(self) -> None:
        """From now on, look at the bucket anew."""
        with self._lock:
            self._inside, self._outside, self._near = None, {}, {}

    def clock(self) -> Clock:
        """The store's clock, by the answer to the listing."""
        return self._clock or Clock(time.time(), LOCAL)

    def is_folder(self, path: str) -> bool:
        """Raises OSError where it cannot be listed."""
        return self._level(path) is not None

    def changed_ns(self, path: str) -> int | None:
        """When the newest object below the folder, or the object, was written."""
        try:
            level = self._level(path)
            seen = self.stamp(path) if level is None else None
        except OSError:
            return None
        return level.newest_ns if level is not None else seen.mtime_ns if seen else None

    def changed_since(self, path: str, saved_ns: int | None) -> bool:
        """Whether anything below the folder, or the object, was written after that."""
        changed_ns = self.changed_ns(path)
        return saved_ns is not None and changed_ns is not None and changed_ns >= saved_ns

    # -- as a tree -----------------------------------------------------------------------------------------------------
    def look(self, path: str, root: str) -> Folder:
        try:
            level = self._level(path)
            if level is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        except OSError as error:
            gone = error.errno == errno.ENOENT
            return Folder(path, root, listed=False, gone=gone, findings=[trouble(error, path)], tree=self)
        return _folder(level, path, root, self)

    def ahead(self, paths: Iterable[str]) -> Iterator[str]:
        return in_turn(paths, self._bring, _AHEAD)

    def _bring(self, path: str) -> None:
        with contextlib.suppress(OSError):
            file = self._opened(path)
            if file.size_bytes <= READ_WHOLE_BYTES:
                file.pread(1, 0)
                self._near[path] = file

    def open(self, path: str) -> Opened:
        return self._near.pop(path, None) or self._opened(path)

    def _opened(self, path: str) -> _S3File:
        seen = self.seen(path)
        if seen is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return _S3File(self.store, self.bucket, seen)

    def open_seen(self, path: str, etag: str) -> Opened:
        """As `open`, and the object must be the one with that ETag."""
        seen = self.seen(path)
        if seen is not None and seen.etag != etag:
            raise OSError(errno.ESTALE, "the object was written again after it was listed", path)
        return self.open(path)

    def take(self, folder: Folder, name: str) -> None:
        path = f"{folder.path}/{name}"
        try:
            seen = self.seen(path)
        except OSError as error:
            folder.blocked.add(name)
            found = trouble(error, path)
            folder.findings.append(finding(found.code, path=name, detail=found.detail))
            return
        if seen is not None:
            folder.files[name] = FileSeen(seen.size_bytes, seen.mtime_ns)
            if seen.is_archived:
                folder.archived.add(name)

    def stamp(self, path: str) -> FileSeen | None:
        try:
            seen = self.seen(path)
        except OSError:
            return None
        return None if seen is None else FileSeen(seen.size_bytes, seen.mtime_ns)

    # -- listings ------------------------------------------------------------------------------------------------------
    def seen(self, path: str) -> ObjectSeen | None:
        """The object at `path` as the listing shows it. Raises OSError where it could not be listed."""
        parent, _, name = path.rpartition("/")
        level = self._level(parent)
        kept = None if level is None else level.files.get(name)
        if kept is None:
            return None
        return ObjectSeen(
            bucket_and_prefix(parent)[1] + name, kept.size_bytes, kept.mtime_ns, kept.etag, kept.is_archived
        )

    def _level(self, path: str) -> _Level | None:
        """The folder at `path`; None where no key lies in it. Raises OSError where it could not be listed."""
        if path == self.place or path.startswith(f"{self.place}/"):
            return self._inside_levels().get(path)
        if path.split("/")[:3] != ["s3:", "", self.bucket]:
            return None
        with self._lock:
            if path not in self._outside:
                prefix = bucket_and_prefix(path)[1]
                listing = self.store.objects(self.bucket, prefix, one_level=True, check=self.check)
                self._outside[path] = _one_level(listing, prefix)
            level = self._outside[path]
            return level if level.files or level.folders else None

    def _inside_levels(self) -> _Levels:
        with self._lock:
            if self._inside is None:
                try:
                    self._inside = self._listed()
                except OSError as error:
                    self._inside = error
            if isinstance(self._inside, OSError):
                raise self._inside
            return self._inside

    def _listed(self) -> _Levels:
        listing = self.store.objects(self.bucket, self.prefix, one_level=False, check=self.check)
        if listing.server_unix_seconds is not None and self._clock is None:
            self._clock = Clock(listing.server_unix_seconds, STORAGE)
        levels, self.findings = _levels_of(listing, self._uploads(), self.place, self.prefix)
        return levels

    def _uploads(self) -> list[UploadSeen] | OSError:
        try:
            return self.store.uploads(self.bucket, self.prefix)
        except OSError as error:
            return error


class _S3File(Opened):
    """See `tree.Opened`. No request is made before the first read. What is read is of the object that was listed: once
    it is written again, reading fails."""

    def __init__(self, store: ObjectStore, bucket: str, seen: ObjectSeen) -> None:
        if seen.is_archived:
            raise OSError(ARCHIVED, "it lies in an archive class")
        self.size_bytes = seen.size_bytes
        self._store, self._bucket, self._key, self._etag = store, bucket, seen.key, seen.etag
        self._whole: bytes | None = b"" if seen.size_bytes == 0 else None

    def pread(self, length_bytes: int, offset_bytes: int) -> bytes:
        """See `tree.Opened.pread`."""
        length_bytes = min(length_bytes, self.size_bytes - offset_bytes)
        if length_bytes <= 0:
            return b""
        if self._whole is None and self.size_bytes <= READ_WHOLE_BYTES:
            self._whole = self._read(0, self.size_bytes)
        if self._whole is not None:
            return self._whole[offset_bytes : offset_bytes + length_bytes]
        return self._read(offset_bytes, length_bytes)

    def _read(self, offset_bytes: int, length_bytes: int) -> bytes:
        data, etag = self._store.read(self._bucket, self._key, offset_bytes, length_bytes, self._etag)
        self._etag = self._etag or etag
        return data

    def hole(self) -> tuple[int, int] | None:
        """A bucket does not know of holes."""
        return None

    def close(self) -> None:
        self._whole = None


# -- from keys to folders ----------------------------------------------------------------------------------------------
def _levels_of(
    listing: Listing, uploads: list[UploadSeen] | OSError, place: str, prefix: str
) -> tuple[_Levels, list[Finding]]:
    levels: _Levels = {}
    while listing.objects:  # what is taken is let go of, or the keys would be held twice
        seen = listing.objects.pop()
        _take_object(levels, seen, place, seen.key[len(prefix) :])
    findings = _doubled(levels)
    if isinstance(uploads, OSError):
        detail = f"unfinished uploads could not be listed: {uploads.strerror}"
        cure = (
            "Allow these credentials to list them (s3:ListBucketMultipartUploads), or leave it: nothing else is less."
        )
        findings.append(finding("listing_failed", path=place, detail=detail, severity=Severity.NOTE, cure=cure))
    else:
        for upload in uploads:
            _take_upload(levels, upload, place, upload.key[len(prefix) :])
    for path in sorted(levels, key=len, reverse=True):
        above = levels.get(path.rpartition("/")[0]) if path != place else None
        if above is not None:
            above.newest_ns = _later(above.newest_ns, levels[path].newest_ns)
    return levels, findings


def _take_object(levels: _Levels, seen: ObjectSeen, place: str, name: str) -> None:
    *folders, last = name.split("/")
    whole = next((index for index, part in enumerate(folders) if part in ("", ".", "..")), None)
    if whole is not None or last in (".", "..") or (not last and seen.size_bytes):
        level = _made(levels, place, folders[:whole])
        if last or seen.size_bytes:
            level.strange.append(seen.key)
        return
    level = _made(levels, place, folders)
    level.newest_ns = _later(level.newest_ns, seen.mtime_ns)
    if last:
        level.files[last] = _kept(seen)


def _kept(seen: ObjectSeen) -> _Kept:
    return _Kept(seen.size_bytes, seen.mtime_ns, seen.etag, seen.is_archived)


def _take_upload(levels: _Levels, upload: UploadSeen, place: str, name: str) -> None:
    *folders, last = name.split("/")
    if not last or any(part in ("", ".", "..") for part in folders):
        return
    level = _made(levels, place, folders)
    level.newest_ns = _later(level.newest_ns, upload.begun_ns)
    for depth in range(len(folders) + 1):
        above = levels["/".join([place, *folders[:depth]])]
        below = "/".join([*folders[depth:], last])
        above.uploads[below] = max(upload.begun_ns, above.uploads.get(below, 0))


def _made(levels: _Levels, place: str, folders: list[str]) -> _Level:
    path = "/".join([place, *folders])
    level = levels.get(path)
    if level is None:
        level = levels[path] = _Level()
        if folders:
            _made(levels, place, folders[:-1]).folders.add(folders[-1])
    return level


def _later(first: int | None, second: int | None) -> int | None:
    return second if first is None else first if second is None else max(first, second)


def _doubled(levels: _Levels) -> list[Finding]:
    """A file system cannot hold a file and a folder of one name, so a copy of them would lose one."""
    found = []
    for path, level in levels.items():
        for name in sorted(level.files.keys() & level.folders):
            detail = f"{name} is an object, and a folder of other objects too"
            cure = "Give one of them another name: on a file system only one of the two can be kept."
            found.append(
                finding("path_unsafe", path=f"{path}/{name}", detail=detail, severity=Severity.WARNING, cure=cure)
            )
    return found


def _one_level(listing: Listing, prefix: str) -> _Level:
    level = _Level()
    for seen in listing.objects:
        name = seen.key[len(prefix) :]
        if name and "/" not in name and name not in (".", ".."):
            level.files[name] = _kept(seen)
    names = (one[len(prefix) :].removesuffix("/") for one in listing.prefixes)
    level.folders = {name for name in names if name not in ("", ".", "..")}
    level.newest_ns = max((seen.mtime_ns for seen in level.files.values()), default=None)
    return level


def _folder(level: _Level, path: str, root: str, tree: S3Tree) -> Folder:
    folder = Folder(path, root, mtime_ns=level.newest_ns, uploads=dict(level.uploads), tree=tree)
    for name, seen in level.files.items():
        if is_noise(name):
            folder.own.update([name] if is_ours(name) else [])
            continue
        folder.files[name] = FileSeen(seen.size_bytes, seen.mtime_ns)
        if seen.is_archived:
            folder.archived.add(name)
    folder.folders = sorted(name for name in level.folders if not is_noise(name))
    folder.findings.extend(_strange(level.strange))
    folder.findings.extend(_unfinished(name) for name in sorted(level.uploads) if "/" not in name)
    return folder


def _strange(keys: list[str]) -> list[Finding]:
    if not keys:
        return []
    detail = f"{len(keys)} keys here cannot be names of files, {min(keys)!r} is one; they are not read"
    cure = "Nothing need be done where they are not a checkpoint's; else copy them to keys without empty parts."
    return [finding("path_unsafe", path=min(keys), detail=detail, severity=Severity.NOTE, cure=cure)]


def _unfinished(name: str) -> Finding:
    detail = f"an upload of {name} was begun and has not ended; until then the object is not there, or is the older one"
    return finding("multipart_incomplete", path=name, detail=detail)
