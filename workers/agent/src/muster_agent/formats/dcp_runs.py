"""The regular part of DCP metadata, read an object at a time instead of an opcode at a time.

Python's pickler writes the same opcodes for every chunk of a tensor and for every record, and those are nearly all of
the file. Once the machine has read one such object, the ones behind it are matched as a whole, for as long as every
opcode is the expected one and every reference leads to the same class or key. The first byte that differs, and whatever
else may refer to, is left to the machine: a run is a shortcut through the same meaning, never a looser reading.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice

from muster_agent.formats.dcp_values import Chunk, Index, Offsets, Stored, size_of
from muster_agent.formats.pickle_lean import LeanMachine
from muster_agent.formats.pickle_machine import MAX_MARKS, MAX_STACK, PickleRefused, Symbol

_LONGEST_RUN = 4096
_SIZE_CLASS = "torch.Size"
_NEAR, _SHORT_TEXT = b"h", 0x8C
_NEW_BYTES = 6
"""Of EMPTY_TUPLE, NEWOBJ, MEMOIZE, EMPTY_DICT, MEMOIZE, MARK: what lies between a class and the first key."""
_MOST_KEPT = 1 << 16
_GET = rb"(?:h.|j.{4})"
_INTEGER = rb"(?:K.|M..|J...[\0-\x7f]|\x8a\x05.{4}[\0-\x7f])"
_TEXT = rb"\x8c.[^\x94]*\x94"
_TUPLE = rb"(?:\)|%(i)b\x85\x94|%(i)b{2}\x86\x94|%(i)b{3}\x87\x94|\(%(i)b{4,8}t\x94)" % {b"i": _INTEGER}
_SIZE = rb"(%b)(?:(%b)\x85\x94R\x94)?" % (_GET, _TUPLE)
"""A call of torch.Size with a tuple, or a reference to an earlier one."""
_BEGIN = rb"(%b\)\x81\x94\}\x94\(%b)" % (_GET, _GET)
"""The class and the first key of an object."""
_INTEGERS = re.compile(_INTEGER, re.DOTALL)
_CHUNK = re.compile(_BEGIN + _SIZE + b"(%b)" % _GET + _SIZE + b"ub", re.DOTALL)
_WORD = b"(%b|%b)" % (_TEXT, _GET)
_INDEX = _BEGIN + _WORD + b"(?:(%b)(?:%b|N))?" % (_GET, _INTEGER) + b"(?:(%b)%b)?ub" % (_GET, _SIZE)
_STORED = _BEGIN + _WORD + b"(%b)(%b)" % (_GET, _INTEGER) + b"(%b)(%b)ub" % (_GET, _INTEGER)
_RECORD = re.compile(_INDEX + _STORED, re.DOTALL)
_NO_PLACE = 1 << 62
_MARKS_NEEDED = 2
_new = tuple.__new__


class _Left(Exception):
    """This object is the machine's to read."""


