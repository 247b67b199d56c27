"""One safetensors file: 8 bytes of header length, a JSON header, then the tensors without holes.

The data's CRC-32 is kept in the header's `__metadata__`, so that a reader can refuse damaged bytes with nothing else
at hand.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

DTYPES = {"F32": np.dtype("<f4"), "I64": np.dtype("<i8"), "U64": np.dtype("<u8")}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
MAX_HEADER_BYTES = 16 * 1024 * 1024
READ_BYTES = 8 * 1024 * 1024


class DamagedFile(Exception):
    """The bytes are not what was written; the message says where."""


def write_file(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> int:
    """Write contiguous arrays and flush them to the disk; gives the file's size in bytes. Raises OSError."""
    # Wider types first, then by name, as the reference writer does: it keeps every tensor aligned.
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    views = [tensors[name].reshape(-1).data.cast("B") for name in names]
    crc = 0
    for view in views:
        crc = zlib.crc32(view, crc)
    header = _header(names, tensors, {**metadata, "crc32": f"{crc:08x}"})
    with open(path, "wb") as stream:
        stream.write(header)
        for view in views:
            stream.write(view)
        stream.flush()
        os.fsync(stream.fileno())
        return stream.tell()


def read_bytes_into(path: Path, buffer: np.ndarray) -> None:
    """Fill the uint8 `buffer` from the file. Raises DamagedFile when the file ends early, OSError when it cannot be
    read."""
    view = buffer.data
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        done_bytes = 0
        while done_bytes < len(view):
            count = os.preadv(descriptor, [view[done_bytes : done_bytes + READ_BYTES]], done_bytes)
            if count == 0:
                raise DamagedFile(f"{path}: ends after {done_bytes} of {len(view)} bytes")
            done_bytes += count
    finally:
        os.close(descriptor)


def parse_tensors(path: Path, buffer: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Tensors (views into `buffer`, no copy) and metadata. Raises DamagedFile for bytes that are no such file."""
    header, data = _split(path, buffer)
    metadata = header.pop("__metadata__", {})
    tensors: dict[str, np.ndarray] = {}
    end_bytes = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        dtype = DTYPES.get(entry["dtype"])
        if dtype is None or begin != end_bytes or end > len(data):
            raise DamagedFile(f"{path}: the header's entry for {name} does not fit the file")
        tensors[name] = np.frombuffer(data[begin:end], dtype=dtype).reshape(entry["shape"])
        end_bytes = end
    if end_bytes != len(data):
        raise DamagedFile(f"{path}: {len(data) - end_bytes} bytes belong to no tensor")
    return tensors, metadata


def check_crc(path: Path, buffer: np.ndarray) -> None:
    """Raises DamagedFile unless the data is, byte for byte, what was written."""
    header, data = _split(path, buffer)
    promised = header.get("__metadata__", {}).get("crc32")
    found = f"{zlib.crc32(data.data):08x}"
    if found != promised:
        raise DamagedFile(f"{path}: the data's CRC-32 is {found}, {promised} was written")


def _header(names: list[str], tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
    begin = 0
    for name in names:
        array = tensors[name]
        end = begin + array.nbytes
        entries[name] = {"dtype": DTYPE_NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _split(path: Path, buffer: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    """The parsed header and the data after it."""
    try:
        (header_bytes,) = struct.unpack_from("<Q", buffer.data)
        if header_bytes > min(MAX_HEADER_BYTES, len(buffer) - 8):
            raise ValueError(f"a header of {header_bytes} bytes in a file of {len(buffer)}")
        header = json.loads(buffer[8 : 8 + header_bytes].tobytes())
        if not isinstance(header, dict):
            raise ValueError("the header is no JSON object")
    except (struct.error, ValueError) as problem:
        raise DamagedFile(f"{path}: the header cannot be read: {problem}") from problem
    return header, buffer[8 + header_bytes :]
