"""What a ceiling is measured on: the largest files below a folder, or the largest objects of a bucket."""

from __future__ import annotations

import contextlib
import heapq
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from muster_agent.formats.object_store import ObjectSeen, ObjectStore
from muster_agent.formats.places import bucket_and_prefix
from muster_agent.probes.page_cache import cached_ratio, evict
from muster_agent.storage.base import ShardSource
from muster_agent.storage.posix import PosixShard
from muster_agent.storage.s3_answers import ObjectPin, bare
from muster_agent.storage.s3_source import S3Reads
from muster_agent.storage.s3_urls import NodeSigned

MIB = 1 << 20
MOST_FILES = 256
SMALLEST_FILE_BYTES = MIB

_Found = TypeVar("_Found")


class NothingToRead(Exception):
    """There is no file under the path that is large enough to time; the message says what there is."""


class Source(Protocol):
    """Largest first. `paths` are for readers that open files by themselves, and empty where there are none."""

    sizes_bytes: Sequence[int]
    paths: Sequence[str]

    def make_cold(self) -> float | None:
        """Drop what this node holds of it; the share (0..1) that is cached all the same, None where nobody can tell."""
        ...

    def reads(self) -> contextlib.AbstractContextManager[Callable[[int], ShardSource]]:
        """What it gives opens a file by its number."""
        ...


class Files:
    """Regular files. See `Source`."""

    def __init__(self, found: Sequence[tuple[str, int]]) -> None:
        self.paths: Sequence[str] = [path for path, _ in found]
        self.sizes_bytes: Sequence[int] = [size for _, size in found]

    def make_cold(self) -> float | None:
        """See `Source`."""
        evict(self.paths)
        return cached_ratio(self.paths)

    def reads(self) -> contextlib.AbstractContextManager[Callable[[int], ShardSource]]:
        """See `Source`: around the page cache."""
        return contextlib.nullcontext(lambda number: PosixShard(self.paths[number], direct=True))


class Objects:
    """Objects of a bucket, by ranged GETs. See `Source`; nothing of them goes through a cache of this node."""

    paths: Sequence[str] = ()

    def __init__(self, store: ObjectStore, bucket: str, found: Sequence[ObjectSeen]) -> None:
        self._store, self._bucket, self._found = store, bucket, found
        self.sizes_bytes: Sequence[int] = [one.size_bytes for one in found]

    def make_cold(self) -> float | None:
        """See `Source`."""
        return 0.0

    @contextlib.contextmanager
    def reads(self) -> Iterator[Callable[[int], ShardSource]]:
        """See `Source`."""
        reads = S3Reads(NodeSigned([self._store], self._bucket))

        def open_object(number: int) -> ShardSource:
            one = self._found[number]
            return reads.open(one.key, ObjectPin(one.size_bytes, bare(one.etag)), one.mtime_ns)

        try:
            yield open_object
        finally:
            reads.close()


def largest_files(path: str) -> list[tuple[str, int]]:
    """(path, size in bytes) of the largest regular files under `path`, largest first; links are not followed."""
    place = os.path.abspath(path)
    if stat.S_ISREG(os.stat(place).st_mode):
        found = [(place, os.stat(place).st_size)]
    else:
        found = heapq.nlargest(MOST_FILES, _files_under(place), key=lambda item: item[1])
    return _large_enough(found, [size for _, size in found], place)


def largest_objects(place: str, store: ObjectStore, check: Callable[[], None]) -> Objects:
    """Those under `s3://bucket/prefix` that lie in no archive. Raises NothingToRead and OSError."""
    bucket, prefix = bucket_and_prefix(place)
    listed = store.objects(bucket, prefix, one_level=False, check=check).objects
    here = heapq.nlargest(MOST_FILES, (one for one in listed if not one.is_archived), key=lambda one: one.size_bytes)
    return Objects(store, bucket, _large_enough(here, [one.size_bytes for one in here], place))


def _large_enough(found: Sequence[_Found], sizes_bytes: Sequence[int], place: str) -> list[_Found]:
    large = [one for one, size in zip(found, sizes_bytes, strict=True) if size >= SMALLEST_FILE_BYTES]
    if not large:
        raise NothingToRead(f"no file under {place} has {SMALLEST_FILE_BYTES // MIB} MiB; name a checkpoint's folder")
    return large


def _files_under(place: str) -> Iterator[tuple[str, int]]:
    for folder, _, names in os.walk(place):
        for name in names:
            full = os.path.join(folder, name)
            try:
                seen = os.lstat(full)
            except OSError:
                continue
            if stat.S_ISREG(seen.st_mode):
                yield full, seen.st_size
