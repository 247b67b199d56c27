"""Counters that a script keeps as a tensor of one number: its bytes are read from the file."""

from __future__ import annotations

import struct

from muster_agent.formats.torch_archive import Loaded
from muster_agent.formats.torch_tensors import storage_prefix
from muster_agent.formats.torch_values import TensorValue
from muster_agent.formats.tree import Opened
from muster_agent.formats.zip_directory import payload_begin

_NUMBERS = {"int64": "q", "int32": "i", "int16": "h", "uint8": "B", "float32": "f", "float64": "d"}


def number_in(loaded: Loaded, tensor: TensorValue) -> int | float | None:
    """The number in a tensor that holds one, as its bytes in the file say; None where they cannot be had."""
    code = _NUMBERS.get(tensor.dtype)
    if code is None or any(size != 1 for size in tensor.shape) or not loaded.file.ok or tensor.offset_elements < 0:
        return None
    width = struct.calcsize(f"<{code}")
    try:
        with loaded.folder.open(loaded.name) as opened:
            begin, size_bytes = _place_of(opened, loaded, tensor.storage.key)
            offset = tensor.offset_elements * width
            raw = opened.pread(width, begin + offset) if offset + width <= size_bytes else b""
    except OSError:
        return None
    number: int | float | None = struct.unpack(f"<{code}", raw)[0] if len(raw) == width else None
    return number


def _place_of(opened: Opened, loaded: Loaded, key: str) -> tuple[int, int]:
    """(begin, size) of one storage's payload; (0, 0) where it has none. Raises OSError."""
    if not loaded.file.members:
        return loaded.places.get(key, (0, 0))
    name = storage_prefix(loaded.file.members) + key
    member = next((member for member in loaded.file.members if member.name == name and member.stored), None)
    begin = None if member is None else payload_begin(opened, member)
    return (0, 0) if member is None or begin is None else (begin, member.size_bytes)
