"""The bytes of OCDBT, the key-value format under Orbax checkpoints: envelopes, manifests and tree nodes.

Everything is bounded before it is allocated: the envelope by its file, the zstd body by a limit, every count by the
bytes that are left. Any bytes at all give a value or `OcdbtRefused`.
"""

from __future__ import annotations

from typing import NamedTuple

from muster_agent.formats.crc32c import crc32c
from muster_agent.formats.zstd import ZstdRefused, decompress

MANIFEST_MAGIC = bytes.fromhex("0cdb3a2a")
NODE_MAGIC = bytes.fromhex("0cdb20de")
MAX_ENVELOPE_BYTES = 64 * 1024 * 1024
MAX_BODY_BYTES = 128 * 1024 * 1024
_HEADER_BYTES, CRC_BYTES = 12, 4
_MAX_PATH_BYTES = 4096
_MAX_KEY_BYTES = 65535
_MISSING = (1 << 64) - 1


class OcdbtRefused(Exception):
    """The bytes are not what OCDBT says they are; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Place(NamedTuple):
    """Bytes [offset, offset + length) of the file `path`, relative to the database's folder."""

    path: str
    offset: int
    length: int


class NodeRef(NamedTuple):
    """Where a tree node lies; `base` goes before the paths that it names, `prefix` before its keys."""

    place: Place
    base: str
    height: int
    prefix: bytes = b""


class Manifest(NamedTuple):
    """`roots` are those of the versions kept in the manifest, oldest first: the last one is what readers see. None
    where the manifest only says that the versions lie in numbered files."""

    roots: tuple[NodeRef, ...] | None


class Entry(NamedTuple):
    """One key: its value itself, or where it lies."""

    key: bytes
    value: bytes | None
    place: Place | None


class Node(NamedTuple):
    """A leaf has `entries`, any other node has `children`."""

    entries: tuple[Entry, ...]
    children: tuple[NodeRef, ...]


# -- envelope ----------------------------------------------------------------------------------------------------------
def open_envelope(data: bytes, magic: bytes) -> bytes:
    """The body of a manifest or a node: magic, length and CRC-32C checked, decompressed. Raises OcdbtRefused."""
    if len(data) < _HEADER_BYTES + 2 + CRC_BYTES:
        raise OcdbtRefused(f"it has {len(data)} bytes, less than any manifest or node")
    if data[:4] != magic:
        raise OcdbtRefused("it is all zeros" if not any(data) else "it does not begin as OCDBT files do")
    length = int.from_bytes(data[4:12], "little")
    if length != len(data):
        raise OcdbtRefused(f"it says that it has {length} bytes, and there are {len(data)}")
    if crc32c(data[:-CRC_BYTES]) != int.from_bytes(data[-CRC_BYTES:], "little"):
        raise OcdbtRefused("its bytes do not have the CRC-32C that it ends with")
    cursor = Cursor(data[_HEADER_BYTES:-CRC_BYTES])
    version, compression = cursor.varint(), cursor.varint()
    if version != 0 or compression > 1:
        raise OcdbtRefused(f"it is of version {version} with compression {compression}, which is not known")
    body = cursor.rest()
    return _decompress(body) if compression else body


def _decompress(body: bytes) -> bytes:
    try:
        return decompress(body, MAX_BODY_BYTES)
    except ZstdRefused as refused:
        raise OcdbtRefused(refused.reason) from None


