"""One record of a DCP file: a small zip that `torch.save` wrote. Where in it the tensor's bytes lie, read from its end.

All members are stored, not compressed. Local headers carry no sizes, so the central directory is read.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from muster_agent.formats.tree import Opened

ZIP_MAGIC = b"PK\x03\x04"
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_TAIL_BYTES = 4096
_MAX_DIRECTORY_BYTES = 1 << 20


class Member(NamedTuple):
    """A stored member: its header begins at `header` of the record and it has `size_bytes`."""

    name: str
    header: int
    size_bytes: int


def tensor_bytes(opened: Opened, offset: int, length: int, expected_bytes: int) -> tuple[int, int] | None:
    """[begin, end) in the file of the one tensor in the record at [offset, offset + length); None where the record is
    not such a zip, or does not hold exactly `expected_bytes`. Raises OSError."""
    members = read_members(opened, offset, length)
    data = [member for member in members if "/data/" in member.name]
    if len(data) != 1 or data[0].size_bytes != expected_bytes:
        return None
    head = opened.pread(30, offset + data[0].header)
    if len(head) < 30 or head[:4] != ZIP_MAGIC:
        return None
    begin = offset + data[0].header + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
    end = begin + expected_bytes
    return (begin, end) if end <= offset + length else None


def read_members(opened: Opened, offset: int, length: int) -> list[Member]:
    """The members in the record's central directory; empty where there is none. Raises OSError."""
    size = min(length, _TAIL_BYTES)
    tail = opened.pread(size, offset + length - size)
    place = _directory(tail)
    if place is None or place[0] + place[1] > length or place[1] > _MAX_DIRECTORY_BYTES:
        return []
    begin, count = place
    in_tail = begin - (length - len(tail))
    raw = tail[in_tail : in_tail + count] if in_tail >= 0 else opened.pread(count, offset + begin)
    return _entries(raw)


def _directory(tail: bytes) -> tuple[int, int] | None:
    """(offset, size) of the central directory, from the end record and, where it says so, its 64-bit form."""
    if len(tail) < _END.size or tail[-_END.size :][:4] != b"PK\x05\x06":
        return None
    *_, size, offset, _comment = _END.unpack(tail[-_END.size :])
    start = len(tail) - _END.size - 20 - _END64.size
    if start >= 0 and tail[start : start + 4] == b"PK\x06\x06":
        fields = _END64.unpack(tail[start : start + _END64.size])
        size, offset = fields[8], fields[9]
    return offset, size


def _entries(raw: bytes) -> list[Member]:
    members: list[Member] = []
    position = 0
    while position + _ENTRY.size <= len(raw):
        fields = _ENTRY.unpack_from(raw, position)
        name_length, extra_length, comment_length = fields[10], fields[11], fields[12]
        if fields[0] != b"PK\x01\x02":
            break
        names = position + _ENTRY.size
        name = raw[names : names + name_length].decode("utf-8", "replace")
        extra = raw[names + name_length : names + name_length + extra_length]
        size, header = _wide(extra, fields[9], fields[8], fields[16])
        members.append(Member(name, header, size))
        position = names + name_length + extra_length + comment_length
    return members


def _wide(extra: bytes, size: int, packed_size: int, header: int) -> tuple[int, int]:
    """Size and header offset with the 64-bit values of extra field 1, which holds only those that did not fit."""
    position = 0
    while position + 4 <= len(extra):
        kind, count = struct.unpack_from("<2H", extra, position)
        body = extra[position + 4 : position + 4 + count]
        if kind == 1:
            values = [int.from_bytes(body[at : at + 8], "little") for at in range(0, len(body) - 7, 8)]
            size = values.pop(0) if size == 0xFFFFFFFF and values else size
            if packed_size == 0xFFFFFFFF and values:
                values.pop(0)
            header = values.pop(0) if header == 0xFFFFFFFF and values else header
        position += 4 + count
    return size, header
