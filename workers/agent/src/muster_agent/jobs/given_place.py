"""A checkpoint in a bucket of which a node knows only what the control plane gave it: signed URLs of some shards."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from email.utils import parsedate_to_datetime
from urllib.parse import unquote, urlsplit

from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.places import bucket_and_key, lies_in, place_of
from muster_agent.formats.recorded import RecordedSum
from muster_agent.formats.tree import Opened
from muster_agent.jobs.checkpoint_place import OpenShard, StatedShard
from muster_agent.protocol.wire import GivenObject
from muster_agent.storage.base import ShardSource
from muster_agent.storage.posix import PathUnsafe, is_safe_name
from muster_agent.storage.s3_answers import ObjectPin, bare
from muster_agent.storage.s3_source import S3Reads
from muster_agent.storage.s3_urls import GivenUrls
from muster_agent.storage.small_files import SmallFiles

_LOOKERS = 8
_NANO = 1_000_000_000


class _NoFiles:
    """See `SmallFiles`: no URL of anything beside the shards was given."""

    def is_folder(self, path: str) -> bool:
        """See `SmallFiles`."""
        return True

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """See `SmallFiles`."""
        raise FileNotFoundError(errno.ENOENT, "no URL of it was given", path)

    def replace(self, path: str, data: bytes, *, mode_like: str) -> None:
        """See `SmallFiles`."""
        raise PermissionError(errno.EACCES, "no URL of it was given", path)


class GivenPlace:
    """See `CheckpointPlace`. It cannot be listed, so it is taken for there until its objects are looked at."""

    files: SmallFiles = _NoFiles()

    def __init__(self, path: str, objects: Mapping[str, GivenObject]) -> None:
        self.path = place_of(path)
        self._objects = objects
        self.urls = GivenUrls({self._key(name): given.urls for name, given in objects.items()})
        self._reads = S3Reads(self.urls)

    def require(self) -> None:
        """See `CheckpointPlace`."""

    def read(self, *, with_tensors: bool = True) -> ShardMap:
        """See `CheckpointPlace`: nothing is known of its metadata."""
        return ShardMap(path=self.path, run="", format="", step=None, status=Status.UNKNOWN, resumable=False)

    def stat_all(self, shard_paths: Sequence[str]) -> list[StatedShard]:
        """See `CheckpointPlace`. One request for each."""
        with ThreadPoolExecutor(_LOOKERS) as pool:
            return list(pool.map(self._stat, shard_paths))

    def _stat(self, path: str) -> StatedShard:
        location = f"{self.path}/{path}"
        try:
            given = self._given(path)
            pin = self._reads.look(self._key(path))
        except OSError as error:
            return StatedShard(path, location, None, 0, error)
        return StatedShard(path, location, pin.size_bytes, _mtime_ns(pin.modified, given.mtime_ns), etag=pin.etag)

    def _given(self, path: str) -> GivenObject:
        """Raises PathUnsafe for a name, or a URL, that leads elsewhere than into this checkpoint: the node's roots hold
        for what it is given too."""
        given = self._objects.get(path)
        if given is None:
            raise FileNotFoundError(errno.ENOENT, "no URL of it was given", path)
        if not is_safe_name(path) or not all(_leads_into(url, self.path) for url in given.urls):
            raise PathUnsafe(path)
        return given

    def open_file(self, stated: StatedShard) -> Opened:
        """See `CheckpointPlace`."""
        raise OSError(errno.EOPNOTSUPP, "its objects are only read as shards")

    def stored_sums(
        self, shards: Sequence[StatedShard], *, or_etags: bool = False
    ) -> Mapping[str, Sequence[RecordedSum]]:
        """See `CheckpointPlace`: the given URLs do not tell them."""
        return {}

    def reads(self, *, through_cache: bool = False) -> AbstractContextManager[OpenShard]:
        """See `CheckpointPlace`."""
        return contextlib.nullcontext(self._open)

    def _open(self, stated: StatedShard) -> ShardSource:
        pin = ObjectPin(stated.size_bytes, bare(stated.etag))
        return self._reads.open(self._key(stated.path), pin, stated.mtime_ns)

    def _key(self, name: str) -> str:
        """By which name the given URLs are known here."""
        return bucket_and_key(f"{self.path}/{name}")[1]

    def close(self) -> None:
        """Close its connections."""
        self._reads.close()


def _leads_into(url: str, place: str) -> bool:
    """Whether the URL is of an object in the folder that `place` is or lies in, by path (`/bucket/key`) or by host."""
    bucket, prefix = bucket_and_key(place)
    folder = prefix.partition("{")[0].rpartition("/")[0] if "{" in prefix else prefix
    parts = urlsplit(url)
    path = unquote(parts.path)
    if any(part in (".", "..") for part in path.split("/")):
        return False
    by_host = (parts.hostname or "").startswith(f"{bucket}.")
    root = f"/{folder}" if by_host else f"/{bucket}/{folder}"
    return lies_in(path, root)


def _mtime_ns(modified: str, listed_ns: int) -> int:
    """The listing's time, where the answer's, which is of whole seconds, agrees with it."""
    try:
        seconds = int(parsedate_to_datetime(modified).timestamp())
    except (TypeError, ValueError, OverflowError):
        return listed_ns
    return listed_ns if listed_ns // _NANO == seconds else seconds * _NANO