class Cursor:
    """Reads a body from its begin; every read checks the bytes that are left. Raises OcdbtRefused."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise OcdbtRefused("it ends in the middle of a field")
        part = self._data[self._at : end]
        self._at = end
        return part

    def byte(self) -> int:
        return self.take(1)[0]

    def varint(self) -> int:
        data, at, value, shift = self._data, self._at, 0, 0
        while at < len(data) and shift < 64:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                self._at = at
                return value
            shift += 7
        raise OcdbtRefused("it ends in the middle of a number, or holds one that is too large")

    def varints(self, count: int) -> list[int]:
        if count > len(self._data) - self._at:
            raise OcdbtRefused(f"it announces {count} entries, more than its bytes can hold")
        return [self.varint() for _ in range(count)]


# -- what bodies hold --------------------------------------------------------------------------------------------------
class _File(NamedTuple):
    base: str
    path: str


def parse_manifest(data: bytes) -> Manifest:
    """Raises OcdbtRefused."""
    cursor = Cursor(open_envelope(data, MANIFEST_MAGIC))
    cursor.take(16)
    kind, _inline_bytes, _node_bytes, _arity = cursor.varint(), cursor.varint(), cursor.varint(), cursor.byte()
    if cursor.varint() == 1:
        cursor.take(4)
    if kind != 0:
        return Manifest(None)
    files = _files(cursor, "")
    count = cursor.varint()
    cursor.varints(count)
    heights = [cursor.byte() for _ in range(count)]
    places = _places(cursor, files, count)
    roots = [NodeRef(place, file.base, height) for (place, file), height in zip(places, heights, strict=True) if place]
    return Manifest(tuple(roots))


def parse_node(data: bytes, ref: NodeRef) -> Node:
    """The node that `ref` names, from its bytes. Raises OcdbtRefused."""
    cursor = Cursor(open_envelope(data, NODE_MAGIC))
    height = cursor.byte()
    if height != ref.height:
        raise OcdbtRefused(f"it is a node of height {height}, and {ref.height} was expected here")
    files = _files(cursor, ref.base)
    count = cursor.varint()
    if count == 0:
        raise OcdbtRefused("it is an empty node")
    keys, shared = _keys(cursor, count, ref.prefix, has_subtrees=height > 0)
    if height == 0:
        return Node(tuple(_leaf_entries(cursor, files, keys)), ())
    places = _places(cursor, files, count)
    children = [
        NodeRef(place, file.base, height - 1, key[:length])
        for (place, file), key, length in zip(places, keys, shared, strict=True)
        if place
    ]
    return Node((), tuple(children))


def _files(cursor: Cursor, base: str) -> list[_File]:
    """The table of data files: paths that share prefixes with the one before, each cut into a base and a name."""
    count = cursor.varint()
    prefixes = [0, *cursor.varints(count - 1)] if count else []
    suffixes, bases = cursor.varints(count), cursor.varints(count)
    files, path = [], b""
    for prefix, suffix, base_length in zip(prefixes, suffixes, bases, strict=True):
        if prefix > len(path) or prefix + suffix > _MAX_PATH_BYTES or base_length > prefix + suffix:
            raise OcdbtRefused("its table of files is malformed")
        path = path[:prefix] + cursor.take(suffix)
        text = _text(path)
        files.append(_File(base + _text(path[:base_length]), base + text))
    return files


def _text(path: bytes) -> str:
    try:
        return path.decode()
    except UnicodeDecodeError:
        raise OcdbtRefused("a file's name in it is not valid text") from None


def _places(cursor: Cursor, files: list[_File], count: int) -> list[tuple[Place | None, _File]]:
    """Columns of file number, offset and length; the place is None for the empty tree of a first version."""
    numbers, offsets, lengths = cursor.varints(count), cursor.varints(count), cursor.varints(count)
    places: list[tuple[Place | None, _File]] = []
    for number, offset, length in zip(numbers, offsets, lengths, strict=True):
        file = _file(files, number)
        missing = offset == _MISSING and length == _MISSING
        places.append((None if missing else Place(file.path, offset, length), file))
    return places


def _file(files: list[_File], number: int) -> _File:
    if number >= len(files):
        raise OcdbtRefused(f"it refers to file {number} of {len(files)}")
    return files[number]


def _keys(cursor: Cursor, count: int, common: bytes, *, has_subtrees: bool) -> tuple[list[bytes], list[int]]:
    """Whole keys, and how much of each its whole subtree shares (and leaves out of its own keys)."""
    prefixes, suffixes = [0, *cursor.varints(count - 1)], cursor.varints(count)
    shared = cursor.varints(count) if has_subtrees else []
    keys, key = [], b""
    for prefix, suffix in zip(prefixes, suffixes, strict=True):
        if prefix > len(key) or prefix + suffix > _MAX_KEY_BYTES:
            raise OcdbtRefused("its table of keys is malformed")
        key = key[:prefix] + cursor.take(suffix)
        keys.append(common + key)
    return keys, [len(common) + length for length in shared]


def _leaf_entries(cursor: Cursor, files: list[_File], keys: list[bytes]) -> list[Entry]:
    lengths = cursor.varints(len(keys))
    kinds = cursor.take(len(keys))
    if max(kinds) > 1:
        raise OcdbtRefused("it holds a value of an unknown kind")
    outside = [index for index, kind in enumerate(kinds) if kind]
    numbers, offsets = cursor.varints(len(outside)), cursor.varints(len(outside))
    places = {
        index: Place(_file(files, number).path, offset, lengths[index])
        for index, number, offset in zip(outside, numbers, offsets, strict=True)
    }
    return [
        Entry(key, None if index in places else cursor.take(lengths[index]), places.get(index))
        for index, key in enumerate(keys)
    ]
