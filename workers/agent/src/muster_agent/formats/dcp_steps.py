"""The steps of a run: their metadata says the same but for its end, where each save has a place and a name of its own.

What was understood of one step up to there holds for the next one whose bytes begin with the very same ones. Only its
end is read then, by a machine that stands where the first one stood. Containers that were made before are out of its
reach: it holds a seal in place of each, so that an end that would change one is refused, and read in whole instead.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any, NamedTuple

from muster_agent.formats.pickle_lean import LEAN_TABLE, LeanMachine, places_recalled
from muster_agent.formats.pickle_machine import PickleRefused, Record, Symbol

LARGEST_BYTES = 1 << 20
"""The beginning of larger metadata is not kept."""
_LAST_FIELD = "storage_data"
_LOOKED_BACK = 4
"""The number of a reference may lie on both sides of the place where reading goes on."""
_INERT = (str, int, float, bool, bytes, tuple, NoneType, Symbol)


class _Seal:
    __slots__ = ()


class Beginning(NamedTuple):
    """The bytes up to the end of the last field that tells of the state, and how the machine stood there, with so many
    values `numbered`. `recalled` are the places that these bytes may recall, `later` those before there that the rest
    may recall."""

    data: bytes
    whole_bytes: int
    """Of the step itself: frames that begin here may be promised to end as late as that."""
    root: str
    numbered: int
    fields: dict[str, Any]
    places: dict[int, Any]
    recalled: set[int]
    later: set[int]

    def rest_of(self, data: bytes, make: Callable[..., LeanMachine]) -> dict[Any, Any] | None:
        """The other fields of `data`, where it begins with these bytes and its rest leaves the fields as they are;
        None where it must be read in whole. `make` makes the machine."""
        if len(data) < self.whole_bytes or not data.startswith(self.data):
            return None
        begin = len(self.data)
        recalled = places_recalled(data, begin - _LOOKED_BACK)
        if _before(self.numbered, recalled) != self.later:
            return None
        machine = make(data, position=begin, recalled=recalled | self.recalled)
        machine.count, machine.places = self.numbered, dict(self.places)
        machine.enclosing = [[Record(self.root, ()), {}]]
        machine.stack = [one for field in self.fields.items() for one in field]
        try:
            root = machine.run(LEAN_TABLE)
        except PickleRefused:
            return None
        return self._others(root.state if isinstance(root, Record) else None)

    def _others(self, state: object) -> dict[Any, Any] | None:
        if not isinstance(state, dict) or any(state.get(name) is not value for name, value in self.fields.items()):
            return None
        others = {name: value for name, value in state.items() if name not in self.fields}
        return None if any(type(value) is _Seal for value in others.values()) else others


class StepMachine(LeanMachine):
    """Remembers how it stood when the last field that tells of the state was filled."""

    __slots__ = ("_stood",)

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._stood: tuple[int, str, int, list[Any], dict[int, Any]] | None = None

    def fill(self, target: object, pairs: list[Any]) -> None:
        super().fill(target, pairs)
        stack = self.stack
        if len(self.enclosing) == 1 and len(stack) > 1 and stack[-2] == _LAST_FIELD and len(self.data) <= LARGEST_BYTES:
            match self.enclosing[0]:
                case [Record(name=name, args=(), state=None), {}]:
                    self._stood = self.position, name, self.count, list(stack), dict(self.places)

    def beginning(self) -> Beginning | None:
        """Once all is read; None where the metadata is not laid out as the library does it, or is large."""
        if self._stood is None:
            return None
        position, root, count, stack, places = self._stood
        names, values = stack[::2], stack[1::2]
        if len(names) != len(values) or any(type(name) is not str for name in names) or len(set(names)) != len(names):
            return None
        return Beginning(
            self.data[:position],
            len(self.data),
            root,
            count,
            dict(zip(names, map(_sealed, values), strict=True)),
            {place: _sealed(value) for place, value in places.items()},
            places_recalled(self.data[:position]),
            _before(count, places_recalled(self.data, position - _LOOKED_BACK)),
        )


def _sealed(value: object) -> object:
    return value if type(value) in _INERT else _Seal()


def _before(count: int, places: set[int]) -> set[int]:
    return {place for place in places if place < count}
