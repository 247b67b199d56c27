"""The quick yes: a sound safetensors header is recognised as one at the cost of a typed decode.

An inventory reads tens of thousands of headers and nearly all are sound. `quick_names` says yes only where every rule
of the format was checked; any doubt is a no, and the careful reader then finds out which rule is broken.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Size = Annotated[int, msgspec.Meta(ge=0)]

BITS: dict[str, int] = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
}
"""Bits of one element, by the format's name of the data type."""


class _Entry(msgspec.Struct, gc=False):
    dtype: str = ""
    shape: list[Size] = []
    data_offsets: tuple[Size, Size] = (0, 0)


class _Head(msgspec.Struct, gc=False, rename={"metadata": "__metadata__"}):
    metadata: dict[str, str] = {}


_ENTRIES = msgspec.json.Decoder(dict[str, _Entry])
_HEAD = msgspec.json.Decoder(_Head)


def quick_names(raw: bytes, data_bytes: int) -> list[str] | None:
    """The tensors' names where `raw` is a sound header of a file with `data_bytes` behind it; None where in doubt."""
    if raw[:1] != b"{":
        return None
    try:
        entries = _ENTRIES.decode(raw)
        keys = 4 * len(entries)
        if entries.pop("__metadata__", None) is not None:
            keys += len(_HEAD.decode(raw).metadata) - 3
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    # Every key of every object costs a colon, so equal counts mean that no key came twice and none was extra.
    if raw.count(b":") != keys or not _fills(entries, data_bytes):
        return None
    return list(entries)


def _fills(entries: dict[str, _Entry], data_bytes: int) -> bool:
    """Whether each range has its tensor's size and, sorted, the ranges fill the data part exactly."""
    ranges = []
    for entry in entries.values():
        begin, end = entry.data_offsets
        size = BITS.get(entry.dtype, 0)
        for dimension in entry.shape:
            size *= dimension
        if size != (end - begin) * 8 or (size == 0 and (len(entry.shape) != 1 or entry.dtype not in BITS)):
            return False
        ranges.append((begin, end))
    ranges.sort()
    reached = 0
    for begin, end in ranges:
        if begin != reached:
            return False
        reached = end
    return reached == data_bytes
