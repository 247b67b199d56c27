"""The arrays of an Orbax item, as its tree of keys holds them: which there are, and whether each has all its chunks."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from muster_agent.formats.base import Finding, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.folder import Folder
from muster_agent.formats.ocdbt import Database, read_value
from muster_agent.formats.ocdbt_codec import Entry, NodeRef, Place
from muster_agent.formats.orbax_tree import role_of_param
from muster_agent.formats.zarr_grid import MAX_DOCUMENT_BYTES, Grid, parse_grid
from muster_agent.formats.zstd import ZSTD_MAGIC, ZstdRefused, decompress

_V2_CHUNK = re.compile(r"\d+(?:\.\d+)*", re.ASCII)
_V3_CHUNK = re.compile(r"(.*)/c((?:/\d+)*)", re.ASCII | re.DOTALL)
_HEADS_PER_FILE = 8
_MAX_SCALAR_BYTES = 4096
_INTEGERS = ("int32", "int64", "uint32", "uint64", "int16", "uint16", "uint8")


@dataclass(slots=True)
class ArraySeen:
    """`grid` is None while its description was not met or not understood."""

    grid: Grid | None = None
    chunks: int = 0
    problem: str | None = None
    scalar: Entry | None = None


@dataclass(slots=True)
class Arrays:
    """Collects the entries of one database."""

    database: Database
    with_tensors: bool
    found: dict[str, ArraySeen] = field(default_factory=dict)
    tensors: list[TensorRange] = field(default_factory=list)
    _chunk_places: dict[str, list[tuple[str, Place]]] = field(default_factory=lambda: defaultdict(list))
    _files_of: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def take(self, ref: NodeRef, entry: Entry) -> None:
        """One key of the tree: an array's description, or one of its chunks."""
        key = entry.key.decode("utf-8", "replace")
        name, _, tail = key.rpartition("/")
        if tail in (".zarray", "zarr.json"):
            self._describe(self._array(name), entry)
            return
        match = _V3_CHUNK.fullmatch(key)
        if match:
            name = match.group(1)
        elif not _V2_CHUNK.fullmatch(tail):
            return
        array = self._array(name)
        array.chunks += 1
        array.scalar = entry if array.chunks == 1 else None
        self._note_place(name, ref, entry)

    def _array(self, name: str) -> ArraySeen:
        return self.found.setdefault(name, ArraySeen())

    def _describe(self, array: ArraySeen, entry: Entry) -> None:
        data = read_value(self.database, entry, MAX_DOCUMENT_BYTES)
        if data is None:
            array.problem = "its description cannot be read"
            return
        try:
            array.grid = parse_grid(data)
        except ValueError as error:
            array.problem = f"its description cannot be used: {error}"

    def _note_place(self, name: str, ref: NodeRef, entry: Entry) -> None:
        place = entry.place or ref.place
        file = self.database.at + place.path
        self._files_of[file].add(name)
        heads = self._chunk_places[file]
        if entry.place is not None and len(heads) < _HEADS_PER_FILE:
            heads.append((name, place))
        if self.with_tensors:
            self.tensors.append(
                TensorRange(
                    name=name,
                    shard=file,
                    offset_bytes=place.offset,
                    length_bytes=place.length,
                    dtype="unknown",
                    shape=(),
                    role=role_of_param(name),
                )
            )

    def roles_in(self, file: str) -> set[str]:
        return self._files_of.get(file, set())

    def typed_tensors(self) -> list[TensorRange]:
        """Where the chunks lie. A chunk kept inside a tree node is given as that node's bytes."""
        typed = []
        for tensor in self.tensors:
            grid = self.found[tensor.name].grid
            if grid is None:
                typed.append(tensor)
                continue
            typed.append(
                TensorRange(
                    name=tensor.name,
                    shard=tensor.shard,
                    offset_bytes=tensor.offset_bytes,
                    length_bytes=tensor.length_bytes,
                    dtype=grid.dtype,
                    shape=grid.chunk_shape,
                    role=tensor.role,
                )
            )
        return typed

    def head_findings(self, folder: Folder) -> list[Finding]:
        """Chunks that were compressed with zstd and do not begin as zstd does."""
        found = []
        for file in sorted(self._chunk_places):
            places = [(name, place) for name, place in self._chunk_places[file] if self._is_zstd(name)]
            seen = folder.files.get(file)
            if places and seen is not None and seen.size_bytes >= self.database.needed.get(file, 0):
                found.extend(_head_findings(folder, file, places))
        return found

    def _is_zstd(self, name: str) -> bool:
        grid = self.found[name].grid
        return grid is not None and grid.compressor == "zstd"

    def integer(self, name: str) -> int | None:
        """The value of the integer scalar of this name; None where there is none, or it cannot be read."""
        array = self.found.get(name)
        if array is None or array.grid is None or array.scalar is None or array.grid.dtype not in _INTEGERS:
            return None
        data = read_value(self.database, array.scalar, _MAX_SCALAR_BYTES)
        return None if data is None or array.grid.shape else integer_of(array.grid, data)


def integer_of(grid: Grid, data: bytes) -> int | None:
    """The integer in the one chunk of a scalar array."""
    width = int(grid.dtype.lstrip("uint")) // 8
    if grid.compressor == "zstd":
        try:
            data = decompress(data, width)
        except ZstdRefused:
            return None
    elif not grid.plain:
        return None
    return int.from_bytes(data, "little", signed=grid.dtype[0] == "i") if len(data) == width else None


def _head_findings(folder: Folder, file: str, places: list[tuple[str, Place]]) -> list[Finding]:
    try:
        with folder.open(file) as opened:
            for name, place in places:
                if place.length >= len(ZSTD_MAGIC) and opened.pread(4, place.offset) != ZSTD_MAGIC:
                    detail = f"the chunk of {name!r} at byte {place.offset} of {file} does not begin as a chunk does"
                    end = place.offset + place.length
                    return [
                        finding(
                            "metadata_unreadable",
                            path=file,
                            detail=detail,
                            begin_byte=place.offset,
                            end_byte=end,
                            tensor=name,
                        )
                    ]
    except OSError:
        return []
    return []
