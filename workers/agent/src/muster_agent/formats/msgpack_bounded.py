"""Reading msgpack without trust: every length is checked against the bytes that are there before anything is made.

Not recursive, so that depth costs memory only; texts and numbers come back as they are, bytes and extensions as well.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

MAX_VALUES = 2_000_000
MAX_DEPTH = 200


class MsgpackRefused(Exception):
    """The bytes are no msgpack value, or break a bound; `reason` says which. `ends_early`: more bytes were announced
    than there are."""

    def __init__(self, reason: str, *, ends_early: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.ends_early = reason, ends_early


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
    return Reader(data, len(data)).whole()


class Reader:
    """Reads one value from byte `at` on, up to `end`. Where the bytes lie, and what is made of long ones, is for
    `take`, `binary` and `extension` to say."""

    def __init__(self, data: bytes, end: int) -> None:
        self.data, self.at, self.end = data, 0, end

    def whole(self) -> Any:
        """The one value that all the bytes are. Raises MsgpackRefused."""
        value = self.run()
        if self.at != self.end:
            raise MsgpackRefused(f"{self.end - self.at} bytes lie behind its end")
        return value

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
        code = self.take(1)[0]
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
            return form.unpack(self.take(form.size))[0]
        if 0xD4 <= code <= 0xD8:
            return self.extension(1 << code - 0xD4)
        if code not in _LENGTH_BYTES:
            raise MsgpackRefused(f"byte {self.at - 1} begins no value")
        return self._long(code, int.from_bytes(self.take(_LENGTH_BYTES[code]), "big"))

    def _long(self, code: int, length: int) -> Any:
        if code <= 0xC6:
            return self.binary(length)
        if code <= 0xC9:
            return self.extension(length)
        if code <= 0xDB:
            return self._text(length)
        return self._open(length, is_map=code >= 0xDE)

    def _open(self, count: int, *, is_map: bool) -> _Open:
        parts = 2 * count if is_map else count
        if parts > self.end - self.at:
            raise MsgpackRefused(f"it announces {count} entries, more than its bytes can hold", ends_early=True)
        return _Open(parts, is_map=is_map)

    def _text(self, length: int) -> str:
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise MsgpackRefused("a text in it is not valid UTF-8") from None

    def binary(self, length: int) -> Any:
        return self.take(length)

    def extension(self, length: int) -> Any:
        return Extension(self.take(1)[0], self.take(length))

    def take(self, count: int) -> bytes:
        end = self._step(count)
        return self.data[end - count : end]

    def _step(self, count: int) -> int:
        """Go on by `count` bytes, and give the place behind them."""
        begin, self.at = self.at, self.at + count
        if self.at > self.end:
            detail = f"it claims {count} bytes at byte {begin}, and {self.end - begin} are left"
            raise MsgpackRefused(detail, ends_early=True)
        return self.at
