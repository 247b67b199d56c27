"""The machine that reads a pickle: its stack, marks and memo, and the bounds it keeps. pickle_opcodes drives it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

MAX_OPCODES = 50_000_000
MAX_STACK = 1_000_000
BURST = 1024
"""Opcodes between two looks at the bounds; none of them adds more than one value to the stack."""
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


class Stop(Exception):
    """The pickle has ended."""


class Machine:
    __slots__ = ("allowed", "callable_names", "data", "marks", "memo", "position", "stack")

    def __init__(self, data: bytes, allowed: frozenset[str], callable_names: frozenset[str]) -> None:
        self.data = data
        self.allowed = allowed
        self.callable_names = callable_names
        self.position = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, table: Sequence[Callable[[Machine], None]]) -> Any:
        """The one value that the pickle makes. Raises PickleRefused."""
        data = self.data
        try:
            for _ in range(MAX_OPCODES // BURST):
                for _ in range(BURST):
                    opcode = data[self.position]
                    self.position += 1
                    table[opcode](self)
                if len(self.stack) > MAX_STACK:
                    break
            raise PickleRefused("it has more entries than Muster reads", too_large=True)
        except Stop:
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
