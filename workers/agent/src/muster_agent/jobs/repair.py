"""Repairing one damaged copy from another: only the bad chunks are rewritten, each compared with the seal before it is
written, and at the end every byte of the copy is read again.

Killed at any moment it goes on from its cursor: a chunk that was being written was bad before, and is written again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
import xxhash

from muster_agent.formats.base import Finding, Severity
from muster_agent.jobs.checkpoint_place import CheckpointPlace, StatedShard
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.copy_trouble import CopyTrouble, source_trouble
from muster_agent.jobs.failpoints import failpoint
from muster_agent.jobs.verify import SeenShard, Verification, VerifyCursor
from muster_agent.manifest.compare import DIGEST_CHARACTERS, verdict
from muster_agent.manifest.model import Manifest, ShardDigest
from muster_agent.manifest.rewrites import CHANGED
from muster_agent.protocol.wire import VerifyBody
from muster_agent.storage.throttle import Throttle

Save = Callable[[], None]


class BadFile(msgspec.Struct, kw_only=True):
    """One file with damage, as it lay when that was found. `chunks`: numbers of those that are left to be written."""

    path: str
    location: str
    found_bytes: int | None
    mtime_ns: int
    etag: str = ""
    chunks: list[int] = msgspec.field(default_factory=list)
    is_touched: bool = False
    """Said before the first byte is written: from then on other bytes and times in it are the repair's own."""
    is_done: bool = False
    upload: str = ""
    parts: dict[str, str] = msgspec.field(default_factory=dict)
    """Of an upload into a bucket: part number -> ETag."""


class RepairCursor(msgspec.Struct, kw_only=True):
    """How far a repair is; enough to go on after a crash, in another process or on another host."""

    survey: VerifyCursor = msgspec.field(default_factory=VerifyCursor)
    is_surveyed: bool = False
    files: list[BadFile] = msgspec.field(default_factory=list)
    written_bytes: int = 0
    is_written: bool = False
    manifest: Manifest | None = None
    """The seal of the repaired copy, where its files got other times."""
    proof: VerifyCursor = msgspec.field(default_factory=VerifyCursor)

    @property
    def bad_chunks(self) -> int:
        return sum(len(file.chunks) for file in self.files)


class GoodCopy:
    """The copy that chunks are taken from. Not one byte of it is relied on: each chunk must be as the seal of the
    damaged copy says."""

    def __init__(self, place: CheckpointPlace, manifest: Manifest, max_bytes_per_second: int | None) -> None:
        self._place, self.chunk_bytes = place, manifest.chunk_bytes
        self._sealed = {shard.path: shard for shard in manifest.shards}
        self._stated: dict[str, StatedShard] = {}
        self._throttle = Throttle(max_bytes_per_second)

    def sealed(self, path: str) -> ShardDigest:
        return self._sealed[path]

    def chunk(self, path: str, index: int, check: Callable[[], None]) -> bytes:
        """Raises CopyTrouble `source_damaged` where it is not the chunk that was sealed."""
        shard = self._sealed[path]
        begin = index * self.chunk_bytes
        length = min(self.chunk_bytes, shard.size_bytes - begin)
        self._throttle.wait(length, check)
        data = self._read(path, begin, length)
        expected = shard.chunks_xxh3_64[index * DIGEST_CHARACTERS : (index + 1) * DIGEST_CHARACTERS]
        if len(data) != length or xxhash.xxh3_64_hexdigest(data) != expected:
            told = f"chunk {index} of {path} in {self._place.path} is not what was sealed either"
            raise CopyTrouble("source_damaged", f"{told}; it was not written. Verify that copy, or repair from another")
        return data

    def _read(self, path: str, begin: int, length: int) -> bytes:
        if path not in self._stated:
            self._stated[path] = self._place.stat_all([path])[0]
        stated = self._stated[path]
        try:
            if stated.error is not None:
                raise stated.error
            with self._place.open_file(stated) as file:
                return file.pread(length, begin)
        except OSError as error:
            raise source_trouble(error, f"{self._place.path}/{path}") from error