class Runs:
    """The runs of one machine, which is at its first byte yet."""

    def __init__(self, machine: LeanMachine) -> None:
        self._machine = machine
        self._recalled = sorted(machine.recalled)
        self._next_recalled = 0
        self._sizes: dict[tuple[bytes, bytes | None], tuple[Offsets, int]] = {}
        """By their opcodes, the first of which recalls the class by `_size_get`."""
        self._size_get = b""
        self._names: dict[bytes, tuple[str, int]] = {}

    def chunks(self, chunk_class: str) -> None:
        """Push the chunks that lie at the machine's position."""
        machine, sizes = self._machine, self._sizes
        push, last, known = machine.stack.append, None, None
        try:
            for match in self._matches(_CHUNK):
                begin, get, raw, key, other_get, other_raw = match.groups()
                if (begin, get, key, other_get) != known:
                    self._must_begin(begin, chunk_class, "offsets")
                    self._must_be(key, "sizes")
                    known = begin, get, key, other_get
                offsets, one = sizes.get((get, raw)) or self._size(get, raw)
                extent, two = sizes.get((other_get, other_raw)) or self._size(other_get, other_raw)
                end = machine.count + one + two + 2
                if self._next_recalled < end:
                    break
                machine.count = end
                push(_new(Chunk, (offsets, extent)))
                last = match
        except _Left:
            pass
        if last is not None:
            machine.position = last.end()

    def records(self, index_class: str, stored_class: str) -> None:
        """Push the indexes and the records that lie at the machine's position, one after the other."""
        machine, sizes, names = self._machine, self._sizes, self._names
        push, last, known = machine.stack.append, None, None
        try:
            for match in self._matches(_RECORD):
                begin, word, key, offset_key, get, raw, second, file_word, key1, offset, key2, length = match.groups()
                keys = begin, key, offset_key, second, key1, key2
                if keys != known:
                    self._must_begin(begin, index_class, "fqn")
                    self._must_be(key, "index")
                    self._must_be(offset_key, "offset")
                    self._must_begin(second, stored_class, "relative_path")
                    self._must_be(key1, "offset")
                    self._must_be(key2, "length")
                    known = keys
                name, one = names.get(word) or self._name(word)
                offsets, two = (sizes.get((get, raw)) or self._size(get, raw)) if get else (None, 0)
                file, three = self._word(file_word)
                end = machine.count + one + two + three + 4
                if self._next_recalled < end:
                    self._keep_words(end, name if one else None, file if three else None)
                machine.count = end
                push(Index(name, offsets))
                push(_new(Stored, (file, _integer(offset), _integer(length), False)))
                last = match
        except _Left:
            pass
        if last is not None:
            machine.position = last.end()

    def _matches(self, pattern: re.Pattern[bytes]) -> Iterator[re.Match[bytes]]:
        """What matches at the machine's position, and then behind one another; not more than the bounds allow."""
        machine = self._machine
        if len(machine.stack) > MAX_STACK:
            raise PickleRefused("it has more entries than Muster reads", too_large=True)
        if len(machine.enclosing) + _MARKS_NEEDED > MAX_MARKS:
            raise _Left
        if not self._is_size_class(self._size_get):
            self._sizes.clear()
        self._look_ahead(machine.count)
        scanner = pattern.scanner(machine.data, machine.position)  # type: ignore[attr-defined]
        return islice(iter(scanner.match, None), _LONGEST_RUN)

    # -- references --------------------------------------------------------------------------------------------------
    def _must_begin(self, raw: bytes, class_name: str, key: str) -> None:
        length = 2 if raw[:1] == _NEAR else 5
        symbol = self._recall(raw[:length])
        if type(symbol) is not Symbol or symbol.name != class_name:
            raise _Left
        self._must_be(raw[length + _NEW_BYTES :], key)

    def _must_be(self, get: bytes | None, key: str) -> None:
        if get is not None and self._recall(get) != key:
            raise _Left

    def _recall(self, get: bytes) -> object:
        return self._machine.places.get(int.from_bytes(get[1:], "little"))

    # -- values ------------------------------------------------------------------------------------------------------
    def _size(self, get: bytes, raw: bytes | None) -> tuple[Offsets, int]:
        """A size, and how many values of it are numbered."""
        if raw is None:
            found = self._recall(get)
            if type(found) is not tuple:
                raise _Left
            return self._machine.numbers(size_of(found)), 0
        if not self._is_size_class(get):
            raise _Left
        if get != self._size_get:
            self._sizes.clear()
            self._size_get = get
        value = tuple([_integer(one) for one in _INTEGERS.findall(raw, raw[:1] == b"(")])
        machine = self._machine
        collisions = machine.collisions
        size = machine.numbers(value), 2 if raw == b")" else 3
        if machine.collisions == collisions and len(self._sizes) < _MOST_KEPT:
            self._sizes[get, raw] = size
        return size

    def _is_size_class(self, get: bytes) -> bool:
        found = self._recall(get)
        return type(found) is Symbol and found.name == _SIZE_CLASS

    def _name(self, raw: bytes) -> tuple[str, int]:
        name, places = self._word(raw)
        name = self._machine.text(name)
        if places and len(self._names) < _MOST_KEPT:
            self._names[raw] = name, places
        return name, places

    def _word(self, raw: bytes) -> tuple[str, int]:
        """A text, and whether it is numbered here."""
        if raw[0] != _SHORT_TEXT:
            found = self._recall(raw)
            if type(found) is not str:
                raise _Left
            return found, 0
        if raw[1] != len(raw) - 3:
            raise _Left
        try:
            return str(raw[2:-1], "utf-8"), 1
        except UnicodeDecodeError:
            raise _Left from None

    # -- the memo ------------------------------------------------------------------------------------------------------
    def _keep_words(self, end: int, name: str | None, file: str | None) -> None:
        """Among the values of an index and a record, which are numbered up to `end`, something may refer to one of the
        texts: keep it. The name comes after the index and its state, the file comes last."""
        machine = self._machine
        words = {} if file is None else {end - 1: file}
        if name is not None:
            words[machine.count + 2] = name
        recalled = self._recalled_between(machine.count, end)
        if not words.keys() >= set(recalled) or any(place in machine.places for place in recalled):
            raise _Left
        machine.places.update((place, words[place]) for place in recalled)
        self._look_ahead(end)

    def _recalled_between(self, begin: int, end: int) -> list[int]:
        return self._recalled[bisect_left(self._recalled, begin) : bisect_left(self._recalled, end)]

    def _look_ahead(self, place: int) -> None:
        index = bisect_left(self._recalled, place)
        self._next_recalled = self._recalled[index] if index < len(self._recalled) else _NO_PLACE


class _Integers(dict[bytes, int]):
    """Integers by the opcodes that push them; the frequent ones are made once."""

    def __missing__(self, raw: bytes) -> int:
        value = int.from_bytes(raw[2 if raw[:1] == b"\x8a" else 1 :], "little")
        if len(self) < _MOST_KEPT:
            self[raw] = value
        return value


_integer = _Integers().__getitem__
