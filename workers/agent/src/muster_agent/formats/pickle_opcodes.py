"""What each opcode of a pickle does to the machine, by its letter; those that reach outside are refused."""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable
from typing import Any

from muster_agent.formats.pickle_machine import (
    MAX_INTEGER_BYTES,
    MAX_MARKS,
    MAX_TEXT_BYTES,
    Machine,
    PickleRefused,
    Record,
    Stop,
    Symbol,
)


def _key(value: Any) -> Hashable:
    """A dictionary key. Tuples may hold plain values only: hashing deeper ones would recurse without bound."""
    kind = type(value)
    if kind in (str, int, float, bool, bytes, type(None), Record, Symbol):
        return value  # type: ignore[no-any-return]
    if kind is tuple and all(type(part) in (str, int, bool, type(None)) for part in value):
        return value  # type: ignore[no-any-return]
    raise PickleRefused("it uses a key that no metadata has")


def _fill(target: Any, pairs: list[Any]) -> None:
    if type(target) is not dict or len(pairs) % 2:
        raise PickleRefused("it sets items on something that is not a dictionary", unsafe=type(target) is Record)
    for index in range(0, len(pairs), 2):
        target[_key(pairs[index])] = pairs[index + 1]


def _extend(target: Any, items: list[Any]) -> None:
    if type(target) is not list:
        raise PickleRefused("it appends to something that is not a list", unsafe=type(target) is Record)
    target.extend(items)


# -- opcodes, by their letter ------------------------------------------------------------------------------------------
def _stop(_machine: Machine) -> None:
    raise Stop


def _proto(machine: Machine) -> None:
    version = machine.number(1)
    if version > 5:
        raise PickleRefused(f"it is of pickle protocol {version}, which does not exist yet")


def _frame(machine: Machine) -> None:
    length = machine.number(8)
    if length > len(machine.data) - machine.position:
        raise PickleRefused("it breaks off: a frame is longer than the file")


def _mark(machine: Machine) -> None:
    if len(machine.marks) >= MAX_MARKS:
        raise PickleRefused("it is nested deeper than Muster reads", too_large=True)
    machine.marks.append(len(machine.stack))


def _pop(machine: Machine) -> None:
    machine.stack.pop()


def _pop_mark(machine: Machine) -> None:
    machine.since_mark()


def _dup(machine: Machine) -> None:
    machine.stack.append(machine.stack[-1])


def _constant(value: Any) -> Callable[[Machine], None]:
    def push(machine: Machine) -> None:
        machine.stack.append(value)

    return push


def _binint1(machine: Machine) -> None:
    machine.stack.append(machine.data[machine.position])
    machine.position += 1


def _binint2(machine: Machine) -> None:
    machine.stack.append(machine.number(2))


def _binint(machine: Machine) -> None:
    machine.stack.append(int.from_bytes(machine.take(4), "little", signed=True))


def _long(width: int) -> Callable[[Machine], None]:
    def push(machine: Machine) -> None:
        length = machine.number(width)
        if length > MAX_INTEGER_BYTES:
            raise PickleRefused(f"it holds an integer of {length} bytes")
        machine.stack.append(int.from_bytes(machine.take(length), "little", signed=True))

    return push


def _binfloat(machine: Machine) -> None:
    machine.stack.append(struct.unpack(">d", machine.take(8))[0])


def _text(width: int, encoding: str | None) -> Callable[[Machine], None]:
    def push(machine: Machine) -> None:
        length = machine.number(width)
        if length > MAX_TEXT_BYTES:
            raise PickleRefused(f"it holds a text of {length} bytes")
        raw = machine.take(length)
        machine.stack.append(raw if encoding is None else raw.decode(encoding))

    return push


def _empty_list(machine: Machine) -> None:
    machine.stack.append([])


def _empty_dict(machine: Machine) -> None:
    machine.stack.append({})


def _tuple_of(count: int) -> Callable[[Machine], None]:
    def push(machine: Machine) -> None:
        stack = machine.stack
        if len(stack) < count:
            raise IndexError
        stack[-count:] = [tuple(stack[-count:])]

    return push


def _tuple(machine: Machine) -> None:
    items = machine.since_mark()
    machine.stack.append(tuple(items))


def _list(machine: Machine) -> None:
    items = machine.since_mark()
    machine.stack.append(items)


def _dict(machine: Machine) -> None:
    pairs = machine.since_mark()
    made: dict[Any, Any] = {}
    _fill(made, pairs)
    machine.stack.append(made)


