"""The directory at the end of a zip, read without trust: which members lie where. The one zip reader of all formats.

`torch.save` writes a zip whose members are stored, not compressed, and whose end record always has its 64-bit form.
Local headers carry no sizes there, so the directory is the truth, and a file that was cut has lost it.
"""

from __future__ import annotations

import itertools
import re
import struct
from typing import NamedTuple

from muster_agent.formats.tree import Opened

LOCAL_MAGIC = b"PK\x03\x04"
END_MAGIC = b"PK\x05\x06"
LOCAL_BYTES = 30
"""Of a local header, before the member's name and its extra fields."""
TAIL_BYTES = 4096
MAX_DIRECTORY_BYTES = 64 * 1024 * 1024
"""Some 800,000 members."""
_MAX_COMMENT_BYTES = 0xFFFF
_END = struct.Struct("<4s4xHHLLH")
END_BYTES = _END.size
_LOCATOR = struct.Struct("<4s4xQ4x")
_END64 = struct.Struct("<4s28xQQQ")
_ENTRY = struct.Struct("<4s4xHH4xLLLHHH8xL")
_WIDE = 0xFFFFFFFF
_ENTRY_MAGIC = b"PK\x01\x02"
_QUICK_ENTRY = struct.Struct("<4s4xHH8xLLHHH8xL")
"""An entry of the directory without its CRC-32."""
_SUSPECT = ("..", "\\", "//", "/./", "\0/", "\0./")
_UNSAFE_NAME = re.compile(r"\\|^(?:/|$)|(?:^|/)\.\.?(?:/|$)")
_DEFLATED = 8
_ENCRYPTED = 1


class Member(NamedTuple):
    """One member: its local header begins at byte `header` of the file, and `size_bytes` of data lie behind it."""

    name: str
    header: int
    size_bytes: int
    crc32: int
    stored: bool


class Archive:
    """A zip that lies in bytes [begin, end) of a file; its directory begins at `directory`. `names` are those of its
    members, each with a NUL before it: most questions about them are one search."""

    __slots__ = ("_members", "_raw", "all_stored", "begin", "directory", "end", "names")

    def __init__(self, begin: int, end: int, directory: int, raw: bytes, names: str, *, all_stored: bool) -> None:
        self.begin, self.end, self.directory, self._raw = begin, end, directory, raw
        self.names, self.all_stored = names, all_stored
        self._members: tuple[Member, ...] | None = None

    @property
    def members(self) -> tuple[Member, ...]:
        """In the directory's order; made when first asked for, since a scan of thousands of sound files never asks."""
        if self._members is None:
            self._members = tuple(_members(self._raw, self.begin))
        return self._members


class ZipRefused(Exception):
    """The directory is there but cannot be true. `code` is that of a finding."""

    def __init__(self, detail: str, code: str = "metadata_unreadable", *, too_large: bool = False) -> None:
        super().__init__(detail)
        self.code, self.detail, self.too_large = code, detail, too_large


def is_whole_end(end: bytes) -> bool:
    """Whether these END_BYTES are the end record of a zip that has members, lies in one piece and has no comment."""
    if len(end) != END_BYTES:
        return False
    magic, here, count, size, _, comment = _END.unpack(end)
    return bool(magic == END_MAGIC and 0 < count == here and size > 0 and comment == 0)


def read_archive(opened: Opened, begin: int, end: int) -> Archive | None:
    """The zip that ends at byte `end` of the file and begins at `begin` or behind it; None where no end record lies
    there. Raises ZipRefused and OSError."""
    size = min(end - begin, TAIL_BYTES)
    return archive_of_tail(opened, opened.pread(size, end - size), begin, end)


