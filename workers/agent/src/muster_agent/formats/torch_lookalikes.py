"""Files where one of `torch.save` should be, and that hold something else: each in words that say what to do."""

from __future__ import annotations

from typing import Any

from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.tree import Opened
from muster_agent.formats.zip_directory import ZipRefused, find_commented_end

SIDE_TEXT_BYTES = 4096
_TEXT = frozenset(range(32, 127)) | frozenset(b"\r\n\t")
_DOWNLOAD_AGAIN = "Download the file again and check the answer's status."


def text_or_zeros(head: bytes, tail: bytes, name: str, size_bytes: int) -> Finding | None:
    """The finding for a file that is a Git LFS pointer, a page, an error message, zeros or safetensors; else None."""
    if not any(head):
        return _zeros(tail, name, size_bytes)
    if head.startswith(b"version https://git-lfs"):
        cure = "Fetch the file it stands for: `git lfs pull`."
        return _unlike(name, f"{name} is a Git LFS pointer, not the file itself", cure)
    if head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") < size_bytes:
        cure = "Give it the ending .safetensors, and load it with that library."
        return _unlike(name, f"{name} is a safetensors file under another name", cure)
    text = head.lstrip(b"\xef\xbb\xbf \r\n\t")
    if not all(byte in _TEXT for byte in text[:64].rstrip(b"\0")):
        return None
    if text[:1] == b"<":
        detail = f"{name} is an HTML or XML page, most likely an error answer saved by a download"
        return _unlike(name, detail, _DOWNLOAD_AGAIN)
    if text[:1] in (b"{", b"["):
        detail = f"{name} is JSON text, most likely an error answer saved by a download"
        return _unlike(name, detail, _DOWNLOAD_AGAIN)
    return None


def is_side_text(data: bytes, size_bytes: int) -> bool:
    """Whether the whole file, whose bytes `data` are, is a number or a few lines of plain text, such as a counter."""
    if not data or size_bytes != len(data) or size_bytes > SIDE_TEXT_BYTES:
        return False
    if size_bytes < 4:
        return data.strip().isdigit()
    return all(byte in _TEXT for byte in data) and data.lstrip()[:1] not in (b"<", b"{", b"[", b"")


def _zeros(tail: bytes, name: str, size_bytes: int) -> Finding:
    what = "holds only zeros" if not any(tail) else "begins with zeros only"
    detail = f"{name} {what}: space was reserved, but the data never reached the disk"
    return finding("sparse_hole", path=name, detail=detail, severity=Severity.DAMAGE, begin_byte=0, end_byte=size_bytes)


def unended_zip(opened: Opened, tail: bytes, name: str) -> Finding:
    """A file that begins as a zip and does not end as one. Raises OSError."""
    size_bytes = opened.size_bytes
    try:
        _, end = find_commented_end(opened, 0, size_bytes)
    except ZipRefused:
        end = None
    if end is not None and any(tail[-16:]):
        detail = f"{name} is a whole zip up to byte {end}, and {size_bytes - end} bytes more lie behind its end"
        return finding("shard_oversized", path=name, detail=detail, begin_byte=end, end_byte=size_bytes)
    if not any(tail[-16:]):
        written = size_bytes - len(tail) + len(tail.rstrip(b"\0"))
        detail = f"{name} ends with zeros: the end of the zip never reached the disk"
        return finding("shard_truncated", path=name, detail=detail, begin_byte=written, end_byte=size_bytes)
    detail = f"{name} was cut at byte {size_bytes}: it begins as a zip, but the directory at its end is not there"
    return finding("shard_truncated", path=name, detail=detail, begin_byte=size_bytes)


def begins_wrongly(head: bytes, name: str, begin: int) -> Finding:
    """A zip with a sound directory whose first member is not where it says."""
    if not any(head):
        detail = f"{name} has a sound directory, but its beginning is zeros: the storage lost those bytes"
        return finding("sparse_hole", path=name, detail=detail, severity=Severity.DAMAGE, begin_byte=begin)
    detail = f"{name} has a sound directory, but does not begin as a zip: its first bytes were overwritten"
    return _unlike(name, detail, None, begin_byte=begin)


def refused(error: ZipRefused, name: str) -> Finding:
    return finding(error.code, path=name, detail=f"{name} is a damaged zip: {error.detail}")


def unrecognised(name: str, what: str = "no file of torch.save, as far as this version knows") -> Finding:
    return finding("format_unknown", path=name, detail=f"{name} is {what}")


def _unlike(name: str, detail: str, cure: str | None, **more: Any) -> Finding:
    return finding("metadata_unreadable", path=name, detail=detail, cure=cure, **more)


def too_short(name: str, size_bytes: int) -> Finding:
    """A file of so few bytes that no format fits."""
    detail = f"{name} has {size_bytes} bytes, fewer than any saved state has: it was cut"
    return finding("shard_truncated", path=name, detail=detail, begin_byte=size_bytes)
