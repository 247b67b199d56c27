"""zarr version 2: one folder per array, `.zarray` beside one file per chunk of a regular grid.

A chunk that is not there is no error to zarr: it reads as the fill value, silently. So the files are held against the
grid. Every chunk of an array without compression has the same size, those at the edges too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from muster_agent.formats.base import Finding, Role, Severity, ShardEntry, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import FileSeen, Folder
from muster_agent.formats.safetensors import metadata_entry, read_json

METADATA_NAME = ".zarray"
MAX_ZARRAY_BYTES = 1 << 20
MAX_DIMENSIONS = 64
_MAX_LISTED = 50
"""Findings of one kind per array; more would say the same."""
_NUMPY_DTYPE = re.compile(r"[<>|=]?[biufcmMSVU](\d{1,6})", re.ASCII)
_NAMED_DTYPE = re.compile(r"(?:bfloat|float|int|uint|complex)(\d{1,3})(?:_\w+)?", re.ASCII)
_INDEX = re.compile(r"\d{1,18}(?:[./]\d{1,18})*", re.ASCII)


class ZarrArray(NamedTuple):
    """What `.zarray` says. `dtype` as zarr spells it (`<f4`, `bfloat16`); `item_bytes` None where its width is not
    known; `plain` where chunks are neither compressed nor filtered."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str
    item_bytes: int | None
    plain: bool
    separator: str

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return tuple(-(-size // chunk) for size, chunk in zip(self.shape, self.chunks, strict=True))

    @property
    def chunk_bytes(self) -> int | None:
        """Bytes of every chunk's file; None where compression makes them differ."""
        if not self.plain or self.item_bytes is None:
            return None
        return math.prod(self.chunks) * self.item_bytes


def is_array(folder: Folder) -> bool:
    return METADATA_NAME in folder.files or METADATA_NAME in folder.blocked


def read_array(
    folder: Folder, with_tensors: bool, *, name: str, role: Role, absent: Severity = Severity.DAMAGE
) -> Draft:
    """The array that `folder` is, as a part of a checkpoint: `name` and `role` are its tensor's. `absent` is how bad a
    chunk without a file is: none where the writer stores no chunk that equals the fill value (`Severity.NOTE`)."""
    draft = Draft("zarr", roles={role})
    if METADATA_NAME in folder.blocked:
        return draft
    draft.shards.append(metadata_entry(METADATA_NAME, folder.files[METADATA_NAME]))
    array, problem = read_zarray(folder)
    if array is None:
        draft.findings.extend([problem] if problem else [])
        draft.shards.extend(_entry(one, seen, None, role) for one, seen in sorted(_chunk_files(folder).items()))
        return draft
    present = _take_chunks(draft, folder, array, role)
    draft.findings.extend(_absent_findings(folder, array, set(present), absent, name))
    if with_tensors:
        draft.tensors.extend(_ranges(array, present, name, role))
    return draft


# -- the metadata ------------------------------------------------------------------------------------------------------
def read_zarray(folder: Folder) -> tuple[ZarrArray | None, Finding | None]:
    """What the folder's `.zarray` says, or the finding that says why that is not known."""
    document, problem = read_json(folder, METADATA_NAME, MAX_ZARRAY_BYTES)
    if problem is not None:
        return None, problem
    array = _array_of(document)
    if array is None:
        detail = f"{METADATA_NAME} is not the description of a zarr version 2 array"
        return None, finding("metadata_unreadable", path=METADATA_NAME, detail=detail)
    return array, None


def _array_of(document: Any) -> ZarrArray | None:
    if not isinstance(document, dict) or document.get("zarr_format") != 2:
        return None
    shape, chunks = _sizes(document.get("shape")), _sizes(document.get("chunks"))
    separator = document.get("dimension_separator", ".")
    if shape is None or chunks is None or len(shape) != len(chunks) or 0 in chunks or separator not in (".", "/"):
        return None
    dtype = document.get("dtype")
    return ZarrArray(
        shape=shape,
        chunks=chunks,
        dtype=dtype if isinstance(dtype, str) else "structured",
        item_bytes=_item_bytes(dtype),
        plain=not document.get("compressor") and not document.get("filters"),
        separator=separator,
    )


def _sizes(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list) or len(value) > MAX_DIMENSIONS:
        return None
    return tuple(value) if all(type(size) is int and 0 <= size < 1 << 62 for size in value) else None


def _item_bytes(dtype: Any) -> int | None:
    if not isinstance(dtype, str):
        return None
    if dtype == "bool":
        return 1
    numpy_name = _NUMPY_DTYPE.fullmatch(dtype)
    if numpy_name:
        return int(numpy_name.group(1)) * (4 if "U" in dtype else 1)
    named = _NAMED_DTYPE.fullmatch(dtype)
    return int(named.group(1)) // 8 if named and int(named.group(1)) % 8 == 0 else None


# -- the chunks --------------------------------------------------------------------------------------------------------
def _chunk_files(folder: Folder, prefix: str = "", depth: int = 0) -> dict[str, FileSeen]:
    """Files named by an index, those in sub-folders (of arrays whose indices are joined with `/`) too."""
    found = {f"{prefix}{name}": seen for name, seen in folder.files.items() if _INDEX.fullmatch(name)}
    if depth < MAX_DIMENSIONS:
        for name in filter(_INDEX.fullmatch, folder.folders):
            found.update(_chunk_files(folder.sub(name), f"{prefix}{name}/", depth + 1))
    return found


def _take_chunks(draft: Draft, folder: Folder, array: ZarrArray, role: Role) -> dict[tuple[int, ...], ShardEntry]:
    """Add what lies here as shards; those of the grid by their index."""
    grid, promised = array.grid, array.chunk_bytes
    present: dict[tuple[int, ...], ShardEntry] = {}
    for name, seen in sorted(_chunk_files(folder).items()):
        index = _index_of(name, array)
        if index is None or any(place >= count for place, count in zip(index, grid, strict=True)):
            detail = f"{name} ({seen.size_bytes} bytes) lies outside the array's grid of {_by(grid)} chunks"
            draft.findings.append(finding("shard_orphaned", path=name, detail=detail))
            continue
        present[index] = _entry(name, seen, promised, role)
        draft.shards.append(present[index])
        draft.findings.extend(_size_findings(name, seen.size_bytes, promised))
    return present


def _index_of(name: str, array: ZarrArray) -> tuple[int, ...] | None:
    """`1.0` is (1, 0); the one chunk of a scalar is called `0`."""
    if not array.shape:
        return () if name == "0" else None
    parts = name.split(array.separator)
    if len(parts) != len(array.shape) or not all(part.isdecimal() for part in parts):
        return None
    index = tuple(map(int, parts))
    return index if name == array.separator.join(map(str, index)) else None


def _entry(name: str, seen: FileSeen, promised: int | None, role: Role) -> ShardEntry:
    return ShardEntry(path=name, size_bytes=seen.size_bytes, promised_bytes=promised, role=role, mtime_ns=seen.mtime_ns)


def _size_findings(name: str, size_bytes: int, promised: int | None) -> list[Finding]:
    if size_bytes == 0:
        detail = f"the chunk {name} has 0 bytes"
        return [finding("shard_empty", path=name, detail=detail, begin_byte=0, end_byte=promised)]
    if promised is None or size_bytes == promised:
        return []
    code = "shard_oversized" if size_bytes > promised else "shard_truncated"
    first, last = sorted((size_bytes, promised))
    detail = f"the chunk {name} has {size_bytes} bytes, {METADATA_NAME} says {promised}"
    return [finding(code, path=name, detail=detail, begin_byte=first, end_byte=last)]


def _absent_findings(
    folder: Folder, array: ZarrArray, present: set[tuple[int, ...]], severity: Severity, tensor: str
) -> Iterator[Finding]:
    """Chunks of the grid without a file; those that could not be looked at are not called missing."""
    grid = array.grid
    expected = math.prod(grid)
    blocked = {index for name in folder.blocked if (index := _index_of(name, array)) is not None}
    lost = expected - len(present | blocked)
    if lost <= 0 or not folder.listed:
        return
    for listed, index in enumerate(_indices(grid, present | blocked)):
        if listed == _MAX_LISTED:
            return
        name = array.separator.join(map(str, index)) or "0"
        detail = f"{lost} of {expected} chunks of {tensor!r} are not there, this is one; it reads as the fill value"
        yield finding("shard_missing", path=name, detail=detail, severity=severity, tensor=tensor)


def _indices(grid: tuple[int, ...], without: set[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """The places of the grid in order, which may be astronomically many: take only as many as are needed."""
    for number in range(math.prod(grid)):
        index = []
        for count in reversed(grid):
            number, place = divmod(number, count)
            index.append(place)
        if (found := tuple(reversed(index))) not in without:
            yield found


def _by(grid: tuple[int, ...]) -> str:
    return " x ".join(map(str, grid)) or "1"


def _ranges(
    array: ZarrArray, present: dict[tuple[int, ...], ShardEntry], name: str, role: Role
) -> Iterator[TensorRange]:
    """Each chunk is one whole file; of a chunk at the edge, the part outside the array is padding."""
    for shard in present.values():
        yield TensorRange(
            name=name,
            shard=shard.path,
            offset_bytes=0,
            length_bytes=shard.size_bytes or 0,
            dtype=array.dtype,
            shape=array.chunks,
            role=role,
        )
