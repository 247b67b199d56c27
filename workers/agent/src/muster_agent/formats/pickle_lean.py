"""Reading large pickles of many small objects: the same machine, in less memory and fewer steps.

Python's pickler numbers every value so that a later one can refer to it, and hardly any is ever referred to. Keeping
them all would keep every intermediate value alive, several GB for the metadata of a large model. So the bytes are
searched beforehand for whatever could be a reference, and only those values are kept. With that, an object whose state
is complete can be folded into a smaller value at once.

Opcodes that always come together are done together; what they do is what they would do one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from muster_agent.formats.pickle_machine import (
    GETATTR,
    ByIdentity,
    Machine,
    PickleRefused,
    Record,
    Symbol,
    is_member_of_class,
)
from muster_agent.formats.pickle_opcodes import OPCODES, TABLE, unknown

_BLOCK_BYTES = 1 << 20
_FAR_REFERENCE = re.compile(rb"j(?=(.{4}))", re.DOTALL)
_NEAR_REFERENCE = re.compile(rb"h(?=(.))", re.DOTALL)
_MAX_COLLISIONS = 1000
_MAX_SHARED = 1 << 16

Fold = Callable[["LeanMachine", dict[Any, Any]], Any]
Run = Callable[[], None]


def places_recalled(data: bytes, begin: int = 0) -> set[int]:
    """Every memo place that an opcode of `data` could recall: those in the bytes behind each `j` and `h`, whether that
    is an opcode or part of a text."""
    places: set[int] = set()
    most = len(data)
    for start in range(begin, len(data), _BLOCK_BYTES):
        block = data[start : start + _BLOCK_BYTES + 4]
        far, near = set(_FAR_REFERENCE.findall(block)), set(_NEAR_REFERENCE.findall(block))
        places.update(place for place in (int.from_bytes(raw, "little") for raw in far | near) if place < most)
    return places


class LeanMachine(Machine):
    """`folds` makes a smaller value of an object of that class once its state is set; not where something else in the
    pickle may refer to the object, which then stays a Record. `runs`, by the class of an object that was folded, read
    on behind it. A call of a `transparent` name gives its argument. A member of one of `enumerations` may be asked for
    by its name."""

    __slots__ = (
        *("collisions", "count", "enumerations", "folds", "kept", "places", "recalled", "runs", "shared", "texts"),
        "transparent",
    )

    def __init__(
        self,
        data: bytes,
        allowed: frozenset[str],
        callable_names: frozenset[str],
        folds: Mapping[str, Fold] | None = None,
        transparent: frozenset[str] = frozenset(),
        enumerations: frozenset[str] = frozenset(),
        position: int = 0,
        recalled: set[int] | None = None,
    ) -> None:
        super().__init__(data, allowed | {GETATTR} if enumerations else allowed, callable_names, position)
        self.folds = folds or {}
        self.transparent = transparent
        self.enumerations = enumerations
        self.recalled = places_recalled(data) if recalled is None else recalled
        self.places: dict[int, Any] = {}
        self.count = 0
        self.kept: set[int] = set()
        self.texts: dict[str, str] = {}
        self.shared: dict[int, tuple[int, ...]] = {}
        self.collisions = 0
        self.runs: Mapping[str, Run] = {}

    def memoize(self) -> None:
        """Number the top of the stack, and keep it if that number may be recalled."""
        if self.count in self.recalled:
            self.store(self.count)
        else:
            self.count += 1

    def store(self, index: int) -> None:
        value = self.stack[-1]
        self.count += index not in self.places
        self.places[index] = value
        if type(value) is Record:
            self.kept.add(id(value))

    def recall(self, index: int) -> None:
        self.stack.append(self.places[index])

    def build(self, target: object, state: Any) -> None:
        if type(target) is Record and type(state) is dict:
            fold = self.folds.get(target.name)
            if fold is not None and id(target) not in self.kept:
                self.stack[-1] = fold(self, state)
                run = self.runs.get(target.name)
                if run is not None:
                    run()
                return
        super().build(target, state)

    def fill(self, target: object, pairs: list[Any]) -> None:
        if type(target) is dict and len(pairs) % 2 == 0:
            for key in pairs[::2]:
                if type(key) is not str and not isinstance(key, ByIdentity):
                    break
            else:
                target.update(zip(pairs[::2], pairs[1::2], strict=True))
                return
        super().fill(target, pairs)

    def call(self, target: object, args: object) -> None:
        if type(target) is Symbol and target.name in self.transparent and type(args) is tuple and len(args) == 1:
            self.stack.append(args[0])
        elif type(target) is Symbol and target.name == GETATTR and self._is_member(args):
            self.stack.append(Record(args[0].name, args[1:]))
        else:
            super().call(target, args)

    def _is_member(self, args: object) -> TypeGuard[tuple[Symbol, str]]:
        return is_member_of_class(args) and args[0].name in self.enumerations

    def create(self, target: object, args: object, named: object = None) -> None:
        if type(target) is Symbol and target.name in self.callable_names and args == () and not named:
            self.stack.append(Record(target.name, ()) if target.name != "collections.OrderedDict" else {})
        else:
            super().create(target, args, named)

    # -- equal values once ---------------------------------------------------------------------------------------------
    def text(self, value: str) -> str:
        """The first string equal to `value`."""
        return self.texts.setdefault(value, value)

    def numbers(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """An earlier tuple equal to `value`, where there is one. Such tuples become keys of dictionaries, and their
        hashes can be foreseen: a file whose tuples were chosen to collide is refused."""
        known = self.shared.setdefault(hash(value), value)
        if known is value:
            if len(self.shared) > _MAX_SHARED:
                self.shared.clear()
            return value
        if known == value:
            return known
        self.collisions += 1
        if self.collisions > _MAX_COLLISIONS:
            raise PickleRefused("its offsets are chosen so that looking them up takes hours", unsafe=True)
        return value


# -- opcodes that come together ----------------------------------------------------------------------------------------
_MEMOIZE, _BUILD = 0x94, ord("b")
_NEW_WITH_STATE = b"\x81\x94}\x94("
_CALL = b"\x94R\x94"


def _memoized(step: Callable[[Machine], None]) -> Callable[[LeanMachine], None]:
    """`step`, and the MEMOIZE that may follow it."""

    def both(machine: LeanMachine) -> None:
        step(machine)
        if machine.data[machine.position] == _MEMOIZE:
            machine.position += 1
            machine.memoize()

    return both


def _empty_tuple(machine: LeanMachine) -> None:
    """An object of a class without arguments, whose state follows as a dictionary: EMPTY_TUPLE NEWOBJ MEMOIZE
    EMPTY_DICT MEMOIZE MARK."""
    stack = machine.stack
    if machine.data.startswith(_NEW_WITH_STATE, machine.position):
        machine.position += 5
        machine.create(stack.pop(), ())
        machine.memoize()
        stack.append({})
        machine.memoize()
        machine.mark()
    else:
        stack.append(())


def _tuple1(machine: LeanMachine) -> None:
    """A call with one argument: TUPLE1 MEMOIZE REDUCE MEMOIZE."""
    stack = machine.stack
    stack[-1] = (stack[-1],)
    if machine.data.startswith(_CALL, machine.position):
        machine.position += 3
        machine.memoize()
        args, target = stack.pop(), stack.pop()
        machine.call(target, args)
        machine.memoize()


def _tuple2(machine: LeanMachine) -> None:
    stack = machine.stack
    second = stack.pop()
    stack[-1] = (stack[-1], second)
    if machine.data[machine.position] == _MEMOIZE:
        machine.position += 1
        machine.memoize()


def _binint2(machine: LeanMachine) -> None:
    data, start = machine.data, machine.position
    machine.stack.append(data[start] | data[start + 1] << 8)
    machine.position = start + 2


def _binint(machine: LeanMachine) -> None:
    start = machine.position
    machine.position = start + 4
    machine.stack.append(int.from_bytes(machine.data[start : start + 4], "little", signed=True))


def _short_text(machine: LeanMachine) -> None:
    """SHORT_BINUNICODE MEMOIZE. A text that is cut short is found out at the next opcode, which is not there."""
    data, start = machine.data, machine.position + 1
    end = start + data[start - 1]
    machine.stack.append(str(data[start:end], "utf-8"))
    machine.position = end
    if data[end] == _MEMOIZE:
        machine.position += 1
        machine.memoize()


def _setitems(machine: LeanMachine) -> None:
    """SETITEMS BUILD."""
    pairs = machine.since_mark()
    stack = machine.stack
    machine.fill(stack[-1], pairs)
    if machine.data[machine.position] == _BUILD:
        machine.position += 1
        state = stack.pop()
        machine.build(stack[-1], state)


def _long_binget(machine: LeanMachine) -> None:
    start = machine.position
    machine.position = start + 4
    machine.stack.append(machine.places[int.from_bytes(machine.data[start : start + 4], "little")])


def _binget(machine: LeanMachine) -> None:
    machine.stack.append(machine.places[machine.data[machine.position]])
    machine.position += 1


def _memoize(machine: LeanMachine) -> None:
    """A MEMOIZE by itself may stand where nothing is on the stack, which ends the reading."""
    machine.stack[-1]
    machine.memoize()


_TOGETHER: dict[bytes, Callable[[LeanMachine], None]] = {
    b"\x94": _memoize,
    b")": _empty_tuple,
    b"\x85": _tuple1,
    b"\x86": _tuple2,
    b"\x87": _memoized(OPCODES[b"\x87"]),
    b"t": _memoized(OPCODES[b"t"]),
    b"\x8c": _short_text,
    b"M": _binint2,
    b"J": _binint,
    b"u": _setitems,
    b"h": _binget,
    b"j": _long_binget,
    b"g": unknown,
}
LEAN_TABLE: list[Callable[[Any], None]] = [_TOGETHER.get(bytes([code]), TABLE[code]) for code in range(256)]
