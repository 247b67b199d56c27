"""The machine that reads a pickle: its stack, marks and memo, and the bounds it keeps. pickle_opcodes drives it."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Hashable, Sequence
from types import NoneType
from typing import Any, TypeGuard

from muster_agent.formats.limits import check_pickle

MAX_OPCODES = 400_000_000
MAX_STACK = 1_000_000
BURST = 1024
"""Opcodes between two looks at the bounds; none of them adds more than one value to the stack."""
MAX_MARKS = 1_000
MAX_INTEGER_BYTES = 64
MAX_TEXT_BYTES = 16 * 1024 * 1024
MAX_LINE_BYTES = 4096


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


class ByIdentity:
    """An inert value that may be a key of a dictionary: it equals itself only."""

    __slots__ = ()


class Record(ByIdentity):
    """An inert stand-in for an object: which class or function, with what arguments, and what state was set on it."""

    __slots__ = ("args", "name", "state")

    def __init__(self, name: str, args: tuple[Any, ...]) -> None:
        self.name = name
        self.args = args
        self.state: Any = None

    def get(self, field: str) -> Any:
        """A field of the state; None where the state has none."""
        return self.state.get(field) if isinstance(self.state, dict) else None


class Stop(Exception):
    """The pickle has ended."""


GETATTR = "builtins.getattr"
_MEMBER = re.compile(r"(?!__)[A-Za-z_]\w{0,99}", re.ASCII)


def is_member_of_class(args: object) -> TypeGuard[tuple[Symbol, str]]:
    """Whether a call of `getattr` with these arguments only names something inside a class: how Python 3.11.0 to 3.11.3
    pickled a member of an enumeration, and protocols 0 to 3 a class inside another."""
    match args:
        case (Symbol(), str() as name):
            return _MEMBER.fullmatch(name) is not None
    return False


class _Hole:
    """A memo place that was skipped."""

    __slots__ = ()


_HOLE = _Hole()
_MAX_SKIPPED = 16
"""Memo places that one store may skip; picklers number them one after the other, some from 1."""


class Machine:
    """The strict machine: only `allowed` names may appear, only `callable_names` may be called, and nothing outside the
    pickle may be referred to. A subclass overrides what to do with names, calls, state and references."""

    __slots__ = ("allowed", "callable_names", "data", "enclosing", "holes", "memo", "position", "stack")

    def __init__(self, data: bytes, allowed: frozenset[str], callable_names: frozenset[str], position: int = 0) -> None:
        self.data = data
        self.allowed = allowed
        self.callable_names = callable_names
        self.position = position
        self.stack: list[Any] = []
        self.enclosing: list[list[Any]] = []
        """The stacks below each mark. What lies below a mark is out of reach until the mark is taken."""
        self.memo: list[Any] = []
        self.holes = 0

    def run(self, table: Sequence[Callable[[Any], None]]) -> Any:
        """The one value that the pickle makes; `position` is then behind its last byte. Raises PickleRefused,
        and limits.NeedsChild where it is longer than this process should parse."""
        data, begin = self.data, self.position
        try:
            for _ in range(MAX_OPCODES // BURST):
                for _ in range(BURST):
                    opcode = data[self.position]
                    self.position += 1
                    table[opcode](self)
                if len(self.stack) > MAX_STACK:
                    break
                check_pickle(self.position - begin)
            raise PickleRefused("it has more entries than Muster reads", too_large=True)
        except Stop:
            if len(self.stack) != 1 or self.enclosing:
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

    def raw_line(self) -> bytes:
        """Up to the next line feed, which is passed over."""
        end = self.data.index(b"\n", self.position, self.position + MAX_LINE_BYTES)
        raw = self.data[self.position : end]
        self.position = end + 1
        return raw

    def line(self) -> str:
        return self.raw_line().decode("ascii")

    def mark(self) -> None:
        if len(self.enclosing) >= MAX_MARKS:
            raise PickleRefused("it is nested deeper than Muster reads", too_large=True)
        self.enclosing.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        items = self.stack
        self.stack = self.enclosing.pop()
        return items

    def store(self, index: int) -> None:
        """Remember the top of the stack in memo place `index`, as Python's own reader counts places."""
        memo, value = self.memo, self.stack[-1]
        if index < len(memo):
            self.holes -= memo[index] is _HOLE
            memo[index] = value
            return
        skipped = index - len(memo)
        if skipped > _MAX_SKIPPED:
            raise PickleRefused("it numbers its shared values out of order")
        memo.extend([_HOLE] * skipped)
        memo.append(value)
        self.holes += skipped

    def recall(self, index: int) -> None:
        """Push what memo place `index` holds."""
        value = self.memo[index]
        if value is _HOLE:
            raise KeyError(index)
        self.stack.append(value)

    # -- what a subclass may see otherwise -----------------------------------------------------------------------------
    def symbol(self, module: object, name: object) -> Any:
        if type(module) is not str or type(name) is not str:
            raise PickleRefused("it computes the name of what it asks for", unsafe=True)
        full = f"{module}.{name}"
        if full not in self.allowed:
            raise PickleRefused(f"it asks for {full[:120]!r}, which no checkpoint needs", unsafe=True)
        return Symbol(full)

    def extension(self, code: int) -> None:
        """EXT1, EXT2 and EXT4: a name from a table that the loading process keeps."""
        raise PickleRefused(f"it uses the extension code {code}, which no metadata does", unsafe=True)

    def call(self, target: object, args: object) -> None:
        """REDUCE: call `target`."""
        if type(target) is not Symbol or target.name not in self.callable_names or type(args) is not tuple:
            raise PickleRefused("it calls something that is not a known class", unsafe=True)
        self.stack.append({} if target.name == "collections.OrderedDict" and not args else Record(target.name, args))

    def create(self, target: object, args: object, named: object = None) -> None:
        """NEWOBJ: make an object of the class `target` without calling it."""
        self.call(target, args)
        if named:
            self.stack[-1].state = named

    def instantiate(self, target: object, args: tuple[Any, ...]) -> None:
        """INST and OBJ: how protocol 0 and 1 make an object."""
        raise PickleRefused("it makes an object in the old way, which no metadata does", unsafe=True)

    def refer(self, reference: object) -> None:
        """PERSID and BINPERSID: something that lies outside the pickle, in the same file."""
        raise PickleRefused("it refers to something outside the file, which no metadata does", unsafe=True)

    def build(self, target: object, state: Any) -> None:
        """BUILD: set the state of an object."""
        if type(target) is dict and not state:
            return
        if type(target) is not Record:
            raise PickleRefused("it sets state on something that is not a known object", unsafe=True)
        target.state = state

    def append(self, target: object, items: list[Any]) -> None:
        """APPEND, APPENDS and ADDITEMS; sets are read as lists."""
        if type(target) is not list:
            raise PickleRefused("it appends to something that is not a list", unsafe=type(target) is Record)
        target.extend(items)

    def fill(self, target: object, pairs: list[Any]) -> None:
        """SETITEM and SETITEMS: `pairs` are key, value, key, value."""
        if type(target) is not dict or len(pairs) % 2:
            raise PickleRefused("it sets items on something that is not a dictionary", unsafe=type(target) is Record)
        for index in range(0, len(pairs), 2):
            key = pairs[index]
            target[key if type(key) is str else plain_key(key)] = pairs[index + 1]


_LARGEST_KEY = 1 << 60


def plain_key(value: Any) -> Hashable:
    """What stands for `value` as a key of a dictionary. Whatever a file could choose so that many keys fall on the same
    place of the table, or so that hashing recurses, is kept in a Record, which is a key by identity only."""
    kind = type(value)
    if kind in (str, bool, bytes, float, NoneType, Symbol) or isinstance(value, ByIdentity):
        return value  # type: ignore[no-any-return]
    if kind is int and -_LARGEST_KEY < value < _LARGEST_KEY:
        return value  # type: ignore[no-any-return]
    return Record("key", (value,))


def _brief(error: Exception) -> str:
    return type(error).__name__
