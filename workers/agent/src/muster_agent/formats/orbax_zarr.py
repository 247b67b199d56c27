"""An Orbax item without OCDBT: one zarr folder for each array, one file for each of its chunks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, product

from muster_agent.formats.base import Finding, ShardEntry, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.orbax_arrays import ArraySeen, integer_of
from muster_agent.formats.orbax_tree import role_of_param
from muster_agent.formats.zarr_grid import MAX_DOCUMENT_BYTES, Grid, parse_grid
from muster_agent.formats.zstd import ZSTD_MAGIC, ZstdRefused, decompress

_CHUNK = re.compile(r"(?:c/)?\d+(?:[./]\d+)*|c", re.ASCII)
_MAX_LISTED = 50
_PROBED_FILES = 64
_SMALL_BYTES = 64 * 1024
_LARGEST_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class ZarrItem:
    """The arrays below `at`; `found` is filled by `read`."""

    folder: Folder
    at: str
    unlisted: frozenset[str]
    stores_all: bool = False
    """Whether the writer leaves no chunk out, not even one of fill values only."""
    found: dict[str, ArraySeen] = field(default_factory=dict)
    _chunks: dict[str, list[str]] = field(default_factory=dict)

    def read(self, draft: Draft, with_tensors: bool) -> None:
        """Take the arrays, and the findings about single chunks, into the draft."""
        self._group()
        chunk_files = []
        for name, array in self.found.items():
            self._describe(name, array)
            if array.grid is not None:
                chunk_files += [(name, path) for path in self._chunks[name]]
                draft.findings.extend(self._size_findings(name, array.grid))
                draft.findings.extend(self._missing(name, array.grid) if self.stores_all else ())
        for name, path in _spread(chunk_files):
            draft.findings.extend(self._probe(name, path))
        for name, path in chunk_files:
            draft.shards.append(self._entry(name, path))
            if with_tensors:
                draft.tensors.append(self._range(name, path))

    def _group(self) -> None:
        start = len(self.at)
        files = [name for name in self.folder.files if name.startswith(self.at)]
        for path in files:
            head, _, tail = path[start:].rpartition("/")
            if tail in (".zarray", "zarr.json") and head:
                self.found[head] = ArraySeen()
                self._chunks[head] = []
        for path in files:
            parts = path[start:].split("/")
            for end in range(1, len(parts)):
                name = "/".join(parts[:end])
                if name in self.found and _CHUNK.fullmatch("/".join(parts[end:])):
                    self._chunks[name].append(path)
                    self.found[name].chunks += 1
                    break

    def _describe(self, name: str, array: ArraySeen) -> None:
        for own in (".zarray", "zarr.json"):
            path = f"{self.at}{name}/{own}"
            if path in self.folder.files:
                try:
                    array.grid = parse_grid(self.folder.read(path, MAX_DOCUMENT_BYTES))
                except (ValueError, OSError) as error:
                    array.problem = f"its description cannot be used: {error}"

    def _size_findings(self, name: str, grid: Grid) -> Iterator[Finding]:
        """Empty chunks, and chunks that are not compressed and have another size than their elements."""
        whole = grid.chunk_bytes if grid.compressor is None else None
        for path in self._chunks[name]:
            size = self.folder.files[path].size_bytes
            if size == 0:
                yield finding("shard_empty", path=path, detail=f"the chunk {path} has 0 bytes", tensor=name)
            elif whole is not None and size != whole:
                code = "shard_truncated" if size < whole else "shard_oversized"
                detail = f"the chunk {path} has {size} bytes, its elements need {whole}"
                yield finding(code, path=path, detail=detail, tensor=name)

    def _probe(self, name: str, path: str) -> Iterator[Finding]:
        """Whether a compressed chunk begins as one; a small one is decompressed."""
        grid, size = self.found[name].grid, self.folder.files[path].size_bytes
        if grid is None or grid.compressor != "zstd" or size == 0:
            return
        whole = grid.chunk_bytes
        try:
            data = self.folder.read(path, _SMALL_BYTES if size <= _SMALL_BYTES else len(ZSTD_MAGIC))
            if size > _SMALL_BYTES or whole is None or whole > _LARGEST_BYTES:
                problem = None if data.startswith(ZSTD_MAGIC) else "it does not begin as a compressed chunk does"
            else:
                have = len(decompress(data, whole))
                problem = None if have == whole else f"it holds {have} bytes of elements, and {whole} are needed"
        except ZstdRefused as refused:
            problem = refused.reason
        except OSError:
            return
        if problem is not None:
            detail = f"the chunk {path} is damaged: {problem}"
            yield finding("metadata_unreadable", path=path, detail=detail, tensor=name)

    def _missing(self, name: str, grid: Grid) -> Iterator[Finding]:
        have = set(self._chunks[name])
        lost = grid.chunk_count - len(have)
        absent = (path for path in self._expected(name, grid) if path not in have)
        for path in islice(absent, min(max(lost, 0), _MAX_LISTED)):
            if path in self.folder.blocked or any(path.startswith(one) for one in self.unlisted):
                continue
            detail = f"{lost} of {grid.chunk_count} chunks of {name!r} are not there, {path} is one"
            yield finding("shard_missing", path=path, detail=detail, tensor=name)

    def _expected(self, name: str, grid: Grid) -> Iterator[str]:
        counts = [range(-(-size // chunk)) for size, chunk in zip(grid.shape, grid.chunk_shape, strict=True)]
        for index in product(*counts):
            numbers = grid.separator.join(map(str, index))
            if grid.version == 2:
                yield f"{self.at}{name}/{numbers or '0'}"
            else:
                yield f"{self.at}{name}/c{'/' if numbers else ''}{numbers}"

    def _entry(self, name: str, path: str) -> ShardEntry:
        seen = self.folder.files[path]
        return ShardEntry(path=path, size_bytes=seen.size_bytes, mtime_ns=seen.mtime_ns, role=role_of_param(name))

    def _range(self, name: str, path: str) -> TensorRange:
        grid = self.found[name].grid
        return TensorRange(
            name=name,
            shard=path,
            offset_bytes=0,
            length_bytes=self.folder.files[path].size_bytes,
            dtype=grid.dtype if grid else "unknown",
            shape=grid.chunk_shape if grid else (),
            role=role_of_param(name),
        )

    def integer(self, name: str) -> int | None:
        """The value of the integer scalar of this name; None where there is none, or it cannot be read."""
        array = self.found.get(name)
        if array is None or array.grid is None or array.grid.shape or array.chunks != 1:
            return None
        try:
            return integer_of(array.grid, self.folder.read(self._chunks[name][0], _SMALL_BYTES))
        except OSError:
            return None


def _spread(files: list[tuple[str, str]]) -> list[tuple[str, str]]:
    if len(files) <= _PROBED_FILES:
        return files
    last = len(files) - 1
    return [files[index * last // (_PROBED_FILES - 1)] for index in range(_PROBED_FILES)]
