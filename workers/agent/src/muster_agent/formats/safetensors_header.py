"""Reading one safetensors file's header: bounded, and stricter than the library where two readers could disagree."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.folder import POSIX, trouble
from muster_agent.formats.holes import hole_findings, judged_by_tensors
from muster_agent.formats.safetensors_quick import BITS, quick_names
from muster_agent.formats.tree import Tree

MAX_HEADER_BYTES = 100_000_000
MAX_HEADER_ITEMS = 10_000_000
"""Colons, commas and brackets in one header: some 800,000 tensors. More would cost half a gigabyte to decode."""
FIRST_READ_BYTES = 64 * 1024


class HeaderTensor(NamedTuple):
    """Bytes [begin, end) of the file, not of its data part."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(slots=True)
class Header:
    """`ok` is False where the file must not be loaded or could not be read; `findings` says why. `unknown_dtypes`: of a
    newer writer."""

    size_bytes: int
    names: list[str] = field(default_factory=list)
    tensors: list[HeaderTensor] = field(default_factory=list)
    """Empty unless they were asked for."""
    tensor_bytes: int = 0
    metadata: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    unknown_dtypes: set[str] = field(default_factory=set)
    was_read: bool = True

    @property
    def ok(self) -> bool:
        return self.was_read and all(found.severity is not Severity.DAMAGE for found in self.findings)


class _Invalid(Exception):
    """The header breaks a rule; the finding says which."""

    def __init__(self, found: Finding) -> None:
        super().__init__(found.detail)
        self.found = found


def read_header(file_path: str, shown: str, *, with_tensors: bool = True, tree: Tree = POSIX) -> Header:
    """Read and judge the header of the file at `file_path`, called `shown` in findings. Raises nothing."""
    try:
        with tree.open(file_path) as opened:
            start = opened.pread(FIRST_READ_BYTES, 0)
            header = parse_header(
                start, opened.size_bytes, shown, lambda count: opened.pread(count, 8), with_tensors=with_tensors
            )
            if header.ok and (holes := hole_findings(opened, shown)):
                careful = parse_header(start, opened.size_bytes, shown, lambda count: opened.pread(count, 8))
                places = [(tensor.name, tensor.begin, tensor.end) for tensor in careful.tensors]
                header.findings.extend(judged_by_tensors(holes, places))
            return header
    except OSError as error:
        return _unread(error, file_path, shown)


def _unread(error: OSError, file_path: str, shown: str) -> Header:
    detail = f"{shown} could not be read: {error.strerror or type(error).__name__}"
    return Header(0, findings=[finding(trouble(error, file_path).code, path=shown, detail=detail)], was_read=False)


def parse_header(
    start: bytes, size_bytes: int, shown: str, read_more: Callable[[int], bytes], *, with_tensors: bool = True
) -> Header:
    """Judge a file of `size_bytes` that begins with `start`. `read_more(n)` gives n bytes from offset 8 when `start` is
    shorter than the header. Any bytes give a Header, with findings where they break a rule of the format."""
    header = Header(size_bytes)
    try:
        raw = _header_bytes(start, size_bytes, shown, read_more)
        names = None if with_tensors else quick_names(raw, size_bytes - 8 - len(raw))
        if names is not None:
            header.names, header.tensor_bytes = names, size_bytes - 8 - len(raw)
            return header
        _read_carefully(header, raw, shown)
    except _Invalid as invalid:
        header.findings.append(invalid.found)
        header.tensors, header.names = [], []
    return header


def _read_carefully(header: Header, raw: bytes, shown: str) -> None:
    document = _decode(raw, shown)
    _note_form(header, raw, document, shown)
    header.metadata = _metadata(document, shown)
    _tensors(header, document, 8 + len(raw), shown)
    _check_ranges(header, 8 + len(raw), shown)
    header.names = [tensor.name for tensor in header.tensors]
    header.tensor_bytes = header.size_bytes - 8 - len(raw)


def _bad(code: str, shown: str, detail: str, **more: Any) -> _Invalid:
    return _Invalid(finding(code, path=shown, detail=detail, **more))


def _header_bytes(start: bytes, size_bytes: int, shown: str, read_more: Callable[[int], bytes]) -> bytes:
    if size_bytes == 0:
        raise _bad("shard_empty", shown, f"{shown} has 0 bytes")
    _refuse_lookalikes(start, shown)
    if size_bytes < 8:
        raise _bad("shard_truncated", shown, f"{shown} has {size_bytes} bytes; a safetensors file has at least 8")
    length = int.from_bytes(start[:8], "little")
    if length > MAX_HEADER_BYTES:
        detail = f"the header claims {length} bytes; the format allows {MAX_HEADER_BYTES}"
        raise _bad("metadata_unreadable", shown, detail)
    if 8 + length > size_bytes:
        detail = f"the header needs {8 + length} bytes, the file has {size_bytes}"
        raise _bad("shard_truncated", shown, detail, begin_byte=size_bytes, end_byte=8 + length)
    raw = start[8 : 8 + length] if 8 + length <= len(start) else read_more(length)
    if len(raw) != length:
        raise _bad("shard_truncated", shown, f"{shown} became shorter while it was read")
    return raw


