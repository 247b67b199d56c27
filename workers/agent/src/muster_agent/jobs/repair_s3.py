"""Repairing objects: a new object is made of the good ranges of the old one, which the store copies by itself, and of
good chunks. The old object stays what it is until the new one takes its place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from muster_agent.formats.places import bucket_and_key
from muster_agent.jobs.checkpoint_place import BucketPlace
from muster_agent.jobs.copy_trouble import CopyTrouble, target_trouble
from muster_agent.jobs.failpoints import failpoint
from muster_agent.jobs.repair import BadFile, GoodCopy, Save
from muster_agent.manifest import beside
from muster_agent.manifest.model import Manifest
from muster_agent.storage.s3_writer import MAX_PARTS, MIN_PART_BYTES, S3Writer, Upload

_SENT_BYTES = 64 * 1024 * 1024
_COPIED_BYTES = 4 * 1024 * 1024 * 1024


class Part(NamedTuple):
    """Chunks [begin, end) of one object, taken from the object as it is where `is_good`."""

    begin: int
    end: int
    is_good: bool


class S3Repair:
    """See `RepairTarget`."""

    def __init__(self, place: BucketPlace, store: S3Writer) -> None:
        self._place, self._store = place, store

    def write(self, file: BadFile, good: GoodCopy, save: Save, check: Callable[[], None]) -> int:
        """See `RepairTarget.write`."""
        bucket, key = bucket_and_key(file.location or f"{self._place.path}/{file.path}")
        sealed = good.sealed(file.path)
        try:
            if sealed.size_bytes == 0:
                self._store.write(bucket, key, b"", only_new=False)
                return 0
            parts = list(parts_of(-(-sealed.size_bytes // good.chunk_bytes), file.chunks, good.chunk_bytes))
            if not self._is_completed(bucket, key, file, sealed.size_bytes):
                self._require_same(bucket, key, file)
                upload = self._upload(bucket, key, file, save)
                failpoint("repair.noted")
                self._send(bucket, upload, file, good, parts, check)
                save()
                failpoint("repair.half")
                self._require_same(bucket, key, file)
                self._store.complete(bucket, upload, {int(number): etag for number, etag in file.parts.items()})
        except OSError as error:
            raise target_trouble(error, file.location) from error
        return sum(_bytes(part, good.chunk_bytes, sealed.size_bytes) for part in parts if not part.is_good)

    def _is_completed(self, bucket: str, key: str, file: BadFile, size_bytes: int) -> bool:
        """An earlier attempt ended right after the completion: the upload is gone, and the object is another one."""
        if not file.upload or file.upload in {one.upload_id for one in self._store.unfinished(bucket, key)}:
            return False
        seen = self._store.head(bucket, key)
        if seen is not None and seen[0] == size_bytes and seen[1] != file.etag.strip('"'):
            return True
        file.upload, file.parts = "", {}
        return False

    def _require_same(self, bucket: str, key: str, file: BadFile) -> None:
        seen = self._store.head(bucket, key)
        if (None if seen is None else seen[1]) != (None if file.found_bytes is None else file.etag.strip('"')):
            told = f"s3://{bucket}/{key} was written again since its damage was found; nothing was changed"
            raise CopyTrouble("target_changed", told)

    def _upload(self, bucket: str, key: str, file: BadFile, save: Save) -> Upload:
        """The one that is under way, or a new one; others of this key were begun right before a crash."""
        for other in self._store.unfinished(bucket, key):
            if other.key == key and other.upload_id != file.upload:
                self._store.abort(bucket, other)
        if not file.upload:
            file.upload, file.parts, file.is_touched = self._store.begin(bucket, key), {}, True
            save()
        return Upload(key, file.upload)

    def _send(
        self,
        bucket: str,
        upload: Upload,
        file: BadFile,
        good: GoodCopy,
        parts: Sequence[Part],
        check: Callable[[], None],
    ) -> None:
        size_bytes = good.sealed(file.path).size_bytes
        for number, part in enumerate(parts, 1):
            if str(number) in file.parts:
                continue
            check()
            begin, end = part.begin * good.chunk_bytes, min(part.end * good.chunk_bytes, size_bytes)
            if part.is_good:
                etag = self._store.copy_part(bucket, upload, number, begin, end, file.etag)
            else:
                data = b"".join(good.chunk(file.path, index, check) for index in range(part.begin, part.end))
                etag = self._store.put_part(bucket, upload, number, memoryview(data)).etag
            file.parts[str(number)] = etag

    def settle(self, manifest: Manifest) -> Manifest:
        """See `RepairTarget.settle`: a bucket's times are when objects were made, so the seal gets the new ones."""
        stated = {one.path: one for one in self._place.stat_all([shard.path for shard in manifest.shards])}
        shards = tuple(
            msgspec.structs.replace(shard, mtime_ns=stated[shard.path].mtime_ns or shard.mtime_ns)
            for shard in manifest.shards
        )
        renewed = msgspec.structs.replace(manifest, shards=shards)
        try:
            with contextlib.suppress(beside.ManifestUnreadable):
                beside.read_beside(self._place.path, self._place.files)  # what was not read is not written over
            beside.write_beside(self._place.path, renewed, self._place.files)
        except OSError as error:
            raise target_trouble(error, self._place.path) from error
        return renewed


def parts_of(chunk_count: int, bad: Sequence[int], chunk_bytes: int) -> Iterator[Part]:
    """The object in parts that a store takes: none but the last below its least size, and none too large. Good chunks
    between two bad ones that are too few for a part of their own are sent along."""
    least = -(-MIN_PART_BYTES // chunk_bytes)
    most = max(_SENT_BYTES // chunk_bytes, -(-chunk_count // (MAX_PARTS // 2)), least)
    copied = max(_COPIED_BYTES // chunk_bytes, least)
    for run in _runs(chunk_count, bad, least):
        step = copied if run.is_good else most
        begin = run.begin
        while begin < run.end:
            end = min(begin + step, run.end)
            if 0 < run.end - end < least:
                end = run.end
            yield Part(begin, end, run.is_good)
            begin = end


def _runs(chunk_count: int, bad: Sequence[int], least: int) -> list[Part]:
    """Alternating good and bad stretches, each but the last at least `least` chunks long."""
    sent: list[list[int]] = []
    for index in sorted(bad):
        begin, end = index, min(index + least, chunk_count)
        if sent and begin - sent[-1][1] < least:
            sent[-1][1] = max(end, sent[-1][1])
        else:
            sent.append([0 if begin < least else begin, end])
    runs, at = [], 0
    for begin, end in sent:
        if begin > at:
            runs.append(Part(at, begin, True))
        runs.append(Part(begin, end, False))
        at = end
    if at < chunk_count:
        runs.append(Part(at, chunk_count, True))
    return runs


def _bytes(part: Part, chunk_bytes: int, size_bytes: int) -> int:
    return min(part.end * chunk_bytes, size_bytes) - part.begin * chunk_bytes
