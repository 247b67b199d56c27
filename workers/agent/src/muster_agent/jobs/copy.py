"""Copying one checkpoint: every byte read once, checked on its way, proven at the target, and only then in its place.

The work can stop at any moment and go on elsewhere from its cursor. What the cursor says of the target is only what the
writer knew; the proof reads what really lies there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from muster_agent.jobs.control import JobControl
from muster_agent.jobs.copy_blocks import CopyConsumer, ExpectedDigests, ProofConsumer
from muster_agent.jobs.copy_names import require_cursor_inside, require_tag
from muster_agent.jobs.copy_seal import CopySeal, copy_manifest, survey
from muster_agent.jobs.copy_source import CopySource, require_whole
from muster_agent.jobs.copy_target import CopyTarget, Replaced
from muster_agent.jobs.copy_trouble import CopyTrouble, source_trouble, target_trouble
from muster_agent.jobs.failpoints import failpoint
from muster_agent.manifest.model import Manifest
from muster_agent.protocol.copies import CopiedFile, CopyCursor, CopyOrder
from muster_agent.reload.plan import Extent
from muster_agent.reload.totals import ReadTotals
from muster_agent.storage.s3_writer import S3Writer
from muster_agent.storage.throttle import Throttle

UNIT_BYTES = 256 * 1024 * 1024
UNIT_FILES = 256
"""What is read in one pass; after each the cursor is offered for saving."""
Save = Callable[[], None]


class Part(NamedTuple):
    """Bytes of one file: of the file number `file` of the cursor, from `begin` to `end`."""

    file: int
    begin: int
    end: int


class _Pass(JobControl):
    """One pass of many: what it moves is told on top of what the passes before it moved."""

    def __init__(self, outer: JobControl, moved_bytes: int, total_bytes: int) -> None:
        super().__init__(lambda phase, done_bytes, _total: outer.progress(phase, moved_bytes + done_bytes, total_bytes))
        self._outer = outer

    def check(self) -> None:
        self._outer.check()

    def cancel(self) -> None:
        self._outer.cancel()

    @property
    def cancelled(self) -> bool:
        return self._outer.cancelled


class CopyJob:
    """The steps of one copy, in order: `survey`, `copy`, `prove`, `switch`. Each may be called again after it was
    interrupted, and does only what is left. `save` is called whenever the cursor got further. All raise CopyTrouble,
    and Cancelled within one block of being told to stop; the cursor is right after any of them."""

    def __init__(
        self,
        order: CopyOrder,
        cursor: CopyCursor,
        target: CopyTarget,
        save: Save = lambda: None,
        *,
        store: S3Writer | None = None,
    ) -> None:
        """`store`: the client for a source in a bucket. Raises CopyTrouble for names that lead out of their place."""
        require_tag(order.tag)
        require_cursor_inside(order.source, cursor)
        self.order, self.cursor, self._target, self._save = order, cursor, target, save
        self._source = CopySource(order, store)
        self._throttle = Throttle(order.max_bytes_per_second, debt_seconds=cursor.debt_seconds)
        self._expected: ExpectedDigests | None = None
        self._lock = threading.Lock()

    def look(self) -> None:
        """Whether both tiers are there, and the same as when the copy began."""
        self._source.look(self.cursor)
        self._target.look(self.cursor)

    def survey(self, check: Callable[[], None] = lambda: None) -> None:
        """Find out what is to be copied; nothing is written. What lies in an archive is brought back first."""
        if not self.cursor.is_surveyed:
            cursor = self.cursor
            self._source.bring_back(cursor, check)
            cursor.files, cursor.left_out, cursor.folders = survey(self.order, self._source)
            cursor.is_surveyed = True
            self._save()

    # -- copying -------------------------------------------------------------------------------------------------------
    def copy(self, control: JobControl) -> None:
        """Bring every byte to the target, checked against the seal on its way (or sealed, where there is none), and
        make it durable."""
        cursor = self.cursor
        if cursor.is_closed:
            return
        self._pay_debt(control)
        self._target.begin(cursor)
        failpoint("copy.begun")
        seal = CopySeal(self._source, cursor.files) if self.order.manifest is None else None
        try:
            before, left = cursor.copied_bytes, cursor.total_bytes - cursor.copied_bytes
            for parts in _units(cursor.files, _not_copied, self._target.block_bytes):
                self._copy_unit(parts, seal, _Pass(control, cursor.copied_bytes - before, left))
                self._save()
                failpoint("copy.written")
        finally:
            self._target.pause()
        self._source.require_unchanged(cursor.files)
        self._target.close(cursor, control.check)
        cursor.manifest = copy_manifest(self.order, self._source, cursor.files, self._target.stats(cursor.files))
        cursor.is_closed = True
        failpoint("copy.closed")
        self._save()

    def _copy_unit(self, parts: Sequence[Part], seal: CopySeal | None, control: JobControl) -> None:
        files, expected = self.cursor.files, self._digests()
        numbers = [part.file for part in parts]
        if seal is not None:
            for number in numbers:
                seal.catch_up(number, self._target, expected, control)
        consumer = CopyConsumer(numbers, files, expected, self._write, self._slow_down, seal.consumer if seal else None)
        try:
            totals = self._read_source(parts, consumer, control)
        finally:
            for number, prefix in consumer.prefixes.items():
                files[number].copied_bytes = prefix.bytes
                expected.save(number, prefix.bytes)
            self.cursor.debt_seconds = self._throttle.debt_seconds
            self._target.pause()
        self._require_read(numbers, totals)
        if seal is not None:
            for number in numbers:
                seal.finish(number)

    def _read_source(self, parts: Sequence[Part], consumer: CopyConsumer, control: JobControl) -> ReadTotals:
        files = [self.cursor.files[part.file] for part in parts]
        extents = [Extent(index, part.begin, part.end - part.begin) for index, part in enumerate(parts)]
        chunk_bytes = max(self.order.chunk_bytes, self._target.block_bytes)
        return self._source.read(extents, files, consumer, control, chunk_bytes)

    def _require_read(self, numbers: Sequence[int], totals: ReadTotals) -> None:
        for index, error in totals.errors.items():
            raise source_trouble(error, self.cursor.files[numbers[index]].path) from error

    def _write(self, number: int, offset_bytes: int, data: memoryview) -> None:
        self._target.write(self.cursor.files[number], offset_bytes, data)

    def _slow_down(self, size_bytes: int, check: Callable[[], None]) -> None:
        self._throttle.wait(size_bytes, check)

    def _pay_debt(self, control: JobControl) -> None:
        """Wait for what the last slice moved ahead of its rate."""
        try:
            self._throttle.wait(0, control.check)
        finally:
            self.cursor.debt_seconds = self._throttle.debt_seconds

    def _digests(self) -> ExpectedDigests:
        if self._expected is None:
            self._expected = ExpectedDigests(self.cursor.files, self.order.manifest, self.order.chunk_bytes)
        return self._expected

    # -- proof ---------------------------------------------------------------------------------------------------------
    def prove(self, control: JobControl) -> None:
        """Read the copy back from the target and compare every chunk; or rely on the checksum that the store compared,
        where the order says so. What differs is to be copied again: CopyTrouble `proof_failed`."""
        cursor = self.cursor
        checksum = self._target.checksum(cursor) if self.order.proof == "checksum" else ""
        if checksum:
            for one in cursor.files:
                one.proven_bytes = one.size_bytes
            cursor.proved_by = checksum
            return
        cursor.proved_by = "read_back"
        self._pay_debt(control)
        before, left = cursor.proven_bytes, cursor.total_bytes - cursor.proven_bytes
        for parts in _units(cursor.files, _not_proven, self.order.chunk_bytes):
            self._prove_unit(parts, _Pass(control, cursor.proven_bytes - before, left))
            self._save()
            failpoint("prove.read")

    def _prove_unit(self, parts: Sequence[Part], control: JobControl) -> None:
        files = self.cursor.files
        numbers = [part.file for part in parts]
        consumer = ProofConsumer(numbers, files, self._digests(), self._slow_down)
        extents = [Extent(index, part.begin, part.end - part.begin) for index, part in enumerate(parts)]
        try:
            errors = self._target.read_back(extents, [files[number] for number in numbers], consumer, control)
        finally:
            for number, prefix in consumer.prefixes.items():
                files[number].proven_bytes = prefix.bytes
            self.cursor.debt_seconds = self._throttle.debt_seconds
        for index, error in errors.items():
            if not isinstance(error, FileNotFoundError | Replaced):
                raise target_trouble(error, files[numbers[index]].path) from error
            consumer.wrong[numbers[index]] = 0
        if consumer.wrong:
            for number, begin in consumer.wrong.items():
                self._copy_again(number, begin)
            told = ", ".join(f"{files[number].path} from byte {begin}" for number, begin in consumer.wrong.items())
            raise CopyTrouble(
                "proof_failed", f"what was read back from {self.order.target} is not what was written: {told}"
            )

    def _copy_again(self, number: int, begin: int) -> None:
        """What was read back is not what was written: nothing of the file from there on counts as copied."""
        one = self.cursor.files[number]
        one.copied_bytes = begin - begin % self._target.block_bytes
        one.proven_bytes = min(one.proven_bytes, one.copied_bytes)
        one.forget_upload()
        if not self._target.patches or (not one.is_sealed and one.is_shard):
            one.copied_bytes = one.proven_bytes = 0
        if not one.is_sealed:
            one.xxh3_128, one.tensors = "", []
        self._digests().forget(number, one.copied_bytes)
        self._digests().save(number, one.copied_bytes)
        self.cursor.is_closed = False

    # -- the switch ----------------------------------------------------------------------------------------------------
    def switch(self) -> Manifest:
        """Put the proven copy in its place, with the manifest beside it, and look that it reads as the checkpoint that
        it is a copy of. Gives that manifest."""
        cursor = self.cursor
        assert cursor.is_closed and cursor.manifest is not None and cursor.proven_bytes == cursor.total_bytes
        if not cursor.is_switched:
            self._target.switch(cursor.manifest, cursor)
            cursor.is_switched = True
            self._save()
        return cursor.manifest

    def discard(self) -> None:
        """Remove what this copy left at the target; one that was switched stays."""
        self._target.discard(self.cursor)

    @property
    def is_proven(self) -> bool:
        return self.cursor.is_closed and self.cursor.proven_bytes == self.cursor.total_bytes


def run_copy(
    order: CopyOrder, target: CopyTarget, control: JobControl, *, store: S3Writer | None = None
) -> tuple[CopyCursor, float]:
    """The whole copy in one go; gives its cursor and the seconds that it took. `store`: the client for buckets."""
    began = time.monotonic()
    job = CopyJob(order, CopyCursor(), target, store=store)
    job.look()
    job.survey()
    job.copy(control)
    job.prove(control)
    job.switch()
    require_whole(order.target, store)
    return job.cursor, time.monotonic() - began


def _not_copied(file: CopiedFile) -> int:
    return file.copied_bytes


def _not_proven(file: CopiedFile) -> int:
    return file.proven_bytes


def _units(files: Sequence[CopiedFile], done: Callable[[CopiedFile], int], block_bytes: int) -> Iterator[list[Part]]:
    """What is left, in passes of bounded size, none with two parts of one file; parts begin at whole blocks."""
    unit: list[Part] = []
    size = 0
    for part in _left(files, done, block_bytes):
        unit.append(part)
        size += part.end - part.begin
        if size >= UNIT_BYTES or len(unit) >= UNIT_FILES:
            yield unit
            unit, size = [], 0
    if unit:
        yield unit


def _left(files: Iterable[CopiedFile], done: Callable[[CopiedFile], int], block_bytes: int) -> Iterator[Part]:
    step = max(block_bytes, UNIT_BYTES - UNIT_BYTES % block_bytes)
    for number, file in enumerate(files):
        begin = done(file)
        begin -= begin % block_bytes if begin < file.size_bytes else 0
        while begin < file.size_bytes:
            end = min(begin + step, file.size_bytes)
            yield Part(number, begin, end)
            begin = end
