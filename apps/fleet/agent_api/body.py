"""Request bodies of agents: plain or gzipped, never larger than the cap, also once unpacked."""

from __future__ import annotations

import re
import zlib

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest

from apps.core.errors import ApplicationError, InvalidInput


class TooLarge(ApplicationError):
    status = 413
    code = "too_large"
    title = "Too large"


class MethodNotAllowed(ApplicationError):
    status = 405
    code = "method_not_allowed"
    title = "Method not allowed"

    def __init__(self, allowed: str) -> None:
        super().__init__(f"Use {allowed} here.")
        self.allowed = allowed


class UnsupportedEncoding(ApplicationError):
    status = 415
    code = "unsupported_encoding"
    title = "Unsupported media type"


def read_body(request: HttpRequest, method: str) -> bytes:
    """The body's JSON bytes. Raises MethodNotAllowed, TooLarge, UnsupportedEncoding, InvalidInput."""
    if request.method != method:
        raise MethodNotAllowed(method)
    raw = _raw(request)
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding == "gzip":
        raw = unpack(raw, settings.AGENT_MAX_BODY_BYTES)
    elif encoding not in ("", "identity"):
        raise UnsupportedEncoding(f"The encoding {encoding!r} is not known; send gzip or plain JSON.")
    # PostgreSQL stores no NUL in text or JSON; a name that holds one is shown with the replacement character.
    return _NUL.sub(rb"\1\\ufffd", raw) if b"\\u0000" in raw else raw


_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
"""The escape itself; behind an escaped backslash the same letters are text."""


def unpack(packed: bytes, limit_bytes: int) -> bytes:
    """Decompress at most `limit_bytes`: a bomb is refused after that much, not after it has filled the memory."""
    decompressor = zlib.decompressobj(wbits=31)
    try:
        unpacked = decompressor.decompress(packed, limit_bytes + 1)
    except zlib.error as error:
        raise InvalidInput(f"The body is not gzip: {error}.") from error
    if len(unpacked) > limit_bytes:
        raise too_large(limit_bytes)
    if not decompressor.eof:
        raise InvalidInput("The gzip body ends too early.")
    return unpacked


def _raw(request: HttpRequest) -> bytes:
    limit_bytes: int = settings.AGENT_MAX_BODY_BYTES
    if int(request.META.get("CONTENT_LENGTH") or 0) > limit_bytes:
        raise too_large(limit_bytes)
    try:
        # Django's own limit is meant for forms; agents have theirs, checked here.
        raw = request.read(limit_bytes + 1)
    except RequestDataTooBig as error:
        raise too_large(limit_bytes) from error
    if len(raw) > limit_bytes:
        raise too_large(limit_bytes)
    return raw


def too_large(limit_bytes: int) -> TooLarge:
    """What to raise, or to say, about a body beyond the limit."""
    return TooLarge(f"A body holds at most {limit_bytes} bytes, also once unpacked.")
