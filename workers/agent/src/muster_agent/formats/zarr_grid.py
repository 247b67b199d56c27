"""What a zarr array's own metadata (`.zarray`, `zarr.json`) says: shape, chunks, data type. Read without trust."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import msgspec

MAX_DOCUMENT_BYTES = 256 * 1024
MAX_DIMENSIONS = 64
_BITS = re.compile(r"(?:float|int|complex)(8|16|32|64|128)(?:_\w+)?", re.ASCII)
_V2_TYPES = {"f": "float", "i": "int", "u": "uint", "c": "complex", "b": "bool"}


class Grid(NamedTuple):
    """`chunk_shape` is that of each chunk; `compressor` the id of the codec that was applied last, None for none.
    `separator` stands between the numbers of a chunk's name."""

    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    dtype: str
    compressor: str | None
    separator: str
    version: int

    @property
    def chunk_count(self) -> int:
        """How many chunks cover the array; 1 for a scalar, 0 for an array without elements."""
        return math.prod(-(-size // chunk) for size, chunk in zip(self.shape, self.chunk_shape, strict=True))

    @property
    def chunk_bytes(self) -> int | None:
        """Bytes of a chunk's elements before any compression; None for a data type of unknown width."""
        bits = _BITS.search(self.dtype)
        width = 1 if self.dtype == "bool" else int(bits.group(1)) // 8 if bits else 0
        return width * math.prod(self.chunk_shape) or None


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
    compressor = document.get("compressor")
    separator = document.get("dimension_separator", ".")
    return _grid(
        document.get("shape"),
        document.get("chunks"),
        dtype=_type_of_v2(document.get("dtype")),
        compressor=compressor.get("id") if isinstance(compressor, dict) else None,
        separator=separator if separator in (".", "/") else ".",
        version=2,
    )


def _version_3(document: dict[str, Any]) -> Grid:
    layout = document.get("chunk_grid")
    configuration = layout.get("configuration") if isinstance(layout, dict) else None
    chunks = configuration.get("chunk_shape") if isinstance(configuration, dict) else None
    codecs = document.get("codecs")
    last = codecs[-1] if isinstance(codecs, list) and codecs else None
    dtype = document.get("data_type")
    return _grid(
        document.get("shape"),
        chunks,
        dtype=dtype if isinstance(dtype, str) else "unknown",
        compressor=last.get("name") if isinstance(last, dict) else None,
        separator="/",
        version=3,
    )


def _grid(shape: object, chunks: object, *, dtype: str, compressor: Any, separator: str, version: int) -> Grid:
    sizes, chunk_sizes = _sizes(shape), _sizes(chunks)
    if sizes is None or chunk_sizes is None or len(sizes) != len(chunk_sizes) or 0 in chunk_sizes:
        raise ValueError("its shape and its chunks do not fit together")
    return Grid(sizes, chunk_sizes, dtype, compressor if isinstance(compressor, str) else None, separator, version)


def _sizes(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list) or len(value) > MAX_DIMENSIONS:
        return None
    if not all(type(size) is int and 0 <= size < 1 << 62 for size in value):
        return None
    return tuple(value)


def _type_of_v2(value: object) -> str:
    """`<f4` is float32; names such as `bfloat16` are kept."""
    if not isinstance(value, str):
        return "unknown"
    if value[:1] in "<>|" and value[1:2] in _V2_TYPES and value[2:].isdecimal():
        kind = _V2_TYPES[value[1]]
        return kind if kind == "bool" else f"{kind}{int(value[2:4]) * 8}"
    return value[:40]
