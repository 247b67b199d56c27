"""What a zarr array's own metadata (`.zarray`, `zarr.json`) says: shape, chunks, data type, names of its chunks' files.

Read without trust.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import msgspec

MAX_DOCUMENT_BYTES = 1 << 20
MAX_DIMENSIONS = 64
_NUMPY_TYPE = re.compile(r"[<>|=]?([biufcmMSVU])(\d{1,6})", re.ASCII)
_NAMED_TYPE = re.compile(r"(?:bfloat|float|int|uint|complex)(\d{1,3})(?:_\w+)?", re.ASCII)
_NAMES = {"f": "float", "i": "int", "u": "uint", "c": "complex"}
_TO_BYTES = frozenset({"bytes", "endian"})
"""Codecs of zarr 3 that only lay the elements out."""
_KEEPS_BYTES = _TO_BYTES | {"transpose"}


class Grid(NamedTuple):
    """`chunk_shape` is that of each chunk, those at the edges too. `dtype` as `float32`; `item_bytes` None where its
    width is not known, or a filter may have changed it. `compressor` is the id of the codec that was applied last,
    None for none; `plain` where chunks are neither compressed nor filtered. A chunk's file is called by its index,
    joined by `separator`, behind `prefix` where there is one."""

    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    dtype: str
    item_bytes: int | None
    compressor: str | None
    plain: bool
    separator: str
    prefix: str = ""

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return tuple(-(-size // chunk) for size, chunk in zip(self.shape, self.chunk_shape, strict=True))

    @property
    def chunk_count(self) -> int:
        """How many chunks cover the array; 1 for a scalar, 0 for an array without elements."""
        return math.prod(self.counts)

    @property
    def chunk_bytes(self) -> int | None:
        """Bytes of a chunk's elements before any compression; None for a data type of unknown width."""
        return None if self.item_bytes is None else self.item_bytes * math.prod(self.chunk_shape)

    @property
    def file_bytes(self) -> int | None:
        """Bytes of every chunk's file; None where compression makes them differ."""
        return self.chunk_bytes if self.plain else None

    def name_of(self, index: tuple[int, ...]) -> str:
        """`1.0` for (1, 0); the one chunk of a scalar is called `0`, or by the prefix alone."""
        numbers = self.separator.join(map(str, index))
        if not self.prefix:
            return numbers or "0"
        return f"{self.prefix}{self.separator}{numbers}" if index else self.prefix

    def index_of(self, name: str) -> tuple[int, ...] | None:
        """The chunk whose file is called `name`; None where none of this grid is."""
        parts = name.split(self.separator)[1 if self.prefix else 0 :]
        if not self.shape:
            return () if name == self.name_of(()) else None
        if len(parts) != len(self.shape) or not all(part.isdecimal() and len(part) < 19 for part in parts):
            return None
        index = tuple(map(int, parts))
        inside = all(place < count for place, count in zip(index, self.counts, strict=True))
        return index if inside and name == self.name_of(index) else None

    def indices(self, without: Collection[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
        """The places of the grid in order, which may be astronomically many: take only as many as are needed."""
        for number in range(self.chunk_count):
            index = []
            for count in reversed(self.counts):
                number, place = divmod(number, count)
                index.append(place)
            if (found := tuple(reversed(index))) not in without:
                yield found


def parse_grid(data: bytes) -> Grid:
    """The grid in a `.zarray` (zarr 2) or a `zarr.json` (zarr 3). Raises ValueError that says what is wrong."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError("it is not a description of an array")
    if document.get("zarr_format") == 2:
        return _version_2(document)
    if document.get("zarr_format") == 3 and document.get("node_type") == "array":
        return _version_3(document)
    raise ValueError("it is neither of zarr 2 nor an array of zarr 3")


def _version_2(document: dict[str, Any]) -> Grid:
    compressor, dtype = document.get("compressor"), document.get("dtype")
    shape, chunks = _shapes(document.get("shape"), document.get("chunks"))
    return Grid(
        shape,
        chunks,
        dtype=_type_name(dtype),
        item_bytes=None if document.get("filters") else _item_bytes(dtype),
        compressor=_text(compressor.get("id")) if isinstance(compressor, dict) else None,
        plain=not compressor and not document.get("filters"),
        separator=_separator(document.get("dimension_separator", ".")),
    )


def _version_3(document: dict[str, Any]) -> Grid:
    encoding = document.get("chunk_key_encoding")
    is_flat = isinstance(encoding, dict) and encoding.get("name") == "v2"
    codecs = document.get("codecs")
    names = [one.get("name") for one in codecs if isinstance(one, dict)] if isinstance(codecs, list) else []
    last = _text(names[-1]) if names else None
    dtype = document.get("data_type")
    shape, chunks = _shapes(document.get("shape"), _configured(document.get("chunk_grid"), "chunk_shape"))
    return Grid(
        shape,
        chunks,
        dtype=_type_name(dtype),
        item_bytes=_item_bytes(dtype) if _KEEPS_BYTES.issuperset(map(_text, names[:-1])) else None,
        compressor=None if last in _TO_BYTES else last,
        plain=bool(names) and last in _TO_BYTES,
        separator=_separator(_configured(encoding, "separator") or ("." if is_flat else "/")),
        prefix="" if is_flat else "c",
    )


def _configured(value: object, name: str) -> object:
    configuration = value.get("configuration") if isinstance(value, dict) else None
    return configuration.get(name) if isinstance(configuration, dict) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _separator(value: object) -> str:
    if value not in (".", "/"):
        raise ValueError("its chunks' names are joined by neither . nor /")
    return str(value)


def _shapes(shape: object, chunks: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
    sizes, chunk_sizes = _sizes(shape), _sizes(chunks)
    if sizes is None or chunk_sizes is None or len(sizes) != len(chunk_sizes) or 0 in chunk_sizes:
        raise ValueError("its shape and its chunks do not fit together")
    return sizes, chunk_sizes


def _sizes(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list) or len(value) > MAX_DIMENSIONS:
        return None
    return tuple(value) if all(type(size) is int and 0 <= size < 1 << 62 for size in value) else None


def _item_bytes(dtype: object) -> int | None:
    if not isinstance(dtype, str):
        return None
    if dtype == "bool":
        return 1
    numpy_type = _NUMPY_TYPE.fullmatch(dtype)
    if numpy_type:
        return int(numpy_type.group(2)) * (4 if numpy_type.group(1) == "U" else 1)
    named = _NAMED_TYPE.fullmatch(dtype)
    return int(named.group(1)) // 8 if named and int(named.group(1)) % 8 == 0 else None


def _type_name(dtype: object) -> str:
    """`<f4` is float32; names such as `bfloat16` are kept."""
    if not isinstance(dtype, str):
        return "unknown" if dtype is None else "structured"
    numpy_type = _NUMPY_TYPE.fullmatch(dtype)
    if numpy_type and numpy_type.group(1) == "b":
        return "bool"
    if numpy_type and numpy_type.group(1) in _NAMES:
        return f"{_NAMES[numpy_type.group(1)]}{int(numpy_type.group(2)) * 8}"
    return dtype[:40]
