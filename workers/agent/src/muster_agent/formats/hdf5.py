"""HDF5 without its library: where the file must end, and which data sets lie where, as far as groups of the first kind
tell, which is how h5py writes them by itself. Every address is held against the file before it is followed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from muster_agent.formats.tree import Opened

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MAX_OBJECTS = 200_000
_MAX_DEPTH = 64
_MAX_NAME_BYTES = 1024
_MAX_HEADER_BYTES = 1 << 20
_MAX_MESSAGES = 4096
_OLD, _OLD_WITH_INDEX, _NEW = 0, 1, (2, 3)
_DATASPACE, _DATATYPE, _LAYOUT, _CONTINUED, _GROUP = 0x01, 0x03, 0x08, 0x10, 0x11
_KINDS = {0: ("uint", "int"), 1: ("float", "float")}
_UNDEFINED = (1 << 64) - 1


class Hdf5Refused(Exception):
    """The bytes are no HDF5, or break a bound; `reason` says which. `ends_early`: they lead beyond the file's end."""

    def __init__(self, reason: str, *, ends_early: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.ends_early = reason, ends_early


class Superblock(NamedTuple):
    """`end_byte` is where the file must end; `root` the address of the root group's header, None where the file is of a
    kind whose groups are not read here. `is_open` says that a writer never closed it."""

    end_byte: int
    root: int | None
    is_open: bool


class DataSet(NamedTuple):
    """`offset` is None where its bytes do not lie in one piece, or nowhere yet."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int | None
    length: int


def read_superblock(opened: Opened) -> Superblock:
    """Raises Hdf5Refused and OSError."""
    head = opened.pread(96, 0)
    if head[:8] != SIGNATURE or len(head) < 48:
        raise Hdf5Refused("it does not begin as HDF5 does", ends_early=SIGNATURE.startswith(head[:8]))
    version = head[8]
    if version in (_OLD, _OLD_WITH_INDEX):
        if (head[13], head[14]) != (8, 8):
            raise Hdf5Refused("its addresses are not of 8 bytes, which is not read here")
        at = 24 if version == _OLD else 28
        base, _, end, _, _, root = struct.unpack_from("<6Q", head, at)
        return Superblock(base + end, root if not base else None, False)
    if version in _NEW:
        if (head[9], head[10]) != (8, 8):
            raise Hdf5Refused("its addresses are not of 8 bytes, which is not read here")
        base, _, end, _ = struct.unpack_from("<4Q", head, 12)
        return Superblock(base + end, None, bool(head[11] & 1))
    raise Hdf5Refused(f"its version {version} is not read here")


class Walker:
    """The data sets below the root group. Raises Hdf5Refused and OSError."""

    def __init__(self, opened: Opened) -> None:
        self._opened, self._left = opened, _MAX_OBJECTS

    def data_sets(self, root: int) -> Iterator[DataSet]:
        waiting: list[tuple[str, int, int]] = [("", root, 0)]
        seen: set[int] = set()
        while waiting:
            path, address, depth = waiting.pop()
            self._left -= 1
            if self._left < 0 or depth > _MAX_DEPTH:
                raise Hdf5Refused("it holds more objects, or nests them deeper, than Muster reads")
            if address in seen:
                continue  # a second name of one object
            seen.add(address)
            messages = dict(self._messages(address))
            if _GROUP in messages:
                tree, heap = struct.unpack_from("<2Q", self._whole(messages[_GROUP], 16))
                below = [(f"{path}/{name}".strip("/"), one, depth + 1) for name, one in self._links(tree, heap)]
                waiting.extend(reversed(below))
            elif _LAYOUT in messages and _DATATYPE in messages:
                yield self._data_set(path, messages)

    def _messages(self, address: int) -> Iterator[tuple[int, bytes]]:
        """Each message of an object's header by its kind; of several of one kind the last."""
        version, _, count, _, size = struct.unpack("<BBHLL", self._read(address, 12))
        if version != 1:
            raise Hdf5Refused(f"the object at byte {address} has a header of another kind")
        blocks, done = [(address + 16, size)], 0
        while blocks:
            at, length = blocks.pop(0)
            data, place = self._read(at, min(length, _MAX_HEADER_BYTES)), 0
            while place + 8 <= len(data) and done < min(count, _MAX_MESSAGES):
                kind, body_bytes = struct.unpack_from("<HH", data, place)
                body = data[place + 8 : place + 8 + body_bytes]
                place, done = place + 8 + body_bytes, done + 1
                if kind == _CONTINUED:
                    blocks.append(struct.unpack_from("<2Q", self._whole(body, 16)))
                yield kind, body

    def _links(self, tree: int, heap: int) -> Iterator[tuple[str, int]]:
        """The name and the header of each member of a group."""
        signature, _, _, _, heap_bytes, _, names_at = struct.unpack("<4sBBHQQQ", self._read(heap, 32))
        if signature != b"HEAP":
            raise Hdf5Refused(f"there is no heap of names at byte {heap}")
        waiting = [tree]
        while waiting:
            at = waiting.pop()
            self._left -= 1
            head = self._read(at, 8)
            if head[:4] == b"TREE" and self._left > 0:
                used = int.from_bytes(head[6:8], "little")
                entries = self._read(at + 24, 16 * used + 8)
                waiting.extend(struct.unpack_from("<Q", entries, 16 * index + 8)[0] for index in reversed(range(used)))
            elif head[:4] == b"SNOD":
                count = int.from_bytes(head[6:8], "little")
                entries = self._read(at + 8, 40 * count)
                for index in range(count):
                    name_at, header = struct.unpack_from("<2Q", entries, 40 * index)
                    if name_at >= heap_bytes:
                        raise Hdf5Refused(f"a name lies outside of the heap at byte {heap}")
                    yield self._text(names_at + name_at, heap_bytes - name_at), header
            else:
                raise Hdf5Refused(f"there is no list of names at byte {at}")

    def _data_set(self, name: str, messages: dict[int, bytes]) -> DataSet:
        kind = self._whole(messages[_DATATYPE], 8)
        width = int.from_bytes(kind[4:8], "little")
        words = _KINDS.get(kind[0] & 15)
        dtype = f"{words[kind[1] >> 3 & 1]}{8 * width}" if words else "object"
        offset, length = self._place(messages[_LAYOUT])
        return DataSet(name, dtype, _shape(messages.get(_DATASPACE, b"")), offset, length)

    def _place(self, layout: bytes) -> tuple[int | None, int]:
        if len(layout) < 18 or layout[0] != 3 or layout[1] != 1:
            return None, 0
        address, length = struct.unpack_from("<2Q", layout, 2)
        if address == _UNDEFINED:
            return None, 0
        if address + length > self._opened.size_bytes:
            detail = f"a data set's {length} bytes at byte {address} lie beyond its end"
            raise Hdf5Refused(detail, ends_early=True)
        return address, length

    def _read(self, at: int, length: int) -> bytes:
        if at + length > self._opened.size_bytes:
            raise Hdf5Refused(f"{length} bytes at byte {at} lie beyond its end", ends_early=True)
        return self._whole(self._opened.pread(length, at), length)

    def _whole(self, data: bytes, length: int) -> bytes:
        if len(data) < length:
            raise Hdf5Refused("a part of it is shorter than it must be", ends_early=True)
        return data

    def _text(self, at: int, limit: int) -> str:
        data = self._read(at, min(limit, _MAX_NAME_BYTES, max(self._opened.size_bytes - at, 0)))
        return data.split(b"\0", 1)[0].decode("utf-8", "replace")


def _shape(space: bytes) -> tuple[int, ...]:
    if len(space) < 8 or space[0] not in (1, 2):
        return ()
    at = 8 if space[0] == 1 else 4
    rank = min(space[1], (len(space) - at) // 8)
    return struct.unpack_from(f"<{rank}Q", space, at)
