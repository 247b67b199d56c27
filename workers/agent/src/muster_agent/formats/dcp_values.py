"""The parts of which DCP's metadata is made."""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

from muster_agent.formats.pickle_machine import ByIdentity, PickleRefused

MAX_DIMENSIONS = 64

Offsets = tuple[int, ...]


class Chunk(NamedTuple):
    offsets: Offsets
    sizes: tuple[int, ...]


class Stored(NamedTuple):
    """One record: bytes [offset, offset + length) of `file`. `transformed` ones need a codec first."""

    file: str
    offset: int
    length: int
    transformed: bool


class Index(ByIdentity):
    """Of which tensor (or object), and of which of its chunks, a record is."""

    __slots__ = ("name", "offsets")

    def __init__(self, name: str, offsets: Offsets | None) -> None:
        self.name, self.offsets = name, offsets


def size_of(value: object) -> tuple[int, ...]:
    """The integers of a `torch.Size`, which is read as the tuple that it is made of."""
    if type(value) is list:
        value = tuple(value)
    if type(value) is not tuple or len(value) > MAX_DIMENSIONS or not all(map(is_size, value)):
        raise PickleRefused("a size or an offset is not a list of sizes")
    return value


def is_size(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 1 << 62