def _refuse_lookalikes(start: bytes, shown: str) -> None:
    """Files that are something else, each with its own cure. Eight characters of text cannot be a header's length."""
    is_text = all(32 <= byte < 127 or byte in b"\r\n\t" for byte in start[:8])
    if is_text and start.startswith(b"version https://git-lfs"):
        detail = "this is a Git LFS pointer, not the file itself"
        raise _bad("metadata_unreadable", shown, detail, cure="Fetch the file it stands for: `git lfs pull`.")
    if is_text and start.lstrip()[:1] == b"<":
        detail = "this is an HTML or XML page, most likely an error answer saved by a download"
        raise _bad("metadata_unreadable", shown, detail, cure="Download the file again and check the answer's status.")
    if len(start) >= 8 and not any(start):
        detail = "the file begins with zeros only: space was reserved, but the data never reached the disk"
        raise _bad("sparse_hole", shown, detail, severity=Severity.DAMAGE)


def _decode(raw: bytes, shown: str) -> dict[str, Any]:
    if sum(map(raw.count, (b":", b",", b"[", b"{"))) > MAX_HEADER_ITEMS:
        raise _bad("metadata_unreadable", shown, "the header has more entries than Muster reads")
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise _bad("metadata_unreadable", shown, f"the header is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise _bad("metadata_unreadable", shown, "the header is not a JSON object")
    return document


def _note_form(header: Header, raw: bytes, document: dict[str, Any], shown: str) -> None:
    twice = _duplicate(raw, document)
    if twice is not None:
        detail = f"the header names {twice!r} twice; two readers may load different bytes for it"
        raise _bad("metadata_unreadable", shown, detail)
    if raw[:1] != b"{":
        detail = "the header begins with white space, which the format forbids; current readers accept it"
        cure = "It can be loaded; save it again with a current writer before a stricter reader has to."
        header.findings.append(
            finding("metadata_unreadable", path=shown, detail=detail, severity=Severity.WARNING, cure=cure)
        )


def _duplicate(raw: bytes, document: dict[str, Any]) -> str | None:
    """A key that some object holds twice. Every key costs a colon, so as many colons as decoded keys means there is
    none; only where the counts differ (a colon inside a name, say) is the header parsed a second time, slowly."""
    keys = sum(1 + len(entry) if isinstance(entry, dict) else 1 for entry in document.values())
    if raw.count(b":") == keys:
        return None
    twice: list[str] = []

    def check(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [key for key, _ in pairs]
            twice.append(next(name for name in names if names.count(name) > 1))
        return found

    try:
        json.loads(raw.decode(), object_pairs_hook=check)
    except (ValueError, RecursionError):
        return "a name"
    return twice[0] if twice else None


def _metadata(document: dict[str, Any], shown: str) -> dict[str, str]:
    metadata = document.pop("__metadata__", None)
    if metadata is None:
        return {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _bad("metadata_unreadable", shown, "__metadata__ must map names to texts")
    return metadata


def _tensors(header: Header, document: dict[str, Any], data_begin: int, shown: str) -> None:
    extra = 0
    for name, entry in document.items():
        try:
            dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        except (TypeError, KeyError, ValueError):
            raise _bad("metadata_unreadable", shown, f"tensor {name!r} lacks dtype, shape or data_offsets") from None
        extra += len(entry) > 3
        if not _is_size(begin) or not _is_size(end) or begin > end or type(shape) is not list or type(dtype) is not str:
            raise _bad("metadata_unreadable", shown, f"tensor {name!r} has no valid dtype, shape or data_offsets")
        bits = BITS.get(dtype)
        count = _volume(shape)
        if count is None:
            raise _bad("metadata_unreadable", shown, f"tensor {name!r} has an impossible shape")
        if bits is None:
            header.unknown_dtypes.add(dtype)
        elif count * bits != (end - begin) * 8:
            detail = f"tensor {name!r} of {dtype} {shape} needs {count * bits / 8:g} bytes, its range has {end - begin}"
            raise _bad("metadata_unreadable", shown, detail)
        header.tensors.append(HeaderTensor(name, dtype, tuple(shape), data_begin + begin, data_begin + end))
    if extra:
        detail = f"{extra} tensor entries have fields that the format does not define; readers ignore them"
        cure = "Nothing need be done."
        header.findings.append(
            finding("metadata_unreadable", path=shown, detail=detail, severity=Severity.NOTE, cure=cure)
        )


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _volume(shape: list[Any]) -> int | None:
    """Number of elements; None where a dimension is no size or the product overflows 64 bits on the way."""
    count = 1
    for dimension in shape:
        if not _is_size(dimension):
            return None
        count *= dimension
        if count >= 1 << 64:
            return None
    return count


def _check_ranges(header: Header, data_begin: int, shown: str) -> None:
    """Sorted by offset, the ranges must fill the rest of the file with no hole, overlap or trailing byte."""
    header.tensors.sort(key=lambda tensor: (tensor.begin, tensor.end))
    reached = data_begin
    for tensor in header.tensors:
        if tensor.begin != reached:
            gap = tensor.begin > reached
            code, what = ("ranges_gap", "leaves a gap after") if gap else ("ranges_overlap", "overlaps")
            detail = f"tensor {tensor.name!r} {what} the tensor before it, at byte {min(tensor.begin, reached)}"
            first, last = sorted((tensor.begin, reached))
            raise _bad(code, shown, detail, begin_byte=first, end_byte=last, tensor=tensor.name)
        reached = tensor.end
    if reached > header.size_bytes:
        detail = f"the header describes {reached} bytes, the file has {header.size_bytes}"
        raise _bad("shard_truncated", shown, detail, begin_byte=header.size_bytes, end_byte=reached)
    if reached < header.size_bytes:
        detail = f"the header describes {reached} bytes, the file has {header.size_bytes}"
        raise _bad("shard_oversized", shown, detail, begin_byte=reached, end_byte=header.size_bytes)
