"""What each opcode of a pickle does to the machine, by its letter; those that reach outside are refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from muster_agent.formats.pickle_machine import (
    MAX_INTEGER_BYTES,
    MAX_TEXT_BYTES,
    Machine,
    PickleRefused,
    Stop,
)


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
    machine.mark()


def _pop(machine: Machine) -> None:
    """Takes the mark where nothing lies above it, as Python's own reader does."""
    if machine.stack:
        machine.stack.pop()
    else:
        machine.since_mark()


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
    machine.fill(made, pairs)
    machine.stack.append(made)


def _append(machine: Machine) -> None:
    item = machine.stack.pop()
    machine.append(machine.stack[-1], [item])


def _appends(machine: Machine) -> None:
    items = machine.since_mark()
    machine.append(machine.stack[-1], items)


def _setitem(machine: Machine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.fill(machine.stack[-1], [key, value])


def _setitems(machine: Machine) -> None:
    pairs = machine.since_mark()
    machine.fill(machine.stack[-1], pairs)


def _memoize(machine: Machine) -> None:
    if machine.holes:
        machine.store(len(machine.memo) - machine.holes)
    else:
        machine.memo.append(machine.stack[-1])


def _put(width: int) -> Callable[[Machine], None]:
    def put(machine: Machine) -> None:
        machine.store(machine.number(width))

    return put


def _binget(machine: Machine) -> None:
    machine.position += 1
    machine.recall(machine.data[machine.position - 1])


def _long_binget(machine: Machine) -> None:
    machine.recall(machine.number(4))


def _global(machine: Machine) -> None:
    module, name = machine.line(), machine.line()
    machine.stack.append(machine.symbol(module, name))


def _stack_global(machine: Machine) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(machine.symbol(module, name))


def _call(machine: Machine) -> None:
    args, target = machine.stack.pop(), machine.stack.pop()
    machine.call(target, args)


def _newobj(machine: Machine) -> None:
    args, target = machine.stack.pop(), machine.stack.pop()
    machine.create(target, args)


def _newobj_ex(machine: Machine) -> None:
    named, args, target = machine.stack.pop(), machine.stack.pop(), machine.stack.pop()
    machine.create(target, args, named)


def _inst(machine: Machine) -> None:
    module, name = machine.line(), machine.line()
    args = machine.since_mark()
    machine.instantiate(machine.symbol(module, name), tuple(args))


def _obj(machine: Machine) -> None:
    items = machine.since_mark()
    machine.instantiate(items[0], tuple(items[1:]))


def _build(machine: Machine) -> None:
    state = machine.stack.pop()
    machine.build(machine.stack[-1], state)


def _persid(machine: Machine) -> None:
    machine.refer(machine.line())


def _binpersid(machine: Machine) -> None:
    machine.refer(machine.stack.pop())


def _extension(width: int) -> Callable[[Machine], None]:
    def push(machine: Machine) -> None:
        machine.extension(machine.number(width))

    return push


# -- the lines of protocol 0 -------------------------------------------------------------------------------------------
def _int_line(machine: Machine) -> None:
    raw = machine.raw_line()
    machine.stack.append(raw == b"01" if raw in (b"00", b"01") else _decimal(raw))


def _long_line(machine: Machine) -> None:
    machine.stack.append(_decimal(machine.raw_line().removesuffix(b"L")))


def _decimal(raw: bytes) -> int:
    if len(raw) > 2 * MAX_INTEGER_BYTES:
        raise PickleRefused(f"it holds an integer of {len(raw)} digits")
    return int(raw)


def _float_line(machine: Machine) -> None:
    machine.stack.append(float(machine.raw_line()))


def _string_line(machine: Machine) -> None:
    raw = machine.raw_line()
    if len(raw) < 2 or raw[0] != raw[-1] or raw[:1] not in (b"'", b'"'):
        raise ValueError("not a quoted string")
    machine.stack.append(raw[1:-1].decode("unicode-escape"))


def _unicode_line(machine: Machine) -> None:
    machine.stack.append(machine.raw_line().decode("raw-unicode-escape"))


def _put_line(machine: Machine) -> None:
    machine.store(_place(machine))


def _get_line(machine: Machine) -> None:
    machine.recall(_place(machine))


def _place(machine: Machine) -> int:
    place = _decimal(machine.raw_line())
    if place < 0:
        raise IndexError(place)
    return place


def _refuse(what: str) -> Callable[[Machine], None]:
    def refuse(_machine: Machine) -> None:
        raise PickleRefused(f"it {what}, which no metadata does", unsafe=True)

    return refuse


def unknown(machine: Machine) -> None:
    raise PickleRefused(f"byte {machine.position - 1} is no instruction that metadata has")


OPCODES: dict[bytes, Callable[[Machine], None]] = {
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
    b"\x81": _newobj,
    b"R": _call,
    b"\x92": _newobj_ex,
    b"b": _build,
    b"i": _inst,
    b"o": _obj,
    b"P": _persid,
    b"Q": _binpersid,
    b"I": _int_line,
    b"L": _long_line,
    b"F": _float_line,
    b"S": _string_line,
    b"V": _unicode_line,
    b"p": _put_line,
    b"g": _get_line,
    b"\x97": _refuse("refers to something outside the file"),
    b"\x98": _refuse("refers to something outside the file"),
    b"\x82": _extension(1),
    b"\x83": _extension(2),
    b"\x84": _extension(4),
}
TABLE = [OPCODES.get(bytes([code]), unknown) for code in range(256)]
