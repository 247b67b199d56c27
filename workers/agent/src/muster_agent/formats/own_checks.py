"""The check sums that formats carry themselves, held against the bytes before those are sealed: a zip's CRC-32 (files
of torch.save, the records of DCP), the CRC-32C of OCDBT, and what else a line in `SOURCES` finds. Sealing damaged bytes
would bless them.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from muster_agent.formats import integrity, ocdbt_sums
from muster_agent.formats.base import Finding, ShardMap
from muster_agent.formats.codes import finding
from muster_agent.formats.crc32c import crc32c
from muster_agent.formats.fast_crc import fast_crc
from muster_agent.formats.folder import Folder, trouble
from muster_agent.formats.recorded import Open, RecordedSum, Source
from muster_agent.formats.tree import Opened
from muster_agent.formats.zip_directory import (
    END_BYTES,
    END_MAGIC,
    LOCAL_MAGIC,
    Archive,
    Member,
    ZipRefused,
    payload_begin,
    read_archive,
)

_MAX_LISTED = 100
_BLOCK_BYTES = 4 * 1024 * 1024
_SEARCH_BYTES = 1024 * 1024
_MAX_REFUSALS = 1000
"""After so many zips of one file that cannot be read, what lies before them is not searched for."""


class Hasher(Protocol):
    """What hashlib's objects are."""

    def update(self, data: memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


class Crc32:
    """CRC-32 as zip records it. See `Hasher`."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: memoryview, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


class Crc32c:
    """CRC-32C as OCDBT and object stores record it. See `Hasher`."""

    def __init__(self) -> None:
        self._value, self._fast = 0, fast_crc("crc32c")

    def update(self, data: memoryview, /) -> None:
        fast = self._fast
        self._value = crc32c(bytes(data), self._value) if fast is None else fast.of(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


class Crc64Nvme:
    """CRC-64/NVME as object stores record it; only where `fast_crc` has it. See `Hasher`."""

    def __init__(self) -> None:
        fast = fast_crc("crc64nvme")
        assert fast is not None, "a sum of a kind that cannot be computed here is never handed on"
        self._value, self._fast = 0, fast

    def update(self, data: memoryview, /) -> None:
        self._value = self._fast.of(data, self._value)

    def hexdigest(self) -> str:
        return self._fast.hexed(self._value)


class PartsMd5:
    """What object stores call the ETag of an upload in parts of these sizes: the MD5 of the parts' MD5s and their
    number; the plain MD5 for `(size,)`, an object that was sent whole. See `Hasher`."""

    def __init__(self, part_bytes: Sequence[int], *, in_parts: bool) -> None:
        self._left = list(reversed(part_bytes))
        self._count, self._in_parts = len(part_bytes), in_parts
        self._parts: list[bytes] = []
        self._part = hashlib.md5(usedforsecurity=False)

    def update(self, data: memoryview, /) -> None:
        while len(data):
            taken = min(len(data), self._left[-1])
            self._part.update(data[:taken])
            data = data[taken:]
            self._left[-1] -= taken
            if not self._left[-1]:
                self._left.pop()
                self._parts.append(self._part.digest())
                self._part = hashlib.md5(usedforsecurity=False)

    def hexdigest(self) -> str:
        if not self._in_parts:
            return self._parts[0].hex()
        return f"{hashlib.md5(b''.join(self._parts), usedforsecurity=False).hexdigest()}-{self._count}"


def _hasher(recorded: RecordedSum) -> Hasher:
    if recorded.part_bytes:
        return PartsMd5(recorded.part_bytes, in_parts="-" in recorded.expected)
    return HASHERS[recorded.algorithm]()


HASHERS: dict[str, Callable[[], Hasher]] = {
    "crc32": Crc32,
    "crc32c": Crc32c,
    "crc64nvme": Crc64Nvme,
    "sha256": hashlib.sha256,
    "sha1": partial(hashlib.sha1, usedforsecurity=False),
}


def recorded_sums(shard_map: ShardMap, open_shard: Open) -> dict[str, list[RecordedSum]]:
    """All sums that the checkpoint carries, by shard path. `open_shard` opens a shard by its path. A file that cannot
    be opened has none here; reading it will say why."""
    found: dict[str, list[RecordedSum]] = {}
    for source in SOURCES:
        for path, sums in source(shard_map, open_shard).items():
            found.setdefault(path, []).extend(sums)
    return found


class SumChecker:
    """Takes a shard's bytes in order and compares each recorded range as it ends. `findings` are what differed."""

    def __init__(self, path: str, sums: Iterable[RecordedSum]) -> None:
        self.findings: list[Finding] = []
        self.checked_bytes = 0
        self._path = path
        self._at = 0
        self._waiting = sorted(sums, reverse=True)
        self._open: list[tuple[RecordedSum, Hasher]] = []

    def update(self, data: memoryview) -> None:
        """The next bytes of the shard."""
        begin, end = self._at, self._at + len(data)
        while self._waiting and self._waiting[-1].begin < end:
            recorded = self._waiting.pop()
            self._open.append((recorded, _hasher(recorded)))
        still_open = []
        for recorded, hasher in self._open:
            hasher.update(data[max(recorded.begin - begin, 0) : recorded.end - begin])
            if recorded.end > end:
                still_open.append((recorded, hasher))
            else:
                self._compare(recorded, hasher.hexdigest())
        self._open = still_open
        self._at = end

    def _compare(self, recorded: RecordedSum, actual: str) -> None:
        if recorded.part_bytes and actual != recorded.expected:
            return
        self.checked_bytes += recorded.end - recorded.begin
        if actual == recorded.expected or len(self.findings) >= _MAX_LISTED:
            return
        detail = (
            f"{recorded.what} of {self._path} has the {recorded.algorithm} {actual}, and {recorded.expected} was "
            "recorded when it was saved"
        )
        found = finding(
            "digest_mismatch", path=self._path, detail=detail, begin_byte=recorded.begin, end_byte=recorded.end
        )
        self.findings.append(found)


def check_file(opened: Opened, path: str, sums: Iterable[RecordedSum]) -> list[Finding]:
    """Read a whole file and compare. Raises OSError."""
    checker = SumChecker(path, sums)
    for at in range(0, opened.size_bytes, _BLOCK_BYTES):
        checker.update(memoryview(opened.pread(min(_BLOCK_BYTES, opened.size_bytes - at), at)))
    return checker.findings


def crc_findings(folder: Folder, name: str) -> list[Finding]:
    """The deep check of one file of torch.save (or of DCP's records): read every stored member and compare it with the
    CRC-32 that the zip recorded. Nothing is found where the writer recorded none. Raises nothing."""
    try:
        with folder.open(name) as opened:
            return check_file(opened, name, zip_sums(opened))
    except OSError as error:
        detail = f"{name} could not be read: {error.strerror or type(error).__name__}"
        return [finding(trouble(error, f"{folder.path}/{name}").code, path=name, detail=detail)]


# -- zip ---------------------------------------------------------------------------------------------------------------
def zip_sums(opened: Opened, ranges: Mapping[int, int] | None = None) -> list[RecordedSum]:
    """The sums of all zips that lie one behind the other in a file: one in a file of torch.save, one per record in a
    file of DCP. `ranges` gives the begins, by their ends, of ranges that may be no zips. A zip that cannot be read
    hides none of those before it. Compressed members are left out. Raises OSError."""
    sums: list[RecordedSum] = []
    end, refusals = opened.size_bytes, 0
    is_zip = opened.pread(len(LOCAL_MAGIC), 0) == LOCAL_MAGIC
    while end > 0:
        archive = _archive_at(opened, end)
        if archive is not None:
            sums.extend(_archive_sums(opened, archive))
            end = archive.begin if archive.begin < end else 0
            continue
        begin = (ranges or {}).get(end)
        refusals += begin is None
        searched = begin is None and is_zip and refusals <= _MAX_REFUSALS
        end = begin if begin is not None else _end_before(opened, end) if searched else 0
    return sums


def _archive_at(opened: Opened, end: int) -> Archive | None:
    try:
        return read_archive(opened, 0, end)
    except ZipRefused:
        return None


def _end_before(opened: Opened, end: int) -> int:
    """Where the last end record of a zip ends that ends before `end`; 0 where there is none."""
    limit = end - END_BYTES
    while limit > 0:
        begin = max(limit - _SEARCH_BYTES, 0)
        at = opened.pread(limit - begin + len(END_MAGIC) - 1, begin).rfind(END_MAGIC)
        if at >= 0:
            return begin + at + END_BYTES
        limit = begin
    return 0


def _archive_sums(opened: Opened, archive: Archive) -> Iterable[RecordedSum]:
    """Writers may leave the sums out, and then write zero everywhere."""
    members = [member for member in archive.members if member.size_bytes and member.stored]
    if not any(member.crc32 for member in members):
        return
    for member in members:
        begin = payload_begin(opened, member)
        if begin is not None:
            yield _member_sum(member, begin)


def _member_sum(member: Member, begin: int) -> RecordedSum:
    what = f"member {member.name[:200]!r}"
    return RecordedSum(begin, begin + member.size_bytes, "crc32", f"{member.crc32:08x}", what)


def _zips(shard_map: ShardMap, open_shard: Open) -> dict[str, list[RecordedSum]]:
    found = {}
    ranges: dict[str, dict[int, int]] = {}
    for tensor in shard_map.tensors:
        if tensor.length_bytes:
            ends = ranges.setdefault(tensor.shard, {})
            ends[tensor.offset_bytes + tensor.length_bytes] = tensor.offset_bytes
    for shard in shard_map.shards:
        if shard.size_bytes:
            try:
                with open_shard(shard.path) as opened:
                    found[shard.path] = zip_sums(opened, ranges.get(shard.path))
            except OSError:
                continue
    return found


SOURCES: tuple[Source, ...] = (_zips, ocdbt_sums.recorded_sums, integrity.recorded_sums)