def archive_of_tail(opened: Opened, tail: bytes, begin: int, end: int, comment_bytes: int = 0) -> Archive | None:
    """As read_archive, with the bytes before `end` at hand. The end record has a comment of `comment_bytes`."""
    at = len(tail) - _END.size - comment_bytes
    if at < 0 or tail[at : at + 4] != END_MAGIC:
        return None
    _, _, count, size, offset, comment = _END.unpack_from(tail, at)
    if comment != comment_bytes:
        return None
    tail_begin = end - len(tail)
    directory_end = tail_begin + at
    wide = _wide_end(opened, tail, at, tail_begin, begin)
    if wide is not None:
        directory_end, count, size, offset = wide
    directory = directory_end - size
    if directory < begin or directory - offset < begin:
        raise ZipRefused(f"its end record places a directory of {size} bytes at byte {offset}, where none can lie")
    if size > MAX_DIRECTORY_BYTES:
        raise ZipRefused(f"its directory has {size} bytes, more than Muster reads", too_large=True)
    at = directory - tail_begin
    raw = tail[at : at + size] if at >= 0 else opened.pread(size, directory)
    names, all_stored = _checked(raw, directory - offset, directory, count, wide is not None)
    return Archive(directory - offset, end, directory, raw, names, all_stored=all_stored)


def find_commented_end(opened: Opened, begin: int, end: int) -> tuple[Archive | None, int | None]:
    """The slow look for an end record that has a comment. Else, as second value, the byte where the last end record
    ends that has other bytes behind it. Raises ZipRefused and OSError."""
    size = min(end - begin, _MAX_COMMENT_BYTES + TAIL_BYTES)
    tail = opened.pread(size, end - size)
    at = last = tail.rfind(END_MAGIC, 0, len(tail) - _END.size + len(END_MAGIC))
    while at >= 0:
        archive = archive_of_tail(opened, tail, begin, end, len(tail) - at - _END.size)
        if archive is not None:
            return archive, None
        at = tail.rfind(END_MAGIC, 0, at + len(END_MAGIC) - 1)
    return None, None if last < 0 else end - len(tail) + last + _END.size


def payload_begin(opened: Opened, member: Member) -> int | None:
    """Where the member's data begins; None where no local header of its name lies at its place. Raises OSError."""
    name = member.name.encode()
    head = opened.pread(LOCAL_BYTES + len(name), member.header)
    if len(head) < LOCAL_BYTES or head[:4] != LOCAL_MAGIC:
        return None
    name_length, extra_length = head[26] | head[27] << 8, head[28] | head[29] << 8
    if "\ufffd" not in member.name and (name_length != len(name) or head[LOCAL_BYTES:] != name):
        return None
    return member.header + LOCAL_BYTES + name_length + extra_length


def _wide_end(opened: Opened, tail: bytes, at: int, tail_begin: int, begin: int) -> tuple[int, int, int, int] | None:
    """(where the directory ends, member count, directory's size and offset) of the 64-bit end record; None where there
    is none."""
    locator = at - _LOCATOR.size
    if locator < 0 or tail[locator : locator + 4] != b"PK\x06\x07":
        return None
    place = locator - _END64.size
    record = tail[place : place + _END64.size] if place >= 0 else b""
    position = tail_begin + place
    if record[:4] != b"PK\x06\x06":
        position = begin + int(_LOCATOR.unpack_from(tail, locator)[1])
        record = opened.pread(_END64.size, position) if position < tail_begin + at else b""
    if len(record) < _END64.size or record[:4] != b"PK\x06\x06":
        raise ZipRefused("its 64-bit end record is not where its locator says")
    _, count, size, offset = _END64.unpack(record)
    return position, count, size, offset


