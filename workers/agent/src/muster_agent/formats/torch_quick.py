"""A scan's look at many files of torch.save: which of them show at their ends that they are whole?

It costs one opening and one reading a file. The end record, and its 64-bit form, must lie where `torch.save` puts them
and place the directory right before them; the directory must have as many entries as they say, and the first of them
must be the pickle at the very beginning, where a zip must begin. A file that shows anything else is left to
`torch_archive.inspect`, which says what is wrong with it, if anything is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from muster_agent.formats.folder import Folder
from muster_agent.formats.zip_directory import END_MAGIC, LOCAL_MAGIC, TAIL_BYTES

_END = struct.Struct("<4s4xHHLLH")
_WIDE_END = struct.Struct("<4s28xQQQ4s4xQ4x4s4xHHLLH")
"""The 64-bit end record, its locator, and the end record."""
_ENTRY = struct.Struct("<4s4xHH8xLLHHH8xL")
_ENTRY_BYTES = 46
_ENTRY_MAGIC = b"PK\x01\x02"
_WIDE_MAGIC, _LOCATOR_MAGIC = b"PK\x06\x06", b"PK\x06\x07"
_WIDE_PLACE = _WIDE_END.size
_END_PLACE = _END.size
_PICKLE = b"/data.pkl"
_ENCRYPTED = 1
_MOST_KEPT = 1 << 14
_ROOTS: dict[bytes, str] = {}
"""Found before, by the member's name: steps of one run have files of the same names."""


def roots_of_whole(folder: Folder, names: Iterable[str]) -> dict[str, str]:
    """The folder inside the zip, by file name, of those of the folder's files `names` that are whole as far as their
    ends show. Raises nothing."""
    roots = {}
    for name, size_bytes, head, tail in folder.ends(names, TAIL_BYTES):
        root = _root(size_bytes, tail) if head == LOCAL_MAGIC else None
        if root is not None:
            roots[name] = root
    return roots


def _root(size_bytes: int, tail: bytes) -> str | None:
    """The first part of the members' names; None where anything is not as `torch.save` leaves it. `tail` are the last
    bytes of a file of that size."""
    end = len(tail) - _WIDE_PLACE
    if end >= 0 and tail[end : end + 4] == _WIDE_MAGIC:
        magic, count, length, begin, locator, wide, last, *ending = _WIDE_END.unpack_from(tail, end)
        if locator != _LOCATOR_MAGIC or last != END_MAGIC or wide != size_bytes - _WIDE_PLACE or ending[-1]:
            return None
    else:
        end = len(tail) - _END_PLACE
        if end < 0:
            return None
        magic, _, count, length, begin, comment_bytes = _END.unpack_from(tail, end)
        if magic != END_MAGIC or comment_bytes:
            return None
    at = end - length
    if at < 0 or begin + length != size_bytes - len(tail) + end or tail.count(_ENTRY_MAGIC, at, end) != count:
        return None
    if length < _ENTRY_BYTES or b".." in tail[at:end]:
        return None
    magic, flags, method, packed, size, name_bytes, _, _, header = _ENTRY.unpack_from(tail, at)
    name = tail[at + _ENTRY_BYTES : at + _ENTRY_BYTES + name_bytes]
    if magic != _ENTRY_MAGIC or header or method or flags & _ENCRYPTED or packed != size:
        return None
    return _ROOTS.get(name) or _root_of(name)


def _root_of(name: bytes) -> str | None:
    """The folder in the name of the member that holds the pickle; None for any other name."""
    root = name.removesuffix(_PICKLE)
    if root == name or not root.isascii() or b"/" in root or not root:
        return None
    if len(_ROOTS) < _MOST_KEPT:
        _ROOTS[name] = root.decode("ascii")
    return root.decode("ascii")