def _append(machine: Machine) -> None:
    item = machine.stack.pop()
    _extend(machine.stack[-1], [item])


def _appends(machine: Machine) -> None:
    items = machine.since_mark()
    _extend(machine.stack[-1], items)


def _setitem(machine: Machine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    _fill(machine.stack[-1], [key, value])


def _setitems(machine: Machine) -> None:
    pairs = machine.since_mark()
    _fill(machine.stack[-1], pairs)


def _memoize(machine: Machine) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _put(width: int) -> Callable[[Machine], None]:
    def put(machine: Machine) -> None:
        machine.memo[machine.number(width)] = machine.stack[-1]

    return put


def _binget(machine: Machine) -> None:
    machine.stack.append(machine.memo[machine.data[machine.position]])
    machine.position += 1


def _long_binget(machine: Machine) -> None:
    start = machine.position
    machine.stack.append(machine.memo[int.from_bytes(machine.data[start : start + 4], "little")])
    machine.position = start + 4


def _global(machine: Machine) -> None:
    module, name = machine.line(), machine.line()
    machine.stack.append(machine.symbol(module, name))


def _stack_global(machine: Machine) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(machine.symbol(module, name))


def _call(machine: Machine) -> None:
    args, target = machine.stack.pop(), machine.stack.pop()
    machine.call(target, args)


def _newobj_ex(machine: Machine) -> None:
    named, args, target = machine.stack.pop(), machine.stack.pop(), machine.stack.pop()
    machine.call(target, args)
    if named:
        machine.stack[-1].state = named


def _build(machine: Machine) -> None:
    state, target = machine.stack.pop(), machine.stack[-1]
    if type(target) is dict and not state:
        return
    if type(target) is not Record:
        raise PickleRefused("it sets state on something that is not a known object", unsafe=True)
    target.state = state


def _refuse(what: str) -> Callable[[Machine], None]:
    def refuse(_machine: Machine) -> None:
        raise PickleRefused(f"it {what}, which no metadata does", unsafe=True)

    return refuse


def _unknown(machine: Machine) -> None:
    raise PickleRefused(f"byte {machine.position - 1} is no instruction that metadata has")


_OPCODES: dict[bytes, Callable[[Machine], None]] = {
    b"\x80": _proto,
    b"\x95": _frame,
    b".": _stop,
    b"(": _mark,
    b"0": _pop,
    b"1": _pop_mark,
    b"2": _dup,
    b"N": _constant(None),
    b"\x88": _constant(True),
    b"\x89": _constant(False),
    b")": _constant(()),
    b"K": _binint1,
    b"M": _binint2,
    b"J": _binint,
    b"\x8a": _long(1),
    b"\x8b": _long(4),
    b"G": _binfloat,
    b"\x8c": _text(1, "utf-8"),
    b"X": _text(4, "utf-8"),
    b"\x8d": _text(8, "utf-8"),
    b"C": _text(1, None),
    b"B": _text(4, None),
    b"\x8e": _text(8, None),
    b"\x96": _text(8, None),
    b"U": _text(1, "latin-1"),
    b"T": _text(4, "latin-1"),
    b"]": _empty_list,
    b"}": _empty_dict,
    b"\x8f": _empty_list,
    b"\x85": _tuple_of(1),
    b"\x86": _tuple_of(2),
    b"\x87": _tuple_of(3),
    b"t": _tuple,
    b"l": _list,
    b"d": _dict,
    b"a": _append,
    b"e": _appends,
    b"\x90": _appends,
    b"\x91": _list,
    b"s": _setitem,
    b"u": _setitems,
    b"\x94": _memoize,
    b"q": _put(1),
    b"r": _put(4),
    b"h": _binget,
    b"j": _long_binget,
    b"c": _global,
    b"\x93": _stack_global,
    b"\x81": _call,
    b"R": _call,
    b"\x92": _newobj_ex,
    b"b": _build,
    b"i": _refuse("makes an object in the old way"),
    b"o": _refuse("makes an object in the old way"),
    b"P": _refuse("refers to something outside the file"),
    b"Q": _refuse("refers to something outside the file"),
    b"\x97": _refuse("refers to something outside the file"),
    b"\x82": _refuse("uses an extension code"),
    b"\x83": _refuse("uses an extension code"),
    b"\x84": _refuse("uses an extension code"),
}
TABLE = [_OPCODES.get(bytes([code]), _unknown) for code in range(256)]
