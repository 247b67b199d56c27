"""The `.index` of a TensorFlow checkpoint: a sorted table of tensor names, each with its shard, offset, length, data
type and shape. Its blocks carry CRC-32C, which is compared; nothing is allocated by a length that is not there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from muster_agent.formats.crc32c import crc32c

MAX_INDEX_BYTES = 64 * 1024 * 1024
_FOOTER_BYTES = 48
_MAGIC = bytes.fromhex("57fb808b247547db")
_TRAILER_BYTES = 5
_MASK_DELTA = 0xA282EAD8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DTYPES = {
    **dict(enumerate(("float32", "float64", "int32", "uint8", "int16", "int8", "string", "complex64", "int64"), 1)),
    **dict(enumerate(("bool", "qint8", "quint8", "qint32", "bfloat16", "qint16", "quint16", "uint16"), 10)),
    **dict(enumerate(("complex128", "float16", "resource", "variant", "uint32", "uint64"), 18)),
    **dict(enumerate(("float8_e5m2", "float8_e4m3fn"), 24)),
}


class IndexRefused(Exception):
    """The bytes are no index; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Entry(NamedTuple):
    """Where one tensor lies: bytes [offset, offset + size) of the data file `shard`. `sliced` says that its bytes are
    those of other entries, which are its parts."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    sliced: bool


class Index(NamedTuple):
    shard_count: int
    entries: tuple[Entry, ...]


def ends_as_index(tail: bytes) -> bool:
    """Whether the last bytes of a file are those of such a table."""
    return tail.endswith(_MAGIC)


def parse_index(data: bytes) -> Index:
    """Raises IndexRefused."""
    if len(data) < _FOOTER_BYTES or not ends_as_index(data):
        raise IndexRefused("it does not end as the index of a TensorFlow checkpoint")
    footer = data[-_FOOTER_BYTES:-8]
    _, at = _varint(footer, _varint(footer, 0)[1])
    offset, at = _varint(footer, at)
    size, _ = _varint(footer, at)
    count, entries = 0, []
    for _, handle in _records(_block(data, offset, size)):
        begin, at = _varint(handle, 0)
        for key, value in _records(_block(data, begin, _varint(handle, at)[0])):
            fields = _fields(value)
            if key:
                entries.append(_entry(key, fields))
            else:
                count = _number(fields, 1)
    return Index(count, tuple(entries))


def _block(data: bytes, offset: int, size: int) -> bytes:
    """The content of one block, its check sum compared."""
    end = offset + size
    if end + _TRAILER_BYTES > len(data):
        raise IndexRefused(f"a block of it ends at byte {end + _TRAILER_BYTES}, and it has {len(data)}")
    (said,) = struct.unpack_from("<L", data, end + 1)
    total = crc32c(data[offset : end + 1])
    if (((total >> 15) | (total << 17 & 0xFFFFFFFF)) + _MASK_DELTA) & 0xFFFFFFFF != said:
        raise IndexRefused(f"its block at byte {offset} does not match its CRC-32C")
    if data[end]:
        raise IndexRefused("it is compressed, as TensorFlow never writes it")
    return data[offset:end]


def _records(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each record; a key shares its beginning with the one before."""
    if len(block) < 4:
        raise IndexRefused("a block of it is too short")
    end = len(block) - 4 * (1 + int.from_bytes(block[-4:], "little"))
    at, key = 0, b""
    while at < end:
        shared, at = _varint(block, at)
        added, at = _varint(block, at)
        length, at = _varint(block, at)
        if shared > len(key) or at + added + length > end:
            raise IndexRefused("a record of it reaches beyond its block")
        key = key[:shared] + block[at : at + added]
        yield key, block[at + added : at + added + length]
        at += added + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at byte `at`, and where the next one begins."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise IndexRefused("it ends in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise IndexRefused("a number in it is too long")


def _fields(message: bytes) -> dict[int, list[int | bytes]]:
    """The fields of a protocol-buffer message by their numbers."""
    fields: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = _varint(message, at)
        else:
            length, at = (8 if kind == _FIXED64 else 4, at) if kind != _BYTES else _varint(message, at)
            if kind not in (_FIXED64, _BYTES, _FIXED32) or at + length > len(message):
                raise IndexRefused("a record of it is no description of a tensor")
            value, at = message[at : at + length], at + length
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _number(fields: dict[int, list[int | bytes]], number: int) -> int:
    value = fields.get(number, [0])[-1]
    if not isinstance(value, int) or value >= 1 << 63:
        raise IndexRefused("a number in it is out of bounds")
    return value


def _entry(key: bytes, fields: dict[int, list[int | bytes]]) -> Entry:
    dims = [_fields(part) for shape in fields.get(2, []) if isinstance(shape, bytes) for part in _dims(shape)]
    return Entry(
        name=key.decode("utf-8", "backslashreplace"),
        dtype=_DTYPES.get(_number(fields, 1) % 100, "unknown"),
        shape=tuple(_number(dim, 1) for dim in dims),
        shard=_number(fields, 3),
        offset=_number(fields, 4),
        size=_number(fields, 5),
        sliced=7 in fields,
    )


def _dims(shape: bytes) -> Iterator[bytes]:
    return (part for part in _fields(shape).get(2, []) if isinstance(part, bytes))
