"""zarr arrays: one folder per array, its description beside one file per chunk of a regular grid.

A chunk that is not there is no error to zarr: it reads as the fill value, silently. So the files are held against the
grid. Every chunk of an array without compression has the same size, those at the edges too; of compressed ones a look
at the first bytes, or at all of a small one, tells whether they decompress.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from muster_agent.formats.base import Finding, Role, Severity, ShardEntry, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import FileSeen, Folder, trouble
from muster_agent.formats.safetensors import metadata_entry
from muster_agent.formats.spread import spread
from muster_agent.formats.zarr_grid import MAX_DIMENSIONS, MAX_DOCUMENT_BYTES, Grid, parse_grid
from muster_agent.formats.zstd import ZSTD_MAGIC, ZstdRefused, decompress

METADATA_NAME = ".zarray"
METADATA_NAMES = (METADATA_NAME, "zarr.json")
CHUNK_NAME = re.compile(r"(?:c[/.])?\d{1,18}(?:[./]\d{1,18})*|c", re.ASCII)
"""Of any version; in a folder that has a description only."""
PROBED_FILES = 64
"""Chunks of one array, or of one item of arrays, that a look opens."""
_INDEX = re.compile(r"\d{1,18}(?:[./]\d{1,18})*", re.ASCII)
_MAX_LISTED = 50
"""Findings of one kind per array; more would say the same."""
_SMALL_BYTES = 64 * 1024
_LARGEST_BYTES = 64 * 1024 * 1024


class ZarrArray(NamedTuple):
    """One array: the tensor `name`, whose chunks' `files` lie below `at` (with a `/` at its end, or empty) in the
    folder of the checkpoint; `blocked` are those that could not be looked at. Names are relative to `at`."""

    name: str
    role: Role
    grid: Grid
    files: Mapping[str, FileSeen]
    at: str = ""
    blocked: frozenset[str] = frozenset()

    @property
    def described(self) -> str:
        """The path of the file that describes it."""
        return self.at + (METADATA_NAME if not self.grid.prefix else METADATA_NAMES[1])


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
    files = _chunk_files(folder)
    grid, problem = read_grid(folder, METADATA_NAME)
    if grid is None:
        draft.findings.extend([problem] if problem else [])
        draft.shards.extend(_entry(one, seen, None, role) for one, seen in sorted(files.items()))
        return draft
    array = ZarrArray(name, role, grid, files, blocked=frozenset(folder.blocked))
    take_chunks(draft, array, absent=absent if folder.listed else None, with_tensors=with_tensors)
    draft.findings.extend(probe_findings(folder, array, spread(sorted(files), PROBED_FILES)))
    return draft


def read_grid(folder: Folder, path: str) -> tuple[Grid | None, Finding | None]:
    """What the description at `path` says, or the finding that says why that is not known."""
    try:
        return parse_grid(folder.read(path, MAX_DOCUMENT_BYTES)), None
    except ValueError as problem:
        return None, finding("metadata_unreadable", path=path, detail=f"{path} cannot be used: {problem}")
    except OSError as error:
        detail = f"{path} could not be read: {error.strerror}"
        return None, finding(trouble(error, f"{folder.path}/{path}").code, path=path, detail=detail)


def _chunk_files(folder: Folder, prefix: str = "", depth: int = 0) -> dict[str, FileSeen]:
    """Files named by an index, those in sub-folders (of arrays whose indices are joined with `/`) too."""
    found = {f"{prefix}{name}": seen for name, seen in folder.files.items() if _INDEX.fullmatch(name)}
    if depth < MAX_DIMENSIONS:
        for name in filter(_INDEX.fullmatch, folder.folders):
            found.update(_chunk_files(folder.sub(name), f"{prefix}{name}/", depth + 1))
    return found


# -- the chunks against the grid ---------------------------------------------------------------------------------------
def take_chunks(draft: Draft, array: ZarrArray, *, absent: Severity | None, with_tensors: bool) -> None:
    """Add what lies here as shards, with what is wrong with it. Without `absent` no chunk is called missing."""
    present = set()
    for name, seen in sorted(array.files.items()):
        index = array.grid.index_of(name)
        path = array.at + name
        if index is None:
            grid = f"the grid of {_by(array.grid)} chunks in {array.described}"
            detail = f"{path} ({seen.size_bytes} bytes) lies outside {grid}"
            draft.findings.append(finding("shard_orphaned", path=path, detail=detail))
            continue
        present.add(index)
        draft.shards.append(_entry(path, seen, array.grid.file_bytes, array.role))
        draft.findings.extend(_size_findings(path, seen.size_bytes, array))
        draft.tensors.extend([_range(path, seen.size_bytes, array)] if with_tensors else [])
    if absent is not None:
        draft.findings.extend(_absent_findings(array, present, absent))


def _entry(path: str, seen: FileSeen, promised: int | None, role: Role) -> ShardEntry:
    return ShardEntry(path=path, size_bytes=seen.size_bytes, promised_bytes=promised, role=role, mtime_ns=seen.mtime_ns)


def _range(path: str, size_bytes: int, array: ZarrArray) -> TensorRange:
    """Each chunk is one whole file; of a chunk at the edge, the part outside the array is padding."""
    return TensorRange(
        name=array.name,
        shard=path,
        offset_bytes=0,
        length_bytes=size_bytes,
        dtype=array.grid.dtype,
        shape=array.grid.chunk_shape,
        role=array.role,
    )


def _size_findings(path: str, size_bytes: int, array: ZarrArray) -> list[Finding]:
    promised = array.grid.file_bytes
    if size_bytes == 0:
        detail = f"the chunk {path} has 0 bytes"
        return [finding("shard_empty", path=path, detail=detail, tensor=array.name, begin_byte=0, end_byte=promised)]
    if promised is None or size_bytes == promised:
        return []
    code = "shard_oversized" if size_bytes > promised else "shard_truncated"
    first, last = sorted((size_bytes, promised))
    detail = f"the chunk {path} has {size_bytes} bytes, its elements need {promised} by {array.described}"
    return [finding(code, path=path, detail=detail, tensor=array.name, begin_byte=first, end_byte=last)]


def _absent_findings(array: ZarrArray, present: set[tuple[int, ...]], severity: Severity) -> Iterator[Finding]:
    """Chunks of the grid without a file; those that could not be looked at are not called missing."""
    grid = array.grid
    known = present | {index for name in array.blocked if (index := grid.index_of(name)) is not None}
    lost = grid.chunk_count - len(known)
    for index in islice(grid.indices(known), min(lost, _MAX_LISTED)):
        path = array.at + grid.name_of(index)
        detail = (
            f"{lost} of {grid.chunk_count} chunks of {array.name!r} in {array.described} are not there, this is one; it"
        )
        yield finding(
            "shard_missing", path=path, detail=f"{detail} reads as the fill value", severity=severity, tensor=array.name
        )


def _by(grid: Grid) -> str:
    return " x ".join(map(str, grid.counts)) or "1"


# -- what compressed chunks hold ---------------------------------------------------------------------------------------
def probe_findings(folder: Folder, array: ZarrArray, names: Sequence[str]) -> Iterator[Finding]:
    """Chunks among `names` that do not begin as compressed ones do; small ones are decompressed."""
    if array.grid.compressor != "zstd":
        return
    for name in names:
        path, size_bytes = array.at + name, array.files[name].size_bytes
        problem = _problem_of(folder, path, size_bytes, array.grid) if size_bytes else None
        if problem is not None:
            detail = f"the chunk {path} is damaged: {problem}"
            yield finding("metadata_unreadable", path=path, detail=detail, tensor=array.name)


def _problem_of(folder: Folder, path: str, size_bytes: int, grid: Grid) -> str | None:
    whole = grid.chunk_bytes
    try:
        data = folder.read(path, _SMALL_BYTES if size_bytes <= _SMALL_BYTES else len(ZSTD_MAGIC))
        if size_bytes > _SMALL_BYTES or whole is None or whole > _LARGEST_BYTES:
            return None if data.startswith(ZSTD_MAGIC) else "it does not begin as a compressed chunk does"
        have = len(decompress(data, whole))
    except ZstdRefused as refused:
        return refused.reason
    except OSError:
        return None
    return None if have == whole else f"it holds {have} bytes of elements, and {whole} are needed"
