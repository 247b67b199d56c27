"""Reading msgpack without trust: every length is checked against the bytes that are there before anything is made.

Not recursive, so that depth costs memory only; texts and numbers come back as they are, bytes and extensions as well.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

MAX_VALUES = 2_000_000
MAX_DEPTH = 200


class MsgpackRefused(Exception):
    """The bytes are no msgpack value, or break a bound; `reason` says which."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Extension(NamedTuple):
    """A value of a kind that only its writer knows."""

    kind: int
    data: bytes


class _Open:
    """A list or a map whose parts are being read."""

    __slots__ = ("is_map", "left", "parts")

    def __init__(self, count: int, *, is_map: bool) -> None:
        self.left, self.is_map = count, is_map
        self.parts: list[Any] = []

    def value(self) -> Any:
        if not self.is_map:
            return self.parts
        keys = (key if isinstance(key, (str, int, bytes)) else str(type(key)) for key in self.parts[::2])
        return dict(zip(keys, self.parts[1::2], strict=True))


_FIXED: dict[int, struct.Struct] = {
    code: struct.Struct(form)
    for code, form in zip(
        (0xCA, 0xCB, 0xCC, 0xCD, 0xCE, 0xCF, 0xD0, 0xD1, 0xD2, 0xD3),
        (">f", ">d", ">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q"),
        strict=True,
    )
}
_LENGTH_BYTES = {
    **dict(zip((0xC4, 0xC5, 0xC6), (1, 2, 4), strict=True)),
    **dict(zip((0xC7, 0xC8, 0xC9), (1, 2, 4), strict=True)),
    **dict(zip((0xD9, 0xDA, 0xDB), (1, 2, 4), strict=True)),
    **dict(zip((0xDC, 0xDD, 0xDE, 0xDF), (2, 4, 2, 4), strict=True)),
}
_PLAIN = {0xC0: None, 0xC2: False, 0xC3: True}


def parse_msgpack(data: bytes) -> Any:
    """The one value that `data` is. Raises MsgpackRefused."""
    reader = _Reader(data)
    try:
        value = reader.run()
    except struct.error:
        raise MsgpackRefused("it ends in the middle of a number") from None
    if reader.at != len(data):
        raise MsgpackRefused(f"{len(data) - reader.at} bytes lie behind its end")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def run(self) -> Any:
        waiting: list[_Open] = []
        for _ in range(MAX_VALUES):
            value = self._one()
            if isinstance(value, _Open) and value.left:
                if len(waiting) >= MAX_DEPTH:
                    raise MsgpackRefused("it is nested deeper than Muster reads")
                waiting.append(value)
                continue
            value = value.value() if isinstance(value, _Open) else value
            while waiting:
                top = waiting[-1]
                top.parts.append(value)
                top.left -= 1
                if top.left:
                    break
                value = waiting.pop().value()
            else:
                return value
        raise MsgpackRefused("it has more values than Muster reads")

    def _one(self) -> Any:
        code = self._take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return code if code < 0x80 else code - 0x100
        if code < 0xA0:
            return self._open(code & 15, is_map=code < 0x90)
        if code < 0xC0:
            return self._text(code & 31)
        if code in _PLAIN:
            return _PLAIN[code]
        if code in _FIXED:
            form = _FIXED[code]
            return form.unpack(self._take(form.size))[0]
        if 0xD4 <= code <= 0xD8:
            return Extension(self._take(1)[0], self._take(1 << code - 0xD4))
        if code not in _LENGTH_BYTES:
            raise MsgpackRefused(f"byte {self.at - 1} begins no value")
        return self._long(code, int.from_bytes(self._take(_LENGTH_BYTES[code]), "big"))

    def _long(self, code: int, length: int) -> Any:
        if code <= 0xC6:
            return self._take(length)
        if code <= 0xC9:
            return Extension(self._take(1)[0], self._take(length))
        if code <= 0xDB:
            return self._text(length)
        return self._open(length, is_map=code >= 0xDE)

    def _open(self, count: int, *, is_map: bool) -> _Open:
        parts = 2 * count if is_map else count
        if parts > len(self.data) - self.at:
            raise MsgpackRefused(f"it announces {count} entries, more than its bytes can hold")
        return _Open(parts, is_map=is_map)

    def _text(self, length: int) -> str:
        try:
            return self._take(length).decode()
        except UnicodeDecodeError:
            raise MsgpackRefused("a text in it is not valid UTF-8") from None

    def _take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise MsgpackRefused(f"it claims {count} bytes at byte {self.at}, and {len(self.data) - self.at} are left")
        taken = self.data[self.at : end]
        self.at = end
        return taken
