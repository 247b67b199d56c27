"""How blocks that land in any order add up to a prefix, and what is done with each on its way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from muster_agent.formats.codes import finding
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.manifest.compare import DIGEST_CHARACTERS
from muster_agent.manifest.model import Manifest
from muster_agent.manifest.seal import chunk_digests
from muster_agent.protocol.copies import CopiedFile
from muster_agent.reload.plan import Extent
from muster_agent.reload.reader import Check, Consumer


class Prefix:
    """Bytes from the begin of one file of which every block has landed. Thread-safe."""

    def __init__(self, begin_bytes: int) -> None:
        self.bytes = begin_bytes
        self._ahead: dict[int, int] = {}
        self._lock = threading.Lock()

    def add(self, offset_bytes: int, length_bytes: int) -> None:
        """A block has landed."""
        with self._lock:
            self._ahead[offset_bytes] = length_bytes
            while self.bytes in self._ahead:
                self.bytes += self._ahead.pop(self.bytes)


class ExpectedDigests:
    """XXH3-64 by file and chunk: those of the manifest, and those that the copy itself made on its way."""

    def __init__(self, files: Sequence[CopiedFile], manifest: Manifest | None, chunk_bytes: int) -> None:
        self.chunk_bytes = chunk_bytes
        sealed = {} if manifest is None else {shard.path: shard.chunks_xxh3_64 for shard in manifest.shards}
        self._sealed = [sealed.get(one.path) if one.is_sealed else None for one in files]
        self._made: list[dict[int, str]] = [_pieces(one.chunks) for one in files]
        self._files = files

    def check(self, number: int, first_chunk: int, digests: Sequence[str]) -> int | None:
        """The first chunk whose digest is not the sealed one; None where all are right, or where there is no seal: then
        they are remembered."""
        sealed = self._sealed[number]
        if sealed is None:
            self._made[number].update(enumerate(digests, first_chunk))
            return None
        return self._first_other(sealed, first_chunk, digests)

    def compare(self, number: int, first_chunk: int, digests: Sequence[str]) -> int | None:
        """The first chunk that is not as it was at the source."""
        sealed = self._sealed[number]
        if sealed is not None:
            return self._first_other(sealed, first_chunk, digests)
        made = self._made[number]
        return next((index for index, one in enumerate(digests, first_chunk) if made.get(index) != one), None)

    def _first_other(self, sealed: str, first_chunk: int, digests: Sequence[str]) -> int | None:
        begin = first_chunk * DIGEST_CHARACTERS
        if sealed[begin : begin + len(digests) * DIGEST_CHARACTERS] == "".join(digests):
            return None
        return next(
            index
            for index, one in enumerate(digests, first_chunk)
            if sealed[index * DIGEST_CHARACTERS : (index + 1) * DIGEST_CHARACTERS] != one
        )

    def save(self, number: int, prefix_bytes: int) -> None:
        """Write what was made of one file, up to that byte, into its row of the cursor."""
        if self._sealed[number] is None:
            count = -(-prefix_bytes // self.chunk_bytes)
            made = self._made[number]
            self._files[number].chunks = "".join(made[index] for index in range(count))

    def forget(self, number: int, prefix_bytes: int) -> None:
        """The bytes from there on are to be copied again."""
        self._made[number] = {
            index: one for index, one in self._made[number].items() if index * self.chunk_bytes < prefix_bytes
        }


def _pieces(text: str) -> dict[int, str]:
    starts = range(0, len(text), DIGEST_CHARACTERS)
    return dict(enumerate(text[begin : begin + DIGEST_CHARACTERS] for begin in starts))


class CopyConsumer:
    """Checks each block against the seal, hands it to the sealing (where there is no seal yet) and writes it."""

    def __init__(
        self,
        numbers: Sequence[int],
        files: Sequence[CopiedFile],
        expected: ExpectedDigests,
        write: Callable[[int, int, memoryview], None],
        slow_down: Callable[[int, Check], None],
        sealing: Consumer | None = None,
    ) -> None:
        """`numbers`: the file of each shard of this pass. `write(file, offset, data)` raises CopyTrouble."""
        self._numbers, self._files, self._expected = numbers, files, expected
        self._write, self._slow_down, self._sealing = write, slow_down, sealing
        self.prefixes = {number: Prefix(files[number].copied_bytes) for number in numbers}

    def landed(self, extent: Extent, data: memoryview, check: Check) -> None:
        """See `reload.reader.Consumer`."""
        number = self._numbers[extent.shard]
        file = self._files[number]
        if len(data) < extent.length_bytes:
            raise CopyTrouble("source_changed", f"{file.path} became shorter while it was copied")
        digests = chunk_digests(data, self._expected.chunk_bytes)
        wrong = self._expected.check(number, extent.offset_bytes // self._expected.chunk_bytes, digests)
        if wrong is not None:
            raise _damaged(file, wrong, self._expected.chunk_bytes)
        if self._sealing is not None and not file.is_sealed and file.is_shard:
            self._sealing.landed(extent._replace(shard=number), data, check)
        self._write(number, extent.offset_bytes, data)
        self.prefixes[number].add(extent.offset_bytes, len(data))
        self._slow_down(len(data), check)  # last: a slice too short for one more block at this rate must not lose it

    def hashed(self, extent: Extent, digests: Sequence[int]) -> None:
        """Never called: what is copied passes through host memory."""

    def lost(self, extent: Extent) -> None:
        """See `reload.reader.Consumer`."""
        number = self._numbers[extent.shard]
        if self._sealing is not None and not self._files[number].is_sealed and self._files[number].is_shard:
            self._sealing.lost(extent._replace(shard=number))


class ProofConsumer:
    """Compares what was read back with what was copied."""

    def __init__(
        self,
        numbers: Sequence[int],
        files: Sequence[CopiedFile],
        expected: ExpectedDigests,
        slow_down: Callable[[int, Check], None],
    ) -> None:
        self._numbers, self._expected, self._slow_down = numbers, expected, slow_down
        self.prefixes = {number: Prefix(files[number].proven_bytes) for number in numbers}
        self.wrong: dict[int, int] = {}
        """File -> the first byte of its lowest chunk that differs."""
        self._lock = threading.Lock()

    def landed(self, extent: Extent, data: memoryview, check: Check) -> None:
        """See `reload.reader.Consumer`."""
        number = self._numbers[extent.shard]
        digests = chunk_digests(data, self._expected.chunk_bytes)
        wrong = self._expected.compare(number, extent.offset_bytes // self._expected.chunk_bytes, digests)
        if wrong is None and len(data) == extent.length_bytes:
            self.prefixes[number].add(extent.offset_bytes, len(data))
            self._slow_down(len(data), check)
            return
        begin = extent.offset_bytes if wrong is None else wrong * self._expected.chunk_bytes
        with self._lock:
            self.wrong[number] = min(begin, self.wrong.get(number, begin))

    def hashed(self, extent: Extent, digests: Sequence[int]) -> None:
        """Never called: the proof reads into host memory."""

    def lost(self, extent: Extent) -> None:
        """See `reload.reader.Consumer`: the error is in the totals."""


def _damaged(file: CopiedFile, chunk: int, chunk_bytes: int) -> CopyTrouble:
    begin, end = chunk * chunk_bytes, min((chunk + 1) * chunk_bytes, file.size_bytes)
    detail = f"bytes {begin} to {end} of {file.path} differ from what was sealed"
    found = finding("digest_mismatch", path=file.path, detail=detail, begin_byte=begin, end_byte=end)
    return CopyTrouble("source_damaged", f"{detail}; nothing was removed. Verify it, and repair it.", findings=[found])
