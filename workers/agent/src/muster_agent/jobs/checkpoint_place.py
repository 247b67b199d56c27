"""Where one checkpoint lies, on a file system or in a bucket, and what sealing, verifying and reloading need of it
there: what its metadata says, how its shards lie now, and their bytes."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from muster_agent.formats.base import ShardMap
from muster_agent.formats.bucket_checkpoint import is_in_bucket, read_in_bucket
from muster_agent.formats.checkpoint import is_family, read_checkpoint
from muster_agent.formats.folder import POSIX
from muster_agent.formats.names import family_folder
from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.places import bucket_and_key, is_bucket, place_of
from muster_agent.formats.recorded import RecordedSum
from muster_agent.formats.root import RootUnreadable
from muster_agent.formats.s3_tree import S3Tree
from muster_agent.formats.tree import Opened
from muster_agent.storage.base import ShardSource
from muster_agent.storage.posix import PathUnsafe, PosixShard, is_safe_name, locate, stat_shard
from muster_agent.storage.s3_answers import ObjectPin, bare
from muster_agent.storage.s3_source import FIRST_WAIT_SECONDS, S3Reads
from muster_agent.storage.s3_urls import NodeSigned
from muster_agent.storage.small_files import POSIX_FILES, BucketFiles, SmallFiles

_ASKERS = 8


class CheckpointNotFound(Exception):
    """There is nothing at the path (its parent could be looked at, or not: the message says which)."""

    def __init__(self, path: str, reason: str = "") -> None:
        self.path = path
        super().__init__(reason or f"there is no checkpoint at {path}")


class StatedShard(NamedTuple):
    """One shard as it lay before reading: `size_bytes` None where it is not there or could not be looked at. `location`
    is its absolute path, `s3://bucket/key` in a bucket; there `mtime_ns` is when the object was written by the store's
    listing, and `etag` says which object of that key it is."""

    path: str
    location: str
    size_bytes: int | None
    mtime_ns: int
    error: OSError | None = None
    etag: str = ""


OpenShard = Callable[[StatedShard], ShardSource]


class CheckpointPlace(Protocol):
    """`path` is absolute; `files` are those of Muster's own beside the checkpoint."""

    path: str
    files: SmallFiles

    def require(self) -> None:
        """Raises CheckpointNotFound where nothing lies there, RootUnreadable where that cannot be told."""
        ...

    def read(self, *, with_tensors: bool = True) -> ShardMap:
        """The checkpoint by its metadata. For its tensors each file may have to be looked into, which of very many
        small ones takes longer than reading them. Raises nothing."""
        ...

    def stat_all(self, shard_paths: Sequence[str]) -> list[StatedShard]:
        """Look at every named shard now. A name that leads out of the checkpoint is treated as not there. Raises
        nothing."""
        ...

    def open_file(self, stated: StatedShard) -> Opened:
        """For a few small reads. Raises OSError."""
        ...

    def stored_sums(
        self, shards: Sequence[StatedShard], *, or_etags: bool = False
    ) -> Mapping[str, Sequence[RecordedSum]]:
        """By path, the check sums that the storage itself keeps since the shards were written; with `or_etags` the
        ETags of others, which cost their MD5. Raises nothing."""
        ...

    def reads(self, *, through_cache: bool = False) -> AbstractContextManager[OpenShard]:
        """What it gives opens shards for the engine, around this node's page cache where there is one unless told
        otherwise, and raises OSError; their reads are over when the block is left."""
        ...


class PosixPlace:
    """On a mounted file system. See `CheckpointPlace`."""

    files: SmallFiles = POSIX_FILES

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)

    def require(self) -> None:
        if not os.path.lexists(self.path) and not is_family(self.path):
            raise CheckpointNotFound(self.path)

    def read(self, *, with_tensors: bool = True) -> ShardMap:
        return read_checkpoint(self.path, with_tensors=with_tensors)

    def stat_all(self, shard_paths: Sequence[str]) -> list[StatedShard]:
        return [self._stat(path) for path in shard_paths]

    def _stat(self, path: str) -> StatedShard:
        location = ""
        try:
            location = locate(self.path, path)
            size_bytes, mtime_ns = stat_shard(location)
        except OSError as error:
            return StatedShard(path, location, None, 0, error)
        return StatedShard(path, location, size_bytes, mtime_ns)

    def open_file(self, stated: StatedShard) -> Opened:
        return POSIX.open(stated.location)

    def stored_sums(
        self, shards: Sequence[StatedShard], *, or_etags: bool = False
    ) -> Mapping[str, Sequence[RecordedSum]]:
        return {}

    def reads(self, *, through_cache: bool = False) -> AbstractContextManager[OpenShard]:
        return contextlib.nullcontext(lambda stated: PosixShard(stated.location, direct=not through_cache))


