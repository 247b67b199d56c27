"""Ranges that were never written: a file system keeps no blocks for them, and they read as zeros.

A power loss leaves them, and so does a copy that spares the blocks of real zeros: optimizer moments before the first
step, rows of an embedding that no text used. So a hole alone is a warning. It is damage where the check sums that the
file carries say so, or where most of a model's weights would be zeros, and nothing where those sums agree.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import msgspec

from muster_agent.formats.base import Finding, Role, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import role_of
from muster_agent.formats.tree import Opened
from muster_agent.formats.zip_directory import Member, payload_begin

SUMMED_BYTES = 32 * 1024 * 1024
"""Of a file with a hole so much is read to compare it with its check sums; sealing and verifying read all of it."""
_BLOCK_BYTES = 1024 * 1024
_SHOWN = 3
_MAX_LISTED = 100


def hole_findings(opened: Opened, name: str) -> list[Finding]:
    """A `sparse_hole` for the first such range of the file `name`, where the storage knows of one."""
    hole = opened.hole()
    if hole is None:
        return []
    begin, end = hole
    detail = f"bytes {begin} to {end} of {name} were never written and read as zeros"
    return [finding("sparse_hole", path=name, detail=detail, begin_byte=begin, end_byte=end)]


# -- what carries check sums -------------------------------------------------------------------------------------------
def judged_by_sums(holes: list[Finding], opened: Opened, members: Iterable[Member]) -> list[Finding]:
    """The same findings of a file that holds these zip members; none where all their sums agree, so that the zeros are
    what was saved, and in place of them those members that differ. Unchanged where the writer recorded no sums, or
    where comparing would cost too much. Raises OSError."""
    stored = [member for member in members if member.size_bytes]
    if not holes or not any(member.crc32 for member in stored) or not all(member.stored for member in stored):
        return holes
    if sum(member.size_bytes for member in stored) > SUMMED_BYTES:
        return holes
    differing = [found for member in stored if (found := _differing(opened, holes[0].path, member))]
    return [*holes, *differing][:_MAX_LISTED] if differing else []


def _differing(opened: Opened, name: str, member: Member) -> Finding | None:
    begin = payload_begin(opened, member)
    if begin is None:
        return None
    value, end = 0, begin + member.size_bytes
    for at in range(begin, end, _BLOCK_BYTES):
        value = zlib.crc32(opened.pread(min(_BLOCK_BYTES, end - at), at), value)
    if value == member.crc32:
        return None
    detail = f"member {member.name[:200]!r} of {name} does not have the CRC-32 that was recorded when it was saved"
    return finding("digest_mismatch", path=name, detail=detail, begin_byte=begin, end_byte=end)


# -- what does not -----------------------------------------------------------------------------------------------------
def judged_by_tensors(holes: Iterable[Finding], tensors: Sequence[tuple[str, int, int]]) -> list[Finding]:
    """The same findings of a file of tensors (name, begin and end byte) with those that each hole touches; damage where
    it takes half or more of the bytes of model weights."""
    weights = [(name, begin, end) for name, begin, end in tensors if role_of(name) is Role.MODEL]
    all_bytes = sum(end - begin for _, begin, end in weights)
    return [_judged(hole, tensors, weights, all_bytes) for hole in holes]


def _judged(
    hole: Finding, tensors: Sequence[tuple[str, int, int]], weights: Sequence[tuple[str, int, int]], all_bytes: int
) -> Finding:
    first, last = hole.begin_byte or 0, hole.end_byte or 0
    touched = [name for name, begin, end in tensors if begin < last and end > first]
    lost_bytes = sum(max(0, min(end, last) - max(begin, first)) for _, begin, end in weights)
    detail = hole.detail
    if touched:
        more = f" and {len(touched) - _SHOWN} more" if len(touched) > _SHOWN else ""
        detail += f": tensor {', '.join(map(repr, touched[:_SHOWN]))}{more}"
    if not lost_bytes or 2 * lost_bytes < all_bytes:
        return msgspec.structs.replace(hole, detail=detail)
    detail += f"; that is {lost_bytes} of the {all_bytes} bytes of its model weights, which no training leaves zero"
    return msgspec.structs.replace(hole, detail=detail, severity=Severity.DAMAGE)
