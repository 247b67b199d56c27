"""Copies into a bucket: every file as an upload in parts, each compared with its MD5 by the store, and with a CRC where
the store has one. Nothing is to be seen until the uploads are completed, metadata last of all; the manifest comes after
the proof."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from muster_agent.formats.object_store import BucketMissing, BucketRefused
from muster_agent.formats.places import bucket_and_prefix, is_bucket
from muster_agent.jobs.checkpoint_place import BucketPlace
from muster_agent.jobs.chunks import ReadingPass, read_shards
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.copy_target import Replaced, Stat
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.jobs.failpoints import failpoint
from muster_agent.manifest import beside
from muster_agent.manifest.model import Manifest, manifest_id
from muster_agent.protocol.copies import CopiedFile, CopyCursor, CopyOrder
from muster_agent.reload.plan import Extent
from muster_agent.reload.reader import Consumer
from muster_agent.storage.s3_sent_sums import NAMES, SentSums, computable
from muster_agent.storage.s3_writer import MAX_PARTS, S3Writer, Upload, etag_of_parts

PART_BYTES = 16 * 1024 * 1024
_COMPLETERS = 8
_METADATA = "metadata"
_MOST_REFUSALS = 3
"""Each after several answers of its own kind, seconds apart."""
_NOT_INSTALLED = "anycrc is not installed where the copy was made (pip install 'muster-agent[s3]'), so no CRC was sent"
_LOOKS_SECONDS = (0.0, 0.5, 1.0, 2.0, 4.0)


class S3Target:
    """See `CopyTarget`."""

    patches = False

    def __init__(self, order: CopyOrder, store: S3Writer) -> None:
        self._order, self._store = order, store
        self._is_folder = os.path.isdir(order.source) or is_bucket(order.source)
        self._bucket, self._prefix = bucket_and_prefix(order.target)
        self._lock = threading.Lock()
        self.block_bytes = PART_BYTES
        self._algorithms = computable()
        """Kinds of CRC that this store may have: the first upload tells."""

    # -- before --------------------------------------------------------------------------------------------------------
    def look(self, cursor: CopyCursor) -> None:
        """See `CopyTarget.look`."""
        with _storing(self._order.target):
            self._store.first(self._bucket, self._prefix)
        largest = max((one.size_bytes for one in cursor.files), default=0)
        chunk = self._order.chunk_bytes
        least = -(-largest // (MAX_PARTS - 1))
        self.block_bytes = -(-max(PART_BYTES, least) // chunk) * chunk

    def begin(self, cursor: CopyCursor) -> None:
        """See `CopyTarget.begin`."""
        self.look(cursor)
        with contextlib.suppress(CopyTrouble), _storing(self._order.target):
            self._abort_unknown(cursor)  # what the store cannot drop now must not hold the copy up: `close` asks again
        with _storing(self._order.target):
            if not cursor.target_mark:
                self._require_free()
                cursor.target_mark = [1]

    def _require_free(self) -> None:
        """What lies in the place before the first byte of this copy is not this copy's."""
        found = self._store.first(self._bucket, self._prefix) or self._store.first(self._bucket, self._lone_key())
        if found is not None and found.key.startswith((self._prefix, self._lone_key())):
            is_beside = found.key != self._lone_key() and not found.key.startswith(self._prefix)
            if is_beside:
                return
            told = f"{self._order.target} is there already (s3://{self._bucket}/{found.key}) and was not made by this"
            raise CopyTrouble("target_exists", f"{told} transfer; scan its tier, and remove or verify what lies there")

    def _lone_key(self) -> str:
        return self._prefix.rstrip("/")

    def _uploads(self) -> list[Upload]:
        """Of this place alone: a sibling's name may begin as this one's does (step-10 and step-100)."""
        lone = self._lone_key()
        found = self._store.unfinished(self._bucket, lone)
        return [one for one in found if one.key == lone or one.key.startswith(self._prefix)]

    def _abort_unknown(self, cursor: CopyCursor) -> None:
        """Uploads to this place that the cursor does not know were begun right before a crash, or given up: nobody else
        writes here."""
        known = {one.upload for one in cursor.files if one.upload}
        for upload in self._uploads():
            if upload.upload_id not in known:
                self._store.abort(self._bucket, upload)

    def _key(self, file: CopiedFile) -> str:
        return self._prefix + file.path if self._is_folder else self._lone_key()

    # -- bytes ---------------------------------------------------------------------------------------------------------
    def write(self, file: CopiedFile, offset_bytes: int, data: memoryview) -> None:
        """See `CopyTarget.write`."""
        number = offset_bytes // self.block_bytes + 1
        with _storing(self._order.target):
            upload = self._upload(file)
            sent = self._store.put_part(self._bucket, upload, number, data, file.checksum)
        with self._lock:
            file.parts[str(number)] = [sent.etag, sent.md5, *([str(sent.crc)] if file.checksum else [])]

    def _upload(self, file: CopiedFile) -> Upload:
        with self._lock:
            if not file.upload:
                begun = self._store.begin_summed(self._bucket, self._key(file), self._algorithms)
                file.upload, file.checksum = begun
                self._algorithms = (begun.algorithm,) if begun.algorithm else ()
            return Upload(self._key(file), file.upload)

    def pause(self) -> None:
        """See `CopyTarget.pause`."""

    def written(self, file: CopiedFile) -> Iterator[memoryview]:
        """See `CopyTarget.written`: parts cannot be read, so an unsealed file is copied again from its begin."""
        yield from ()

    def close(self, cursor: CopyCursor, check: Callable[[], None]) -> None:
        """See `CopyTarget.close`: complete the uploads, metadata last; then no other may be left, and that before the
        proof: dropping one must not touch what was proven."""
        later = [one for one in cursor.files if one.role == _METADATA]
        first = [one for one in cursor.files if one.role != _METADATA]
        for files in (first, later):
            with ThreadPoolExecutor(_COMPLETERS, "muster-complete") as pool:
                for _ in pool.map(self._complete, files):
                    check()
        with _storing(self._order.target):
            self._abort_unknown(cursor)

    def _complete(self, file: CopiedFile) -> None:
        if file.etag:
            return
        key = self._key(file)
        with _storing(self._order.target):
            if file.size_bytes == 0:
                file.etag = self._store.write(self._bucket, key, b"", only_new=False).strip('"')
                return
            etags = {int(number): part[0] for number, part in file.parts.items()}
            sums = self._sums_of(file) if file.checksum else None
            try:
                self._store.complete(self._bucket, Upload(key, file.upload), etags, sums)
            except FileNotFoundError:
                pass  # an earlier attempt completed it, or somebody dropped it
            except OSError as error:
                file.refusals += 1
                if file.refusals < _MOST_REFUSALS or isinstance(error, BucketRefused | BucketMissing):
                    raise
                self._give_up(file, key, error)
            file.etag = self._completed(file, key)
            if sums is not None:
                file.sent_sum = f"{sums.algorithm}:{sums.whole_hex()}"

    def _give_up(self, file: CopiedFile, key: str, error: OSError) -> None:
        """A store whose gateway died amid a completion may answer with 500 to that upload for good. Returns where the
        object is there all the same."""
        seen = self._store.head(self._bucket, key)
        if seen is not None and seen == (file.size_bytes, _expected_etag(file)):
            return
        with contextlib.suppress(OSError):
            self._store.abort(self._bucket, Upload(key, file.upload))
        told = f"the store did not complete the upload of s3://{self._bucket}/{key}, asked {file.refusals} times"
        file.lose()
        raise CopyTrouble("file_lost", f"{told} ({error.strerror}); it is made again") from error

    def _completed(self, file: CopiedFile, key: str) -> str:
        """The ETag of the object; not every store's answer to the completion has it. A store that is busy may still be
        at a completion whose answer was lost, and knows neither upload nor object meanwhile."""
        for wait_seconds in _LOOKS_SECONDS:
            time.sleep(wait_seconds)
            seen = self._store.head(self._bucket, key)
            if seen is not None and seen[0] == file.size_bytes:
                return seen[1]
        file.lose()
        raise CopyTrouble("file_lost", f"the upload of s3://{self._bucket}/{key} was dropped; it is made again")

    # -- proof ---------------------------------------------------------------------------------------------------------
    def checksum(self, cursor: CopyCursor) -> str:
        """See `CopyTarget.checksum`: the CRC that the store tells of each object, without reading it; else the MD5 sums
        of the parts. A store whose ETags are no MD5 sums (encrypted ones, say) does not tell by those."""
        found = self._kept_sums(cursor)
        if found and not cursor.proof_note:
            return f"{' and '.join(NAMES[one] for one in found)} of every object"
        is_told = all(one.etag == _expected_etag(one) for one in cursor.files)
        return "MD5 of every part" if is_told else ""

    def _kept_sums(self, cursor: CopyCursor) -> list[str]:
        """The kinds that the store keeps; why not, where it does not, is noted. Raises CopyTrouble `proof_failed`."""
        files = [one for one in cursor.files if one.size_bytes]
        if not all(one.checksum for one in files):
            is_ours = not computable()
            cursor.proof_note = (
                _NOT_INSTALLED if is_ours else f"the store compares neither {' nor '.join(NAMES.values())}"
            )
            return []
        with ThreadPoolExecutor(_COMPLETERS, "muster-sums") as pool, _storing(self._order.target):
            told = list(pool.map(self._told_of, files))
        self._require(cursor, [one for one, kept in zip(files, told, strict=True) if not self._is_as_sent(one, kept)])
        untold = [one.path for one, kept in zip(files, told, strict=True) if not kept]
        cursor.proof_note = f"the store took a CRC of {untold[0]} and does not tell it back" if untold else ""
        return sorted({one.checksum for one in files})

    def _told_of(self, file: CopiedFile) -> str | None:
        """The store's CRC of the object; None where it is gone, or another one."""
        try:
            return self._store.kept_sum(self._bucket, self._key(file), file.etag, file.checksum)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESTALE):
                return None
            raise

    def _is_as_sent(self, file: CopiedFile, told: str | None) -> bool:
        return told is not None and (not told or self._sums_of(file).agree(told))

    def _require(self, cursor: CopyCursor, wrong: Sequence[CopiedFile]) -> None:
        if not wrong:
            return
        for one in wrong:
            one.lose()
        cursor.is_closed = False
        told = ", ".join(f"s3://{self._bucket}/{self._key(one)}" for one in wrong)
        raise CopyTrouble("proof_failed", f"the store does not keep what was sent for {told}; it is made again")

    def _sums_of(self, file: CopiedFile) -> SentSums:
        block = self.block_bytes
        numbers = sorted(map(int, file.parts))
        sizes = [min(block, file.size_bytes - (number - 1) * block) for number in numbers]
        crcs = [int(file.parts[str(number)][2]) for number in numbers]
        return SentSums(file.checksum, tuple(zip(crcs, sizes, strict=True)))

    def read_back(
        self, extents: Sequence[Extent], files: Sequence[CopiedFile], consumer: Consumer, control: JobControl
    ) -> dict[int, OSError]:
        """See `CopyTarget.read_back`."""
        place = BucketPlace(self._order.target, self._store)
        shards = place.stat_all([one.path for one in files])
        replaced = {
            index: Replaced(errno.ESTALE, "it is not the object that was written")
            for index, (one, seen) in enumerate(zip(files, shards, strict=True))
            if seen.error is None and seen.etag.strip('"') != one.etag
        }
        if replaced:
            return dict(replaced)
        totals = read_shards(
            extents,
            shards,
            consumer,
            control,
            ReadingPass("prove", self._order.chunk_bytes, self._order.threads),
            place=place,
        )
        return dict(totals.errors)

    def stats(self, files: Sequence[CopiedFile]) -> list[Stat]:
        """See `CopyTarget.stats`. A bucket keeps no times of files: these are when the objects were made."""
        with _storing(self._order.target):
            found = self._store.objects(self._bucket, self._lone_key(), one_level=False, check=lambda: None)
        seen = {one.key: one for one in found.objects}
        stats = []
        for one in files:
            there = seen.get(self._key(one))
            if there is None:
                one.lose()
                raise CopyTrouble("file_lost", f"s3://{self._bucket}/{self._key(one)} is gone; it is made again")
            stats.append((one.path, there.size_bytes, there.mtime_ns))
        return stats

    # -- after ---------------------------------------------------------------------------------------------------------
    def switch(self, manifest: Manifest, cursor: CopyCursor) -> None:
        """See `CopyTarget.switch`: the objects are in their places, and the manifest says that they are whole."""
        files = BucketPlace(self._order.target, self._store).files
        there = None
        with _storing(self._order.target):
            with contextlib.suppress(beside.ManifestUnreadable):
                there = beside.read_beside(self._order.target, files)
            if there is not None and manifest_id(there) == manifest_id(manifest):
                return
            if there is not None:
                told = f"{self._order.target} has a manifest that this transfer did not write; scan its tier"
                raise CopyTrouble("target_exists", told)
            failpoint("switch.manifest")
            beside.write_beside(self._order.target, manifest, files)
            failpoint("switch.renamed")

    def discard(self, cursor: CopyCursor) -> None:
        """See `CopyTarget.discard`."""
        if cursor.is_switched:
            return
        with _storing(self._order.target):
            known = {self._key(one): one for one in cursor.files}
            for upload in self._uploads():
                if upload.key in known:
                    self._store.abort(self._bucket, upload)
            found = self._store.objects(self._bucket, self._lone_key(), one_level=False, check=lambda: None)
            for seen in found.objects:
                ours = known.get(seen.key)
                if ours is not None and seen.etag.strip('"') in (ours.etag, _expected_etag(ours)):
                    self._store.delete(self._bucket, seen.key)


def _expected_etag(file: CopiedFile) -> str:
    if file.size_bytes == 0:
        return hashlib.md5(b"", usedforsecurity=False).hexdigest()
    if not file.parts:
        return ""
    return etag_of_parts({int(number): part[1] for number, part in file.parts.items()})


@contextlib.contextmanager
def _storing(place: str) -> Iterator[None]:
    try:
        yield
    except BucketMissing as error:
        raise CopyTrouble(
            "target_unreachable", f"there is no such bucket: {place}; make it, or correct the tier"
        ) from error
    except BucketRefused as error:
        code = "quota" if "Quota" in str(error) else "denied"
        raise CopyTrouble(code, f"writing to {place} was refused: {error.strerror}; {error.hint}") from error
    except OSError as error:
        code = "store_busy" if error.errno in (errno.EIO, errno.EAGAIN, errno.ETIMEDOUT) else "io_error"
        raise CopyTrouble(code, f"writing to {place} failed: {error.strerror or error}") from error
