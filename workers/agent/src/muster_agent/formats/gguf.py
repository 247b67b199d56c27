"""GGUF: weights for inference, in one file or in several with a number in their names. Never a point to resume from."""

from __future__ import annotations

import re
import struct
from typing import Any, NamedTuple

from muster_agent.formats.base import Finding, Role, Severity, ShardEntry, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder, trouble
from muster_agent.formats.holes import hole_findings, judged_by_tensors
from muster_agent.formats.reader import Family
from muster_agent.formats.safetensors import add_absent
from muster_agent.formats.tree import Opened

FORMAT = "gguf"
_MAGIC = b"GGUF"
_SPLIT = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.ASCII)
_FIRST_READ_BYTES = 64 * 1024
MAX_HEADER_BYTES = 256 * 1024 * 1024
_MAX_COUNT = 1_000_000
_MAX_TEXT_BYTES = 16 * 1024 * 1024
_MAX_DIMENSIONS = 8
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_DEFAULT_ALIGNMENT = 32
_TYPE_LINES = """
0 F32 1 4; 1 F16 1 2; 2 Q4_0 32 18; 3 Q4_1 32 20; 6 Q5_0 32 22; 7 Q5_1 32 24; 8 Q8_0 32 34; 9 Q8_1 32 36
10 Q2_K 256 84; 11 Q3_K 256 110; 12 Q4_K 256 144; 13 Q5_K 256 176; 14 Q6_K 256 210; 15 Q8_K 256 292
16 IQ2_XXS 256 66; 17 IQ2_XS 256 74; 18 IQ3_XXS 256 98; 19 IQ1_S 256 50; 20 IQ4_NL 32 18; 21 IQ3_S 256 110
22 IQ2_S 256 82; 23 IQ4_XS 256 136; 24 I8 1 1; 25 I16 1 2; 26 I32 1 4; 27 I64 1 8; 28 F64 1 8; 29 IQ1_M 256 56
30 BF16 1 2; 34 TQ1_0 256 54; 35 TQ2_0 256 66; 39 MXFP4 32 17
"""
_TYPES: dict[int, tuple[str, int, int]] = {
    int(number): (word, int(block), int(size))
    for number, word, block, size in map(str.split, _TYPE_LINES.strip().replace("\n", ";").split(";"))
}
"""By the type's number: its name, the elements in one block, and the bytes of a block."""


class Header(NamedTuple):
    values: dict[str, Any]
    tensors: list[TensorRange]
    end_byte: int
    """How long the file must be at least."""
    unknown_types: set[int]
    alignment: int = 1


class HeaderRefused(Exception):
    """The finding says how."""

    def __init__(self, found: Finding) -> None:
        super().__init__(found.detail)
        self.found = found


def claims_file(_folder: Folder, name: str) -> bool:
    return name.endswith(".gguf")


def families(folder: Folder) -> list[Family]:
    """The files of one split model belong together."""
    groups: dict[tuple[str, str], set[str]] = {}
    for match in filter(None, map(_SPLIT.fullmatch, folder.files)):
        groups.setdefault((match[1], match[3]), set()).add(match[0])
    return [
        Family(f"{stem}-{{part}}-of-{count}.gguf", None, frozenset(names))
        for (stem, count), names in sorted(groups.items())
    ]


def read_file(folder: Folder, name: str, with_tensors: bool) -> Draft:
    draft = _draft()
    _add(draft, folder, name, with_tensors)
    return draft


def read_family(folder: Folder, family: Family, with_tensors: bool) -> Draft:
    """A split model: every part that the names promise, and the tensors that the first one counts."""
    draft = _draft()
    stem, count = family.pattern.split("-{part}-of-")
    total = int(count.removesuffix(".gguf"))
    tensors, promised = 0, None
    for number in range(1, min(total, 10_000) + 1):
        name = f"{stem}-{number:05d}-of-{total:05d}.gguf"
        if name not in folder.files:
            add_absent(draft, folder, name, f"the names of its siblings promise {name}, which is not there")
            continue
        header = _add(draft, folder, name, with_tensors)
        if header is not None:
            tensors += len(header.tensors)
            _check_split(draft, name, header, number - 1, total)
            promised = header.values.get("split.tensors.count", promised)
    whole = not any(found.severity == "damage" for found in draft.findings)
    if whole and isinstance(promised, int) and promised != tensors:
        detail = f"the parts hold {tensors} tensors, and {promised} belong to the model"
        draft.findings.append(finding("ranges_gap", path=family.pattern, detail=detail))
    return draft


