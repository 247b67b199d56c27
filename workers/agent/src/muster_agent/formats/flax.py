"""Files of flax's `to_bytes` and `save_checkpoint`, such as `checkpoint_1000` and `model.msgpack`: one msgpack value in
which each array is an extension of its shape, its data type and its bytes. The bytes are stepped over, not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from muster_agent.formats.base import Role, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft, lone_file, role_of
from muster_agent.formats.folder import Folder, trouble
from muster_agent.formats.msgpack_bounded import Extension, MsgpackRefused, Reader
from muster_agent.formats.names import step_of_file
from muster_agent.formats.tree import Opened

FORMAT = "flax"
_SUFFIX = ".msgpack"
_WINDOW_BYTES = 64 * 1024
_LARGEST_READ_BYTES = 1024 * 1024
"""A text or a number that is longer is none of flax's."""
_ARRAYS = frozenset({1, 3})
"""The kinds of extension that are an array, or a scalar of numpy packed like one; 2 is a complex number."""
_MAPS = frozenset((*range(0x81, 0x90), 0xDE, 0xDF))
_MAX_DEPTH = 64
_STEPS = ("step", "global_step")


class Array(NamedTuple):
    """An array: its bytes are [offset, offset + length) of the file."""

    shape: tuple[int, ...]
    dtype: str
    offset: int
    length: int


def claims_file(folder: Folder, name: str) -> bool:
    """By its ending, or a name without one that gives a step and whose first byte begins a map; an empty one by those
    beside it."""
    if name.endswith(_SUFFIX):
        return True
    if "." in name or step_of_file(name) is None or name not in folder.files:
        return False
    if not folder.files[name].size_bytes:
        return any(seen.size_bytes and claims_file(folder, other) for other, seen in folder.files.items())
    try:
        return int.from_bytes(folder.read(name, 1), "big") in _MAPS
    except OSError:
        return False


def read_file(folder: Folder, name: str, with_tensors: bool) -> Draft:
    """Whole is a file that is one value to its very end."""
    draft = lone_file(FORMAT, name, folder.files[name])
    if draft.findings:
        return draft
    try:
        with folder.open(name) as opened:
            value = Skimmer(opened).whole()
            draft.step = next((step for key in _STEPS if (step := _integer(opened, value, key)) is not None), None)
    except MsgpackRefused as error:
        code = "shard_truncated" if error.ends_early else "metadata_unreadable"
        draft.findings.append(finding(code, path=name, detail=f"{name} is no whole msgpack value: {error.reason}"))
        return draft
    except OSError as error:
        code = trouble(error, os.path.join(folder.path, name)).code
        draft.findings.append(finding(code, path=name, detail=f"{name} could not be read: {error.strerror}"))
        return draft
    arrays = list(_arrays(value))
    draft.roles = {role_of(path) for path, _ in arrays} - {Role.OTHER}
    if not arrays:
        draft.undecided = f"{name} holds no arrays"
    if with_tensors:
        draft.tensors.extend(range_of(path, array, name) for path, array in arrays)
    return draft


class Skimmer(Reader):
    """Reads the file in windows, and steps over the bytes of arrays."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(b"", opened.size_bytes)
        self._opened, self._begin, self._window = opened, 0, b""

    def take(self, count: int) -> bytes:
        end = self._step(count)
        if count > _LARGEST_READ_BYTES:
            raise MsgpackRefused(f"a text of {count} bytes is none of flax's")
        begin = end - count
        if begin < self._begin or end > self._begin + len(self._window):
            self._begin, self._window = begin, self._opened.pread(max(count, _WINDOW_BYTES), begin)
        taken = self._window[begin - self._begin : end - self._begin]
        if len(taken) != count:
            raise MsgpackRefused("it became shorter while it was read", ends_early=True)
        return taken

    def binary(self, length: int) -> Any:
        begin = self.at
        self._step(length)
        return range(begin, begin + length)

    def extension(self, length: int) -> Any:
        kind, begin = self.take(1)[0], self.at
        self._step(length)
        if kind not in _ARRAYS:
            return Extension(kind, b"")
        inside = Skimmer(self._opened)
        inside.at, inside.end = begin, begin + length
        return array_of(inside.run())


def array_of(parts: Any) -> Array:
    """The array that an extension's parts describe. Raises MsgpackRefused."""
    match parts:
        case [[*shape], str(dtype), range() as place] if all(type(size) is int for size in shape):
            return Array(tuple(shape), dtype, place.start, len(place))
    raise MsgpackRefused("an array in it is not as flax writes it")


def _arrays(value: Any) -> Iterator[tuple[str, Array]]:
    """Each array by its path; one of over 1 GiB lies in pieces, each of which comes by itself."""
    levels: list[tuple[str, Any]] = [("", value)]
    while levels:
        path, item = levels.pop()
        if isinstance(item, Array):
            yield path, item
        elif isinstance(item, dict) and path.count("/") < _MAX_DEPTH:
            levels.extend((f"{path}/{key}" if path else str(key), part) for key, part in reversed(item.items()))


def _integer(opened: Opened, value: Any, key: str) -> int | None:
    """A counter at the top: a number, or an array of one."""
    held = value.get(key) if isinstance(value, dict) else None
    if isinstance(held, Array):
        held = int.from_bytes(opened.pread(held.length, held.offset), "little") if is_counter(held) else None
    return held if type(held) is int and 0 <= held < 1 << 63 else None


def is_counter(array: Array) -> bool:
    """Whether it is one whole number."""
    return "int" in array.dtype and array.length <= 8 and all(size == 1 for size in array.shape)


def range_of(path: str, array: Array, name: str) -> TensorRange:
    """Where the array lies, as that of tensor `path` in the file `name`."""
    return TensorRange(
        name=path,
        shard=name,
        offset_bytes=array.offset,
        length_bytes=array.length,
        dtype=array.dtype,
        shape=array.shape,
        role=role_of(path),
    )