def _checked(raw: bytes, base: int, directory: int, count: int, is_wide: bool) -> tuple[str, bool]:
    """(the members' names, whether all are stored) of a directory that can be true. A quick pass over sound ones: what
    looks odd is looked at again, member by member."""
    names: list[bytes] = []
    position, reached, odd, all_stored = 0, base, False, True
    unpack, last = _QUICK_ENTRY.unpack_from, len(raw) - _ENTRY.size
    while position <= last:
        magic, flags, method, packed, size, name_length, extra, comment, header = unpack(raw, position)
        if magic != _ENTRY_MAGIC:
            break
        position += 46
        names.append(raw[position : position + name_length])
        if extra:
            begin = position + name_length
            size, packed, header = _wide_sizes(raw[begin : begin + extra], size, packed, header)
        position += name_length + extra + comment
        header += base
        if header < reached or method or size != packed or flags & _ENCRYPTED:
            odd, all_stored = True, all_stored and not method
        reached = header + LOCAL_BYTES + name_length + packed
    if position != len(raw):
        raise ZipRefused(f"its directory cannot be read beyond member {len(names)}")
    if len(names) != count and (is_wide or len(names) & 0xFFFF != count):
        raise ZipRefused(f"its directory lists {len(names)} members, its end record says {count}")
    joined = b"\0".join([b"", *names]).decode("utf-8", "replace")
    if joined.count("\0") != len(names) or any(map(joined.__contains__, _SUSPECT)):
        _check_names(joined, len(names))
    if odd:
        _check_places(_members(raw, base), directory)
    elif reached > directory:
        raise ZipRefused("its last member reaches beyond the data, into the directory")
    return joined, all_stored


def _members(raw: bytes, base: int) -> list[Member]:
    """The members of a directory that was read to its end once."""
    members: list[Member] = []
    position = 0
    while position < len(raw):
        _, flags, method, crc, packed, size, name_length, extra, comment, header = _ENTRY.unpack_from(raw, position)
        position += _ENTRY.size
        name = raw[position : position + name_length].decode("utf-8", "replace")
        position += name_length
        if extra:
            size, packed, header = _wide_sizes(raw[position : position + extra], size, packed, header)
        position += extra + comment
        if flags & _ENCRYPTED or method not in (0, _DEFLATED) or (method == 0 and packed != size):
            raise ZipRefused(f"its member {name[:100]!r} is packed as no checkpoint's is")
        members.append(Member(name, header + base, packed, crc, method == 0))
    return members


def _wide_sizes(extra: bytes, size: int, packed: int, header: int) -> tuple[int, int, int]:
    """Sizes and header offset with the 64-bit values of extra field 1, which holds only those that did not fit."""
    position = 0
    while position + 4 <= len(extra):
        kind, count = struct.unpack_from("<2H", extra, position)
        body = extra[position + 4 : position + 4 + count]
        if kind == 1:
            values = [int.from_bytes(body[at : at + 8], "little") for at in range(0, len(body) - 7, 8)]
            size = values.pop(0) if size == _WIDE and values else size
            packed = values.pop(0) if packed == _WIDE and values else packed
            header = values.pop(0) if header == _WIDE and values else header
            break
        position += 4 + count
    return size, packed, header


def _check_names(joined: str, count: int) -> None:
    """No member may be named so that unpacking it would write elsewhere."""
    names = joined.split("\0")[1:]
    bad = next((name for name in names if _UNSAFE_NAME.search(name)), None)
    if bad is None and len(names) != count:
        bad = joined
    if bad is not None:
        raise ZipRefused(f"its member {bad[:100]!r} is named so that unpacking it would write elsewhere", "path_unsafe")


def _check_places(members: list[Member], directory: int) -> None:
    """Members must not overlap, nor reach into the directory."""
    ordered = sorted(members, key=lambda member: member.header)
    for before, after in itertools.pairwise(ordered):
        if before.header + LOCAL_BYTES + before.size_bytes > after.header:
            detail = f"its members {before.name[:100]!r} and {after.name[:100]!r} claim the same bytes"
            raise ZipRefused(detail, "ranges_overlap")
    last = ordered[-1]
    if last.header + LOCAL_BYTES + last.size_bytes > directory:
        raise ZipRefused(f"its member {last.name[:100]!r} reaches beyond the data, into the directory")
