"""Files of `torch.save` before torch 1.6, and of today's with the zip format switched off: several pickles, then each
storage as its element count and its raw bytes. Whole where that sum reaches exactly the file's end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from muster_agent.formats.base import Finding
from muster_agent.formats.codes import finding
from muster_agent.formats.dcp_plan import DTYPE_BITS
from muster_agent.formats.pickle_machine import PickleRefused
from muster_agent.formats.torch_pickle import TorchPickle, read_one
from muster_agent.formats.tree import Opened

_MAGIC = bytes.fromhex("8a0a6cfc9c46f9206aa85019")
_PROTOCOL = 1001
_FIRST_READ_BYTES = 256 * 1024
_COUNT_BYTES = 8
_MAX_STORAGES = 1_000_000


class Legacy(NamedTuple):
    """`pickle` is the saved value; `places` are (begin, size) of each storage's payload by its key."""

    pickle: TorchPickle | None
    places: dict[str, tuple[int, int]]
    findings: tuple[Finding, ...]


class _Broken(Exception):
    """The finding says how."""

    def __init__(self, found: Finding) -> None:
        super().__init__(found.detail)
        self.found = found


def is_legacy(head: bytes) -> bool:
    """Whether a file that begins with `head` has the magic number of this format, in any pickle protocol."""
    return _MAGIC in head[:24]


def read(opened: Opened, name: str, limit_bytes: int) -> Legacy:
    """Read the pickles, at most `limit_bytes`, and go through the storages by their counts, no payload. Raises
    OSError."""
    try:
        pickle, keys, position = _pickles(opened, name, limit_bytes)
        if pickle is None:
            what = f"the pickles in {name} are larger than Muster reads"
            return Legacy(None, {}, (finding("format_unknown", path=name, detail=what),))
        return Legacy(pickle, _storages(opened, name, pickle, keys, position), ())
    except _Broken as broken:
        return Legacy(None, {}, (broken.found,))


def _pickles(opened: Opened, name: str, limit_bytes: int) -> tuple[TorchPickle | None, list[str], int]:
    """(the value, storage keys in the order of their payloads, where the payloads begin). Reads more as long as the
    pickles seem to be cut, since nothing says how long they are."""
    size = min(opened.size_bytes, _FIRST_READ_BYTES)
    while True:
        data = opened.pread(size, 0)
        try:
            return _parse(data, name)
        except PickleRefused as error:
            if error.too_large or (size == limit_bytes < opened.size_bytes):
                return None, [], 0
            if size == opened.size_bytes:
                raise _Broken(_cut_or_damaged(error, name, size)) from None
        size = min(opened.size_bytes, limit_bytes, size * 16)


def _cut_or_damaged(error: PickleRefused, name: str, size: int) -> Finding:
    detail = f"the pickles of {name} cannot be read to their end, so it was cut or damaged: {error.reason}"
    return finding("shard_truncated", path=name, detail=detail, begin_byte=size)


def _parse(data: bytes, name: str) -> tuple[TorchPickle, list[str], int]:
    position = 0
    values: list[TorchPickle] = []
    for _ in range(5):
        read_pickle, position = read_one(data, position)
        values.append(read_pickle)
    keys = values[4].value
    if values[1].value != _PROTOCOL or not isinstance(keys, list) or len(keys) > _MAX_STORAGES:
        detail = f"{name} begins as a legacy torch file, but does not go on as one"
        raise _Broken(finding("metadata_unreadable", path=name, detail=detail))
    return values[3], [key for key in keys if isinstance(key, str)], position


def _storages(opened: Opened, name: str, pickle: TorchPickle, keys: list[Any], position: int) -> dict[str, Any]:
    places: dict[str, tuple[int, int]] = {}
    for key in keys:
        count = int.from_bytes(opened.pread(_COUNT_BYTES, position), "little", signed=True)
        storage = pickle.storages.get(key)
        bits = DTYPE_BITS.get(storage.dtype) if storage else None
        if bits is None:
            return places
        size = count * bits // 8
        if count < 0 or (storage is not None and count < storage.element_count):
            detail = f"storage {key[:40]!r} of {name} says {count} elements where its tensors need more"
            raise _Broken(finding("metadata_unreadable", path=name, detail=detail, begin_byte=position))
        position += _COUNT_BYTES
        places[key] = (position, size)
        position += size
        if position > opened.size_bytes:
            detail = f"{name} was cut: its storages need {position} bytes or more, it has {opened.size_bytes}"
            raise _Broken(finding("shard_truncated", path=name, detail=detail, begin_byte=opened.size_bytes))
    if position != opened.size_bytes:
        detail = f"the storages of {name} end at byte {position}, the file has {opened.size_bytes}"
        raise _Broken(finding("shard_oversized", path=name, detail=detail, begin_byte=position))
    return places
