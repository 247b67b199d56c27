"""`.nemo` files: the tar of a finished model, with its configuration and weights, without optimizer state.

The headers of a plain tar are walked, which reads no payload. Of a compressed one only reading all of it would tell
whether it is whole, so nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from muster_agent.formats.base import Finding, Role, ShardEntry
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder, trouble
from muster_agent.formats.tree import Opened

FORMAT = "nemo"
SUFFIX = ".nemo"
MAX_MEMBERS = 100_000
_BLOCK_BYTES = 512
_GZIP = b"\x1f\x8b"
_SIZE, _SUM, _TYPE = slice(124, 136), slice(148, 156), 156
_NOT_A_FILE = b"12345"
"""Types of members (links, devices, folders) that have no data."""


class Member(NamedTuple):
    """A member of a tar: its data lies in bytes [begin, end) of the file."""

    begin: int
    end: int


class _Refused(Exception):
    def __init__(self, code: str, detail: str, at: int) -> None:
        super().__init__(detail)
        self.code, self.detail, self.at = code, detail, at


def claims_file(_folder: Folder, name: str) -> bool:
    return name.endswith(SUFFIX)


def read_file(folder: Folder, name: str, _with_tensors: bool) -> Draft:
    """The model that the file `name` is."""
    draft = Draft(FORMAT, roles={Role.MODEL})
    seen = folder.files[name]
    draft.shards.append(ShardEntry(path=name, size_bytes=seen.size_bytes, role=Role.MODEL, mtime_ns=seen.mtime_ns))
    try:
        with folder.open(name) as opened:
            draft.findings.extend(_findings(draft, opened, name))
    except OSError as error:
        detail = f"{name} could not be read: {error.strerror}"
        draft.findings.append(finding(trouble(error, f"{folder.path}/{name}").code, path=name, detail=detail))
    return draft


def _findings(draft: Draft, opened: Opened, name: str) -> list[Finding]:
    if opened.size_bytes == 0:
        return [finding("shard_empty", path=name, detail=f"{name} has 0 bytes")]
    if opened.pread(2, 0) == _GZIP:
        draft.undecided = f"{name} is compressed: only reading all of it would tell whether it is whole"
        return []
    try:
        count = sum(1 for _ in members(opened))
    except _Refused as refused:
        return [finding(refused.code, path=name, detail=f"{name} {refused.detail}", begin_byte=refused.at)]
    if not count:
        return [finding("metadata_unreadable", path=name, detail=f"{name} is a tar that holds nothing")]
    return []


def members(opened: Opened) -> Iterator[Member]:
    """The members in order. Raises _Refused where the headers end too early or cannot be true, and OSError."""
    at = 0
    for _ in range(MAX_MEMBERS):
        header = opened.pread(_BLOCK_BYTES, at)
        if len(header) < _BLOCK_BYTES:
            raise _Refused("shard_truncated", "was cut: a tar ends with a block of zeros", opened.size_bytes)
        if not any(header):
            return
        begin = at + _BLOCK_BYTES
        end = begin + _data_bytes(header, at)
        if end > opened.size_bytes:
            raise _Refused("shard_truncated", f"was cut at byte {opened.size_bytes}, in a member", opened.size_bytes)
        yield Member(begin, end)
        at = end + -end % _BLOCK_BYTES
    raise _Refused("metadata_unreadable", f"has more than {MAX_MEMBERS} members", at)


def _data_bytes(header: bytes, at: int) -> int:
    """The size in a member's header, whose own sum must agree."""
    expected = sum(header[: _SUM.start]) + 8 * 0x20 + sum(header[_SUM.stop :])
    if _number(header[_SUM]) != expected:
        raise _Refused("metadata_unreadable", f"has no header of a tar's member at byte {at}", at)
    size = _number(header[_SIZE])
    if size is None:
        raise _Refused("metadata_unreadable", f"has a member without a size at byte {at}", at)
    return 0 if header[_TYPE] in _NOT_A_FILE else size


def _number(raw: bytes) -> int | None:
    """An octal number, or a binary one of GNU tar where it is too large for that."""
    if raw[0] & 0x80:
        return int.from_bytes(bytes([raw[0] & 0x7F]) + raw[1:], "big")
    text = raw.strip(b"\0 ")
    return int(text, 8) if text and text.strip(b"01234567") == b"" else None
