"""On how many storage targets a file of Lustre lies. `read_*` asks the kernel, `parse_*` is pure."""

from __future__ import annotations

import os
import struct

_ATTRIBUTE = "lustre.lov"
_PLAIN = (0x0BD10BD0, 0x0BD30BD0)
_COMPOSITE = 0x0BD60BD0
_COUNT_AT = 28
"""Behind magic, pattern (4 bytes each), object id (16) and stripe size (4) lies the count, 2 bytes."""
_HEADER_BYTES, _ENTRY_BYTES, _ENTRIES_AT, _BLOB_AT = 32, 48, 14, 24


def parse_stripe_count(layout: bytes) -> int | None:
    """Of a file's layout as Lustre keeps it; of a composite one the widest of its parts, since that holds the bulk of a
    large file. None for anything else."""
    if len(layout) < 4:
        return None
    (magic,) = struct.unpack_from("<I", layout)
    if magic in _PLAIN:
        return _plain(layout, 0)
    if magic != _COMPOSITE or len(layout) < _HEADER_BYTES:
        return None
    (entries,) = struct.unpack_from("<H", layout, _ENTRIES_AT)
    counts = [_plain(layout, _blob_at(layout, number)) for number in range(min(entries, 64))]
    return max((count for count in counts if count is not None), default=None)


def _blob_at(layout: bytes, number: int) -> int:
    at = _HEADER_BYTES + number * _ENTRY_BYTES + _BLOB_AT
    return struct.unpack_from("<I", layout, at)[0] if at + 4 <= len(layout) else len(layout)


def _plain(layout: bytes, at: int) -> int | None:
    if at + _COUNT_AT + 2 > len(layout) or struct.unpack_from("<I", layout, at)[0] not in _PLAIN:
        return None
    count: int = struct.unpack_from("<H", layout, at + _COUNT_AT)[0]
    return count if 0 < count < 0xFFFF else None


def read_stripe_count(path: str) -> int | None:
    """None where the file system keeps no such layout."""
    try:
        return parse_stripe_count(os.getxattr(path, _ATTRIBUTE))
    except OSError:
        return None