class RepairTarget(Protocol):
    """What differs between a file system and a bucket."""

    def write(self, file: BadFile, good: GoodCopy, save: Save, check: Callable[[], None]) -> int:
        """Write the chunks that are left, and give the file its sealed size and, where the storage keeps times, its
        sealed time; how many bytes. `save` is called before the first byte and after each step that must not be
        forgotten. Raises CopyTrouble, and what `check` raises."""
        ...

    def settle(self, manifest: Manifest) -> Manifest:
        """Once all is written: the seal of the files as they lie now, also beside them."""
        ...


class RepairJob:
    """The steps in order: `survey`, `write`, `prove`. Each may be called again after it was interrupted. All raise
    CopyTrouble, and Cancelled with the cursor right."""

    def __init__(
        self,
        place: CheckpointPlace,
        manifest: Manifest,
        good: GoodCopy,
        target: RepairTarget,
        cursor: RepairCursor,
        save: Save,
    ) -> None:
        self._place, self._manifest, self._good, self._target = place, manifest, good, target
        self.cursor, self._save = cursor, save

    def survey(self, control: JobControl) -> None:
        """Read the damaged copy and find out which chunks are bad."""
        if self.cursor.is_surveyed:
            return
        work = Verification(self._place, self._manifest, self.cursor.survey)
        work.read(control)
        body = work.result()
        damaged = _damaged_files(body)
        self.cursor.files = [self._bad(shard) for shard in self.cursor.survey.shards if shard.path in damaged]
        self.cursor.survey = VerifyCursor()
        self.cursor.is_surveyed = True
        self._save()
        failpoint("repair.surveyed")

    def _bad(self, shard: SeenShard) -> BadFile:
        size_bytes = self._good.sealed(shard.path).size_bytes
        count = -(-size_bytes // self._manifest.chunk_bytes)
        bad = [index for index in range(count) if shard.digests.get(index, "missing")]
        return BadFile(
            path=shard.path,
            location=shard.location,
            found_bytes=shard.size_bytes,
            mtime_ns=shard.mtime_ns,
            etag=shard.etag,
            chunks=bad,
        )

    def write(self, control: JobControl) -> None:
        """Rewrite what is bad, and nothing else."""
        cursor = self.cursor
        if cursor.is_written:
            return
        for file in cursor.files:
            if not file.is_done:
                cursor.written_bytes += self._target.write(file, self._good, self._save, control.check)
                file.is_done = True
                self._save()
                failpoint("repair.written")
        cursor.manifest = self._target.settle(self._manifest)
        cursor.is_written = True
        self._save()
        failpoint("repair.settled")

    def prove(self, control: JobControl) -> VerifyBody:
        """Read every byte of the repaired copy. Raises CopyTrouble `proof_failed` where it is not whole."""
        manifest = self.cursor.manifest or self._manifest
        work = Verification(self._place, manifest, self.cursor.proof)
        work.read(control)
        body = work.result()
        if body.verified is not True:
            told = body.findings[0].detail if body.findings else "it could not be read to its end"
            raise CopyTrouble("proof_failed", f"the repaired copy is not whole: {told}")
        failpoint("repair.proven")
        return body


def _damaged_files(body: VerifyBody) -> set[str]:
    """Files that are damaged under their sealed time. Raises CopyTrouble where the copy is another one than was sealed,
    or could not be looked at: then it is not for a repair to write there."""
    again = [found for found in body.findings if found.code == CHANGED]
    if again:
        raise CopyTrouble(
            "target_changed", f"{again[0].detail}; scan its tier, and look whether somebody saved it again"
        )
    if verdict(body.findings) is None:
        raise CopyTrouble("target_unreachable", _first(body.findings))
    return {found.path for found in body.findings if found.severity is Severity.DAMAGE}


def _first(findings: tuple[Finding, ...]) -> str:
    return findings[0].detail if findings else "it could not be read"