def _check_split(draft: Draft, name: str, header: Header, number: int, total: int) -> None:
    said = header.values.get("split.no"), header.values.get("split.count")
    if said != (number, total):
        detail = f"{name} says that it is part {said[0]} of {said[1]}: it was renamed, or belongs to another model"
        draft.findings.append(finding("metadata_unreadable", path=name, detail=detail))


def _draft() -> Draft:
    draft = Draft(FORMAT, roles={Role.MODEL})
    draft.not_resumable_reasons.append("GGUF holds weights for inference only")
    return draft


def _add(draft: Draft, folder: Folder, name: str, with_tensors: bool) -> Header | None:
    seen = folder.files[name]
    draft.shards.append(ShardEntry(path=name, size_bytes=seen.size_bytes, mtime_ns=seen.mtime_ns, role=Role.MODEL))
    try:
        with folder.open(name) as opened:
            header = read_header(opened, name)
            places = [(one.name, one.offset_bytes, one.offset_bytes + one.length_bytes) for one in header.tensors]
            holes = judged_by_tensors(hole_findings(opened, name), places)
    except HeaderRefused as broken:
        draft.findings.append(broken.found)
        if broken.found.code in ("shard_empty", "shard_truncated"):
            draft.committed = False
        return None
    except OSError as error:
        detail = f"{name} could not be read: {error.strerror or type(error).__name__}"
        draft.findings.append(finding(trouble(error, f"{folder.path}/{name}").code, path=name, detail=detail))
        return None
    draft.findings.extend(holes)
    draft.findings.extend(_behind_the_end(header, name, seen.size_bytes))
    if header.unknown_types:
        draft.undecided = f"{name} uses tensor types that this version does not know ({sorted(header.unknown_types)})"
    if with_tensors:
        draft.tensors.extend(header.tensors)
    return header