class BucketPlace:
    """In a bucket. See `CheckpointPlace`. Shards are looked at by a listing, whose times are finer than those of a
    request for one object, and which costs one request for a thousand of them."""

    def __init__(self, path: str, store: ObjectStore) -> None:
        self.path = place_of(path)
        self.files: SmallFiles = BucketFiles(store)
        self._store = store
        # The files of a family lie among others, so the folder that they share is what is listed.
        self._folder = family_folder(self.path) or self.path
        self.tree = S3Tree(store, self._folder)

    def require(self) -> None:
        try:
            self.tree.begin()
            is_there = is_in_bucket(self.tree, self.path)
        except RootUnreadable as unreadable:
            if unreadable.is_missing:
                raise CheckpointNotFound(self.path, str(unreadable)) from unreadable
            raise
        except OSError as error:
            hint = "check the endpoint and the network, then run again"
            raise RootUnreadable(self.path, f"it could not be listed ({error.strerror})", hint) from error
        if not is_there:
            raise CheckpointNotFound(self.path)

    def read(self, *, with_tensors: bool = True) -> ShardMap:
        return read_in_bucket(self.tree, self.path, with_tensors=with_tensors)

    def stat_all(self, shard_paths: Sequence[str]) -> list[StatedShard]:
        self.tree.forget()
        return [self._stat(path) for path in shard_paths]

    def _stat(self, path: str) -> StatedShard:
        location = ""
        try:
            location = self._locate(path)
            seen = self.tree.seen(location)
            if seen is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), location)
        except OSError as error:
            return StatedShard(path, location, None, 0, error)
        return StatedShard(path, location, seen.size_bytes, seen.mtime_ns, etag=seen.etag)

    def _locate(self, path: str) -> str:
        """Raises PathUnsafe, and OSError where the bucket cannot be listed."""
        if not is_safe_name(path) or any(part in ("", ".") for part in path.split("/")):
            raise PathUnsafe(path)
        if self.tree.is_folder(self.path):
            return f"{self.path}/{path}"
        return self.path if self.path.rpartition("/")[2] == path else f"{self._folder}/{path}"

    def open_file(self, stated: StatedShard) -> Opened:
        return self.tree.open_seen(stated.location, stated.etag)

    def stored_sums(
        self, shards: Sequence[StatedShard], *, or_etags: bool = False
    ) -> Mapping[str, Sequence[RecordedSum]]:
        with ThreadPoolExecutor(_ASKERS, thread_name_prefix="muster-sums") as pool:
            found = pool.map(lambda one: self._sums(one, or_etag=or_etags), shards)
            return dict(zip((one.path for one in shards), found, strict=True))

    def _sums(self, stated: StatedShard, *, or_etag: bool) -> Sequence[RecordedSum]:
        if not stated.size_bytes:
            return ()
        try:
            return self._store.sums(self.tree.bucket, bucket_and_key(stated.location)[1], stated.etag, or_etag=or_etag)
        except OSError:
            return ()

    @contextlib.contextmanager
    def reads(self, *, through_cache: bool = False) -> Iterator[OpenShard]:
        urls = NodeSigned([self._store], self.tree.bucket)
        reads = S3Reads(urls, first_wait_seconds=getattr(self._store, "first_wait_seconds", FIRST_WAIT_SECONDS))

        def open_shard(stated: StatedShard) -> ShardSource:
            self.open_file(stated).close()  # no request: what the listing says forbids some
            pin = ObjectPin(stated.size_bytes, bare(stated.etag))
            return reads.open(bucket_and_key(stated.location)[1], pin, stated.mtime_ns)

        try:
            yield open_shard
        finally:
            reads.close()


def place_at(path: str, store: ObjectStore | None = None) -> CheckpointPlace:
    """`store` is the client for a path in a bucket. Raises RootUnreadable where one is needed and there is none."""
    if not is_bucket(path):
        return PosixPlace(path)
    if store is None:
        raise RootUnreadable(path, "it lies in a bucket, which is not read from here yet", "use the `muster` command")
    return BucketPlace(path, store)
