"""What a copy needs of the place that it comes from, on a file system or in a bucket."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.names import is_ours
from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.places import bucket_and_prefix, is_bucket
from muster_agent.formats.root import RootUnreadable
from muster_agent.jobs.checkpoint_place import CheckpointNotFound, CheckpointPlace, StatedShard, place_at
from muster_agent.jobs.chunks import ReadingPass, read_shards
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.copy_names import require_inside
from muster_agent.jobs.copy_posix import same_mark
from muster_agent.jobs.copy_survey import MAX_FILES, Listing, list_files
from muster_agent.jobs.copy_trouble import CopyTrouble, source_trouble
from muster_agent.protocol.copies import CopiedFile, CopyCursor, CopyOrder
from muster_agent.reload.plan import Extent
from muster_agent.reload.reader import Consumer
from muster_agent.reload.totals import ReadTotals
from muster_agent.storage.s3_writer import S3Writer

RESTORED_DAYS = 7
"""So long the store keeps what it brought back from an archive."""


def place_for(path: str, store: ObjectStore | None) -> CheckpointPlace:
    """Raises CopyTrouble where a bucket is meant and there is no client for one."""
    try:
        return place_at(path, store)
    except RootUnreadable as error:
        raise CopyTrouble("store_busy", str(error)) from error


def require_whole(path: str, store: ObjectStore | None = None) -> ShardMap:
    """What the checkpoint at `path` is. Raises CopyTrouble unless it is complete."""
    shard_map = place_for(path, store).read()
    if shard_map.status is Status.COMPLETE:
        return shard_map
    told = "; ".join(found.detail for found in shard_map.findings[:3]) or "nothing more is known"
    code = {Status.UNREADABLE: "source_unreachable", Status.ARCHIVED: "archived"}.get(
        shard_map.status, "source_incomplete"
    )
    raise CopyTrouble(
        code,
        f"{path} is {shard_map.status.value}, and only what is complete is copied: {told}",
        findings=shard_map.findings,
    )


def files_at(path: str, root: str, store: ObjectStore | None = None) -> Listing:
    """Every file and folder of the checkpoint at `path`, which lies below `root`. Raises CopyTrouble."""
    if store is None or not is_bucket(path):
        return list_files(path, root)
    bucket, prefix = bucket_and_prefix(path)
    try:
        found = store.objects(bucket, prefix, one_level=False, check=lambda: None).objects
        lone = None if found else store.first(bucket, prefix.rstrip("/"))
    except OSError as error:
        raise source_trouble(error, path) from error
    if lone is not None and lone.key == prefix.rstrip("/"):
        return [_object(lone.key.rpartition("/")[2], lone.size_bytes, lone.mtime_ns)], []
    if len(found) > MAX_FILES:
        raise CopyTrouble("unsupported", f"{path} has more than {MAX_FILES} objects")
    inside = [(one.key.removeprefix(prefix), one) for one in found]
    require_inside(path, (name for name, _one in inside if name))
    files = [
        _object(name, one.size_bytes, one.mtime_ns)
        for name, one in inside
        if name and not name.endswith("/") and not is_ours(name.rpartition("/")[2])
    ]
    return files, sorted({name.rpartition("/")[0] for name, _one in inside} - {""})


class CopySource:
    """The source of one order. All raise CopyTrouble."""

    def __init__(self, order: CopyOrder, store: S3Writer | None = None) -> None:
        self._order, self._store = order, store
        self.place = place_for(order.source, store)

    def look(self, cursor: CopyCursor) -> None:
        """Whether the tier is there, and the same as when the copy began."""
        if not is_bucket(self._order.source):
            cursor.source_mark = same_mark(self._order.source_root, cursor.source_mark, "source_unreachable")
            return
        try:
            self.place.require()
        except RootUnreadable as error:
            raise CopyTrouble("source_unreachable", f"{error}; {error.hint}") from error
        except CheckpointNotFound as error:
            raise CopyTrouble("source_changed", str(error)) from error

    def bring_back(self, cursor: CopyCursor, check: Callable[[], None]) -> None:
        """Have what lies in an archive class restored. Raises CopyTrouble `restoring` until all of it can be read."""
        if self._store is None or not is_bucket(self._order.source):
            return
        bucket, prefix = bucket_and_prefix(self._order.source)
        try:
            seen = self._store.objects(bucket, prefix.rstrip("/"), one_level=False, check=check).objects
            away = [one for one in seen if one.is_archived and f"{one.key}/".startswith(prefix)]
            for one in away if not cursor.is_restore_asked else ():
                self._store.restore(bucket, one.key, RESTORED_DAYS)
                check()
        except OSError as error:
            raise source_trouble(error, self._order.source) from error
        if away:
            cursor.is_restore_asked = True
            told = f"{len(away)} objects ({sum(one.size_bytes for one in away)} bytes) of {self._order.source}"
            raise CopyTrouble("restoring", f"the store brings back {told} from its archive; this goes on by itself")

    def shard_map(self) -> ShardMap:
        """The checkpoint by its metadata; it must be complete."""
        return require_whole(self._order.source, self._store)

    def files(self) -> Listing:
        """Every file and folder of it."""
        return files_at(self._order.source, self._order.source_root, self._store)

    def read(
        self,
        extents: Sequence[Extent],
        files: Sequence[CopiedFile],
        consumer: Consumer,
        control: JobControl,
        chunk_bytes: int,
    ) -> ReadTotals:
        """One pass over some of its bytes, around the page cache where that is possible."""
        return read_shards(
            extents,
            self.stated(files),
            consumer,
            control,
            ReadingPass("copy", chunk_bytes, self._order.threads),
            place=self.place,
        )

    def stated(self, files: Sequence[CopiedFile]) -> list[StatedShard]:
        """The files as they lie now."""
        return self.place.stat_all([one.path for one in files])

    def require_unchanged(self, files: Sequence[CopiedFile]) -> None:
        """It is, after the copy, what it was before it."""
        for one, seen in zip(files, self.stated(files), strict=True):
            if seen.error is not None:
                raise source_trouble(seen.error, seen.location or one.path) from seen.error
            if (seen.size_bytes, seen.mtime_ns) != (one.size_bytes, one.mtime_ns):
                raise CopyTrouble("source_changed", f"{seen.location} changed while it was copied; nothing was removed")


def _object(path: str, size_bytes: int, mtime_ns: int) -> CopiedFile:
    return CopiedFile(path=path, size_bytes=size_bytes, mtime_ns=mtime_ns)
