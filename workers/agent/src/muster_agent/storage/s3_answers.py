"""What an object store's answer to a ranged GET means. Pure."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from typing import NamedTuple

from muster_agent.formats.tree import ARCHIVED

PASSING_STATUSES = frozenset({429, 500, 502, 503, 504})
_PASSING_CODES = frozenset({"SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "TooManyRequests"})
_NUMBER = re.compile(r"[0-9]{1,19}")
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)")
_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,64})</Code>")
_MESSAGE = re.compile(rb"<Message>([^<]{1,120})")
REWRITTEN = "the object was written again while it was read"


Headers = Mapping[str, str]
"""Of an answer, by their names in lower case."""


class Passing(Exception):
    """Trouble that may pass. `kind` is one of a few words, for counting; the message says what was met. `is_dead`: no
    answer came at all, so another endpoint may do better."""

    def __init__(self, kind: str, message: str, *, after_seconds: float = 0.0, is_dead: bool = False) -> None:
        super().__init__(message)
        self.kind, self.after_seconds, self.is_dead = kind, after_seconds, is_dead


class SignatureRefused(PermissionError):
    """The store did not take the signature: it is wrong, or has expired."""


class ObjectPin(NamedTuple):
    """Which object is read; its ETag is without quotes. None and the empty strings stand for "not known yet"."""

    size_bytes: int | None = None
    etag: str = ""
    version: str = ""
    modified: str = ""

    def over(self, older: ObjectPin) -> ObjectPin:
        """What is known from both, where they are of one object."""
        return ObjectPin(
            size_bytes=older.size_bytes if self.size_bytes is None else self.size_bytes,
            etag=self.etag or older.etag,
            version=self.version or older.version,
            modified=self.modified or older.modified,
        )


class Found(NamedTuple):
    """What the headers of a good answer say: the object as it is now, and how many bytes of it follow."""

    pin: ObjectPin
    length_bytes: int


def found_in(status: int, headers: Headers, offset_bytes: int, length_bytes: int, pin: ObjectPin) -> Found:
    """What follows a 200 or 206. Raises OSError where it is of another object or of another part of it than asked for,
    Passing where the length is wrong."""
    begin, end, total = _range_of(status, headers, offset_bytes, length_bytes, pin)
    here = whole_in(headers)._replace(size_bytes=total)
    require_same(pin, here)
    expected = min(offset_bytes + length_bytes, total if total is not None else end) - offset_bytes
    stated = headers.get("content-length", "")
    if begin != offset_bytes or end - begin != expected or stated not in ("", str(expected)):
        text = (
            f"{stated or end - begin} bytes from byte {begin} on were offered for {expected} from byte {offset_bytes}"
        )
        raise Passing("wrong length", f"the answer is of another length: {text}")
    return Found(here, expected)


def whole_in(headers: Headers) -> ObjectPin:
    """The object, from the headers of an answer that brings all of it."""
    return ObjectPin(
        size_bytes=_number(headers.get("content-length", "")),
        etag=bare(headers.get("etag", "")),
        version=headers.get("x-amz-version-id", ""),
        modified=headers.get("last-modified", ""),
    )


def _range_of(
    status: int, headers: Headers, offset_bytes: int, length_bytes: int, pin: ObjectPin
) -> tuple[int, int, int | None]:
    """(begin, end, size of the whole object). Some stores answer a range rightly and call it 200."""
    match = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip())
    if match is not None:
        begin, last, total = match.groups()
        return int(begin), int(last) + 1, pin.size_bytes if total == "*" else int(total)
    stated = _number(headers.get("content-length", ""))
    if status == 200 and offset_bytes == 0 and stated is not None and stated <= length_bytes:
        return 0, stated, stated
    raise OSError(errno.EOPNOTSUPP, "the store does not read ranges of objects: it answered with something else")


def require_same(pin: ObjectPin, here: ObjectPin) -> None:
    """Raises ESTALE where two answers are of two objects: their bytes must not be mixed."""
    known = [(was, now) for was, now in zip(pin, here, strict=True) if was not in (None, "") and now not in (None, "")]
    if any(was != now for was, now in known):
        raise OSError(errno.ESTALE, REWRITTEN)


def refused(status: int, headers: Headers, body: bytes) -> Exception:
    """The exception for an answer that is no success: Passing where asking again may help, else OSError."""
    code = _code(status, body)
    if code in _PASSING_CODES or status in PASSING_STATUSES:
        told = "503 SlowDown" if status == 503 else str(status)
        return Passing(told, f"the store answered {status} {code}", after_seconds=_retry_after(headers))
    if 300 <= status < 400 and status != 304:
        text = (
            f"the store sent this reader elsewhere ({status} {code}), which is not followed: check endpoint and region"
        )
        return OSError(errno.EREMOTE, text)
    if code == "InvalidObjectState":
        return OSError(ARCHIVED, "it lies in an archive class")
    if status in (401, 403):
        return SignatureRefused(errno.EACCES, f"the store refused to let it be read ({_why(status, body)})")
    if status == 404:
        return FileNotFoundError(errno.ENOENT, f"the store does not have it ({code})")
    if status in (412, 416):
        return OSError(errno.ESTALE, REWRITTEN)
    return OSError(errno.EIO, f"the store answered {status} {code}")


def _code(status: int, body: bytes) -> str:
    match = _CODE.search(body)
    return match.group(1).decode() if match else str(status)


def _why(status: int, body: bytes) -> str:
    """The code with its message where that says more, as that a signature has expired."""
    match = _MESSAGE.search(body)
    told = "".join(filter(str.isprintable, match.group(1).decode(errors="replace"))) if match else ""
    code = _code(status, body)
    return f"{code}: {told}" if "expired" in told.lower() else code


def _retry_after(headers: Headers) -> float:
    return float(_number(headers.get("retry-after", "")) or 0)


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text.strip()) else None


def bare(etag: str) -> str:
    """An ETag without its quotes, which not all listings and answers write. A weak one pins no bytes, and is none."""
    return "" if etag.startswith("W/") else etag.strip('"')
