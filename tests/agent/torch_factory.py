"""Files as `torch.save` lays them out, made without torch: the zip with its alignment and 64-bit end record, and the
legacy form. The layout is that of the real samples in tests/data/torch."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

STORAGES = {"float32": ("FloatStorage", 4), "bfloat16": ("BFloat16Storage", 2), "int64": ("LongStorage", 8)}


class Tensor(NamedTuple):
    """A contiguous tensor over the whole of storage `key`."""

    key: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def count(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def size_bytes(self) -> int:
        return self.count * STORAGES[self.dtype][1]


class Global(NamedTuple):
    """A name, as a pickle refers to it."""

    module: str
    name: str


class Call(NamedTuple):
    """A call of a name (REDUCE)."""

    target: Global
    args: tuple[Any, ...]


class New(NamedTuple):
    """An instance of a class (NEWOBJ) with its state (BUILD)."""

    target: Global
    state: dict[str, Any]


def pickled(value: object) -> bytes:
    """The value as protocol 2, with storages as persistent ids."""
    return b"\x80\x02" + _emit(value) + b"."


def _emit(value: object) -> bytes:
    return _EMITTERS[type(value)](value)


def _text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def _tensor(value: Tensor) -> bytes:
    return _emit(Call(Global("torch._utils", "_rebuild_tensor_v2"), (_Raw(_storage(value)), *_view(value))))


def _joined(*values: object) -> bytes:
    return b"".join(map(_emit, values))


_EMITTERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _value: b"N",
    bool: lambda value: b"\x88" if value else b"\x89",
    int: lambda value: b"\x8a\x09" + value.to_bytes(9, "little", signed=True),
    float: lambda value: b"G" + struct.pack(">d", value),
    str: _text,
    Tensor: _tensor,
    Global: lambda value: f"c{value.module}\n{value.name}\n".encode(),
    Call: lambda value: _joined(value.target, value.args) + b"R",
    New: lambda value: _emit(value.target) + b")\x81" + _emit(value.state) + b"b",
    tuple: lambda value: b"(" + _joined(*value) + b"t",
    list: lambda value: b"](" + _joined(*value) + b"e",
    dict: lambda value: b"}(" + b"".join(_joined(*pair) for pair in value.items()) + b"u",
}


class _Raw(NamedTuple):
    data: bytes


_EMITTERS[_Raw] = lambda value: value.data


def _storage(tensor: Tensor) -> bytes:
    kind = Global("torch", STORAGES[tensor.dtype][0])
    return _emit(("storage", kind, tensor.key, "cpu", tensor.count)) + b"Q"


def _view(tensor: Tensor) -> tuple[Any, ...]:
    strides, step = [], 1
    for size in reversed(tensor.shape):
        strides.append(step)
        step *= size
    return 0, tensor.shape, tuple(reversed(strides)), False, Call(Global("collections", "OrderedDict"), ())


def tensors_in(value: object) -> list[Tensor]:
    match value:
        case Tensor():
            return [value]
        case dict():
            return [found for item in value.values() for found in tensors_in(item)]
        case list() | tuple():
            return [found for item in value for found in tensors_in(item)]
    return []


def payload(tensor: Tensor) -> bytes:
    """Bytes that differ from tensor to tensor, and are never all zeros."""
    seed = zlib.crc32(tensor.key.encode()) | 1
    return bytes((seed + index * 7) % 255 + 1 for index in range(tensor.size_bytes))


def members_of(value: object, root: str = "archive") -> list[tuple[str, bytes]]:
    """The members of the zip in the order in which torch writes them."""
    storages = {tensor.key: payload(tensor) for tensor in tensors_in(value)}
    return [
        (f"{root}/data.pkl", pickled(value)),
        (f"{root}/.format_version", b"1"),
        (f"{root}/.storage_alignment", b"64"),
        (f"{root}/byteorder", b"little"),
        *((f"{root}/data/{key}", data) for key, data in storages.items()),
        (f"{root}/version", b"3\n"),
        (f"{root}/.data/serialization_id", b"1" * 40),
    ]


def torch_zip(value: object, root: str = "archive", *, with_crc: bool = True) -> bytes:
    return zip_of(members_of(value, root), with_crc=with_crc)


def zip_of(members: Iterable[tuple[str, bytes]], *, with_crc: bool = True) -> bytes:
    out = bytearray()
    entries = []
    for name, data in members:
        begin, crc = len(out), zlib.crc32(data) if with_crc else 0
        out += local_header(name, begin) + data + struct.pack("<4sLLL", b"PK\x07\x08", crc, len(data), len(data))
        entries.append(entry(name, begin, len(data), crc))
    return bytes(out) + ending(entries, len(out))


def local_header(name: str, begin: int) -> bytes:
    raw = name.encode()
    padding = -(begin + 30 + len(raw) + 4) % 64
    fixed = struct.pack("<4sHHHHHLLLHH", b"PK\x03\x04", 0, 0x0808, 0, 0, 0, 0, 0, 0, len(raw), padding + 4)
    return fixed + raw + b"FB" + struct.pack("<H", padding) + b"Z" * padding


def entry(name: str, header: int, size: int, crc: int) -> bytes:
    """One entry of the directory; what does not fit 32 bits goes into extra field 1."""
    raw, wide = name.encode(), b""
    if size >= 0xFFFFFFFF:
        wide += struct.pack("<QQ", size, size)
    if header >= 0xFFFFFFFF:
        wide += struct.pack("<Q", header)
    extra = struct.pack("<HH", 1, len(wide)) + wide if wide else b""
    narrow, place = min(size, 0xFFFFFFFF), min(header, 0xFFFFFFFF)
    fixed = (b"PK\x01\x02", 0, 0, 0x0808, 0, 0, 0, crc, narrow, narrow, len(raw), len(extra), 0, 0, 0, 0, place)
    return struct.pack("<4s6H3L5H2L", *fixed) + raw + extra


def ending(entries: list[bytes], begin: int) -> bytes:
    """The directory, its 64-bit end record with locator, and the end record, for a directory at byte `begin`."""
    directory = b"".join(entries)
    count, size = len(entries), len(directory)
    wide = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 798, 45, 0, 0, count, count, size, begin)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, begin + size, 1)
    short, place = min(count, 0xFFFF), min(begin, 0xFFFFFFFF)
    return directory + wide + locator + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, short, short, size, place, 0)


def huge_zip(path: Path, value: dict[str, Any], size_of: Callable[[Tensor], int], root: str = "archive") -> list[int]:
    """A sparse archive on disk whose storages have no bytes written; gives where each storage's header lies."""
    entries, headers, at = [], [], 0
    with path.open("wb") as file:
        for name, data in members_of({key: item for key, item in value.items() if not isinstance(item, Tensor)}, root):
            data = pickled(value) if name.endswith("data.pkl") else data
            file.write(header := local_header(name, at))
            file.write(data)
            entries.append(entry(name, at, len(data), zlib.crc32(data)))
            at += len(header) + len(data)
        for tensor in tensors_in(value):
            file.seek(at)
            file.write(header := local_header(f"{root}/data/{tensor.key}", at))
            headers.append(at)
            entries.append(entry(f"{root}/data/{tensor.key}", at, size_of(tensor), 1))
            at += len(header) + size_of(tensor)
        file.seek(at)
        file.write(ending(entries, at))
    return headers


def torch_legacy(value: object) -> bytes:
    """As torch before 1.6 wrote it: five pickles, then each storage as its element count and its bytes."""
    tensors = sorted({tensor.key: tensor for tensor in tensors_in(value)}.values())
    magic = b"\x80\x02\x8a\x0a" + bytes.fromhex("6cfc9c46f9206aa85019") + b"."
    heads = magic + pickled(1001) + pickled({"protocol_version": 1001, "little_endian": True}) + pickled(value)
    body = b"".join(struct.pack("<q", tensor.count) + payload(tensor) for tensor in tensors)
    return heads + pickled([tensor.key for tensor in tensors]) + body
