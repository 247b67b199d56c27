"""A reader of pickled metadata that runs nothing.

It interprets the opcodes itself, without recursion and without the pickle module. A name in the pickle becomes a
`Symbol`, a call of it a `Record` that remembers its arguments; only names from the caller's closed list may appear, and
any other ends the reading. Lengths are checked against the bytes that are there before anything is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable
from typing import Any

MAX_OPCODES = 50_000_000
MAX_STACK = 1_000_000
MAX_MARKS = 1_000
MAX_INTEGER_BYTES = 16
MAX_TEXT_BYTES = 16 * 1024 * 1024


class PickleRefused(Exception):
    """The bytes were not read to the end. `unsafe` where they ask for something that metadata never needs; `too_large`
    where they may be sound, but need more than this reader's bounds."""

    def __init__(self, reason: str, *, unsafe: bool = False, too_large: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.unsafe, self.too_large = reason, unsafe, too_large


class Symbol:
    """An allowed name. It is never imported."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Record:
    """An inert stand-in for an object: which class or function, with what arguments, and what state was set on it."""

    __slots__ = ("args", "name", "state")

    def __init__(self, name: str, args: tuple[Any, ...]) -> None:
        self.name = name
        self.args = args
        self.state: Any = None

    def get(self, field: str) -> Any:
        """A field of the state; None where the state has none."""
        return self.state.get(field) if isinstance(self.state, dict) else None


class _Stop(Exception):
    pass


class _Machine:
    __slots__ = ("allowed", "callable_names", "data", "marks", "memo", "position", "stack")

    def __init__(self, data: bytes, allowed: frozenset[str], callable_names: frozenset[str]) -> None:
        self.data = data
        self.allowed = allowed
        self.callable_names = callable_names
        self.position = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        table, data = _TABLE, self.data
        budget = MAX_OPCODES
        try:
            while True:
                opcode = data[self.position]
                self.position += 1
                table[opcode](self)
                budget -= 1
                if budget < 0 or len(self.stack) > MAX_STACK:
                    raise PickleRefused("it has more entries than Muster reads", too_large=True)
        except _Stop:
            if len(self.stack) != 1:
                raise PickleRefused("it does not end with one value") from None
            return self.stack.pop()
        except (IndexError, KeyError, TypeError, ValueError, struct.error, OverflowError) as error:
            raise PickleRefused(f"it breaks off or is malformed at byte {self.position} ({_brief(error)})") from None

    def take(self, count: int) -> bytes:
        """The next `count` bytes, refused before they are copied when they are not there."""
        end = self.position + count
        if count > len(self.data) - self.position:
            raise PickleRefused(f"it claims {count} bytes at byte {self.position}, and {self._left()} are left")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def _left(self) -> int:
        return len(self.data) - self.position

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def line(self) -> str:
        end = self.data.index(b"\n", self.position, self.position + 1024)
        text = self.data[self.position : end].decode("ascii")
        self.position = end + 1
        return text

    def since_mark(self) -> list[Any]:
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        return items

    def symbol(self, module: object, name: object) -> Symbol:
        if type(module) is not str or type(name) is not str:
            raise PickleRefused("it computes the name of what it asks for", unsafe=True)
        full = f"{module}.{name}"
        if full not in self.allowed:
            raise PickleRefused(f"it asks for {full[:120]!r}, which no checkpoint needs", unsafe=True)
        return Symbol(full)

    def call(self, target: object, args: object) -> None:
        if type(target) is not Symbol or target.name not in self.callable_names or type(args) is not tuple:
            raise PickleRefused("it calls something that is not a known class", unsafe=True)
        self.stack.append({} if target.name == "collections.OrderedDict" and not args else Record(target.name, args))


def _brief(error: Exception) -> str:
    return type(error).__name__


def read_pickle(data: bytes, allowed: frozenset[str], callable_names: frozenset[str]) -> Any:
    """The pickled value made of inert parts: None, bool, int, float, str, bytes, list, tuple, dict, Symbol and Record.

    `allowed` are the full names that may appear, `callable_names` those that may be called. Raises PickleRefused.
    """
    return _Machine(data, allowed, callable_names).run()


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
def _stop(_machine: _Machine) -> None:
    raise _Stop


def _proto(machine: _Machine) -> None:
    version = machine.number(1)
    if version > 5:
        raise PickleRefused(f"it is of pickle protocol {version}, which does not exist yet")


def _frame(machine: _Machine) -> None:
    length = machine.number(8)
    if length > len(machine.data) - machine.position:
        raise PickleRefused("it breaks off: a frame is longer than the file")


def _mark(machine: _Machine) -> None:
    if len(machine.marks) >= MAX_MARKS:
        raise PickleRefused("it is nested deeper than Muster reads", too_large=True)
    machine.marks.append(len(machine.stack))


def _pop(machine: _Machine) -> None:
    machine.stack.pop()


def _pop_mark(machine: _Machine) -> None:
    machine.since_mark()


def _dup(machine: _Machine) -> None:
    machine.stack.append(machine.stack[-1])


def _constant(value: Any) -> Callable[[_Machine], None]:
    def push(machine: _Machine) -> None:
        machine.stack.append(value)

    return push


def _binint1(machine: _Machine) -> None:
    machine.stack.append(machine.data[machine.position])
    machine.position += 1


def _binint2(machine: _Machine) -> None:
    machine.stack.append(machine.number(2))


def _binint(machine: _Machine) -> None:
    machine.stack.append(int.from_bytes(machine.take(4), "little", signed=True))


def _long(width: int) -> Callable[[_Machine], None]:
    def push(machine: _Machine) -> None:
        length = machine.number(width)
        if length > MAX_INTEGER_BYTES:
            raise PickleRefused(f"it holds an integer of {length} bytes")
        machine.stack.append(int.from_bytes(machine.take(length), "little", signed=True))

    return push


def _binfloat(machine: _Machine) -> None:
    machine.stack.append(struct.unpack(">d", machine.take(8))[0])


def _text(width: int, encoding: str | None) -> Callable[[_Machine], None]:
    def push(machine: _Machine) -> None:
        length = machine.number(width)
        if length > MAX_TEXT_BYTES:
            raise PickleRefused(f"it holds a text of {length} bytes")
        raw = machine.take(length)
        machine.stack.append(raw if encoding is None else raw.decode(encoding))

    return push


def _empty_list(machine: _Machine) -> None:
    machine.stack.append([])


def _empty_dict(machine: _Machine) -> None:
    machine.stack.append({})


def _tuple_of(count: int) -> Callable[[_Machine], None]:
    def push(machine: _Machine) -> None:
        stack = machine.stack
        if len(stack) < count:
            raise IndexError
        stack[-count:] = [tuple(stack[-count:])]

    return push


def _tuple(machine: _Machine) -> None:
    items = machine.since_mark()
    machine.stack.append(tuple(items))


def _list(machine: _Machine) -> None:
    items = machine.since_mark()
    machine.stack.append(items)


def _dict(machine: _Machine) -> None:
    pairs = machine.since_mark()
    made: dict[Any, Any] = {}
    _fill(made, pairs)
    machine.stack.append(made)


def _append(machine: _Machine) -> None:
    item = machine.stack.pop()
    _extend(machine.stack[-1], [item])


def _appends(machine: _Machine) -> None:
    items = machine.since_mark()
    _extend(machine.stack[-1], items)


def _setitem(machine: _Machine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    _fill(machine.stack[-1], [key, value])


def _setitems(machine: _Machine) -> None:
    pairs = machine.since_mark()
    _fill(machine.stack[-1], pairs)


def _memoize(machine: _Machine) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _put(width: int) -> Callable[[_Machine], None]:
    def put(machine: _Machine) -> None:
        machine.memo[machine.number(width)] = machine.stack[-1]

    return put


def _binget(machine: _Machine) -> None:
    machine.stack.append(machine.memo[machine.data[machine.position]])
    machine.position += 1


def _long_binget(machine: _Machine) -> None:
    machine.stack.append(machine.memo[machine.number(4)])


def _global(machine: _Machine) -> None:
    module, name = machine.line(), machine.line()
    machine.stack.append(machine.symbol(module, name))


def _stack_global(machine: _Machine) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(machine.symbol(module, name))


def _call(machine: _Machine) -> None:
    args, target = machine.stack.pop(), machine.stack.pop()
    machine.call(target, args)


def _newobj_ex(machine: _Machine) -> None:
    named, args, target = machine.stack.pop(), machine.stack.pop(), machine.stack.pop()
    machine.call(target, args)
    if named:
        machine.stack[-1].state = named


def _build(machine: _Machine) -> None:
    state, target = machine.stack.pop(), machine.stack[-1]
    if type(target) is dict and not state:
        return
    if type(target) is not Record:
        raise PickleRefused("it sets state on something that is not a known object", unsafe=True)
    target.state = state


def _refuse(what: str) -> Callable[[_Machine], None]:
    def refuse(_machine: _Machine) -> None:
        raise PickleRefused(f"it {what}, which no metadata does", unsafe=True)

    return refuse


def _unknown(machine: _Machine) -> None:
    raise PickleRefused(f"byte {machine.position - 1} is no instruction that metadata has")


_OPCODES: dict[bytes, Callable[[_Machine], None]] = {
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
_TABLE = [_OPCODES.get(bytes([code]), _unknown) for code in range(256)]
