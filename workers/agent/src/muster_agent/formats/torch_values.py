"""What the pickles of `torch.save` are read into: storages, views of them, and objects that were never made."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from muster_agent.formats.pickle_machine import Record

MAX_NAME_LETTERS = 1000


class StorageRef(NamedTuple):
    """A storage: `element_count` elements of `dtype` (a word such as `float32`) under `key`, e.g. member `data/{key}`
    of the zip. `dtype` is `unknown` for a storage class that is not on the list."""

    key: str
    dtype: str
    element_count: int
    location: str


class TensorValue(NamedTuple):
    """A view of a storage; `offset_elements` and `stride` count elements of `dtype`."""

    storage: StorageRef
    offset_elements: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str


class Instance(Record):
    """A Record that can take items as well: what was appended, or set by key, of a list's or dictionary's sub-class."""

    __slots__ = ("items",)

    def __init__(self, name: str, args: tuple[Any, ...]) -> None:
        super().__init__(name, args)
        self.items: list[Any] | dict[Any, Any] | None = None

    def get(self, field: str) -> Any:
        """An attribute, else an item, of that name; None where there is none."""
        value = super().get(field)
        return self.items.get(field) if value is None and isinstance(self.items, dict) else value


def named_tensors(value: Any, *, limit: int = 1_000_000, max_depth: int = 32) -> Iterator[tuple[str, TensorValue]]:
    """Each tensor below `value` with its dotted path, e.g. `state_dict.layer.weight`. Every container is visited once,
    by the first way that leads to it, and at most `limit` values are looked at, so that shared and circular values cost
    no more than the file holds."""
    seen: set[int] = set()
    levels: list[tuple[str, Iterator[tuple[str, Any]]]] = [("", iter([("", value)]))]
    while levels and limit > 0:
        prefix, parts = levels[-1]
        word, item = next(parts, ("", _END))
        limit -= 1
        if item is _END:
            levels.pop()
            continue
        name = f"{prefix}.{word}" if prefix else word
        if type(item) is TensorValue:
            yield name, item
        elif len(levels) <= max_depth and id(item) not in seen:
            seen.add(id(item))
            levels.append((name[:MAX_NAME_LETTERS], _parts(item)))


_END = object()
_PLAIN = (int, float, str, bytes, type(None))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((_word(key), part) for key, part in value.items() if not isinstance(part, _PLAIN))
    if isinstance(value, (list, tuple)):
        return ((str(index), part) for index, part in enumerate(value) if not isinstance(part, _PLAIN))
    if isinstance(value, Record):
        items = value.items if isinstance(value, Instance) else None
        state = _parts(value.state) if type(value.state) in (dict, list, tuple) else iter([("state", value.state)])
        return chain(_parts(items), state)
    return iter(())


def _word(key: object) -> str:
    return key[:500] if isinstance(key, str) else str(key) if isinstance(key, int) else type(key).__name__