def _behind_the_end(header: Header, name: str, size_bytes: int) -> list[Finding]:
    """Writers fill up to the alignment behind the last tensor, and no further."""
    filled = -(-header.end_byte // header.alignment) * header.alignment
    if not header.tensors or header.unknown_types or size_bytes <= filled:
        return []
    detail = f"{name} has {size_bytes - header.end_byte} bytes behind its last tensor; loading ignores them"
    return [finding("shard_oversized", path=name, detail=detail, severity=Severity.WARNING, begin_byte=header.end_byte)]


# -- one file's header -------------------------------------------------------------------------------------------------
def read_header(opened: Opened, name: str) -> Header:
    """Read and check the header; reads on while it seems to be cut, up to MAX_HEADER_BYTES. Raises HeaderRefused and
    OSError."""
    if not opened.size_bytes:
        raise HeaderRefused(finding("shard_empty", path=name, detail=f"{name} has 0 bytes"))
    size = min(opened.size_bytes, _FIRST_READ_BYTES)
    while True:
        cursor = _Cursor(opened.pread(size, 0), name)
        try:
            return _header(cursor, name, opened.size_bytes)
        except _Short:
            if size >= min(opened.size_bytes, MAX_HEADER_BYTES):
                detail = f"{name} was cut within its header, at byte {opened.size_bytes}"
                found = finding("shard_truncated", path=name, detail=detail, begin_byte=opened.size_bytes)
                raise HeaderRefused(found) from None
        size = min(opened.size_bytes, MAX_HEADER_BYTES, size * 8)


class _Short(Exception):
    """The bytes at hand end within the header."""


class _Cursor:
    """Reads typed values one behind the other."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name, self.at = data, name, 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise _Short
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, letter: str) -> Any:
        return struct.unpack(f"<{letter}", self.take(struct.calcsize(f"<{letter}")))[0]

    def count(self, what: str, limit: int = _MAX_COUNT) -> int:
        value: int = self.number("Q")
        if value > limit:
            raise self.broken(f"claims {value} {what}")
        return value

    def text(self) -> str:
        return self.take(self.count("bytes in one name or text", _MAX_TEXT_BYTES)).decode("utf-8", "replace")

    def broken(self, what: str) -> HeaderRefused:
        return HeaderRefused(finding("metadata_unreadable", path=self.name, detail=f"the header of {self.name} {what}"))


def _header(cursor: _Cursor, name: str, size_bytes: int) -> Header:
    if cursor.take(4) != _MAGIC:
        raise cursor.broken("does not begin as that of GGUF does")
    version = cursor.number("I")
    if version not in (2, 3):
        raise cursor.broken(f"is of version {version}, which Muster does not read")
    tensor_count, value_count = cursor.count("tensors"), cursor.count("values")
    values = {}
    for _ in range(value_count):
        key = cursor.text()
        values[key] = _value(cursor, cursor.number("I"))
    infos = [_info(cursor) for _ in range(tensor_count)]
    alignment = values.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 0 < alignment <= 1 << 20:
        raise cursor.broken("has no valid alignment")
    begin = -(-cursor.at // alignment) * alignment
    return _placed(values, infos, begin, name, size_bytes)._replace(alignment=alignment)


def _value(cursor: _Cursor, kind: int) -> Any:
    """A value; of an array only that it is there."""
    if kind == _TEXT:
        return cursor.text()
    if kind in _SCALARS:
        return cursor.number(_SCALARS[kind])
    if kind != _ARRAY:
        raise cursor.broken(f"has a value of type {kind}")
    inner, count = cursor.number("I"), cursor.count("array items", 16 * _MAX_COUNT)
    if inner in _SCALARS:
        cursor.take(count * struct.calcsize(_SCALARS[inner]))
    elif inner == _TEXT:
        for _ in range(count):
            cursor.take(cursor.count("bytes in one text", _MAX_TEXT_BYTES))
    else:
        raise cursor.broken(f"has an array of type {inner}")
    return None


def _info(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name = cursor.text()
    dimensions = cursor.number("I")
    if dimensions > _MAX_DIMENSIONS:
        raise cursor.broken(f"gives tensor {name[:100]!r} {dimensions} dimensions")
    shape = tuple(cursor.number("Q") for _ in range(dimensions))
    return name, shape, cursor.number("I"), cursor.number("Q")


def _placed(
    values: dict[str, Any], infos: list[tuple[str, tuple[int, ...], int, int]], begin: int, name: str, size_bytes: int
) -> Header:
    """The tensors with their places, and whether the file reaches to their ends."""
    tensors, unknown, end = [], set(), begin if infos else 0
    for tensor, shape, kind, offset in infos:
        if kind not in _TYPES:
            unknown.add(kind)
            continue
        word, block, block_bytes = _TYPES[kind]
        count = 1
        for size in shape:
            count *= size
        length = -(-count // block) * block_bytes
        end = max(end, begin + offset + length)
        tensors.append(
            TensorRange(
                name=tensor, shard=name, offset_bytes=begin + offset, length_bytes=length, dtype=word, shape=shape
            )
        )
    if end > size_bytes:
        detail = f"the header of {name} needs {min(end, 1 << 63)} bytes, the file has {size_bytes}"
        found = finding("shard_truncated", path=name, detail=detail, begin_byte=size_bytes)
        raise HeaderRefused(found)
    _check_overlap(tensors, name)
    return Header(values, tensors, end, unknown)


def _check_overlap(tensors: list[TensorRange], name: str) -> None:
    reached, before = 0, ""
    for tensor in sorted(tensors, key=lambda one: one.offset_bytes):
        if tensor.offset_bytes < reached:
            detail = f"tensors {before[:100]!r} and {tensor.name[:100]!r} of {name} claim the same bytes"
            raise HeaderRefused(finding("ranges_overlap", path=name, detail=detail, tensor=tensor.name))
        reached, before = tensor.offset_bytes + tensor.length_bytes, tensor.name
