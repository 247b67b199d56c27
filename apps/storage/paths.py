"""Where a tier lies, as text: a normalized absolute POSIX path, or `s3://bucket/prefix`. Pure."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from muster_agent.storage.addresses import EVERYWHERE, numeric_address, why_refused

from apps.core.errors import InvalidInput

MAX_URI_CHARACTERS = 1024
MAX_ENDPOINT_CHARACTERS = 255
S3_SCHEME = "s3://"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def normalized_uri(text: str, *, pointer: str = "/uri") -> str:
    """The one spelling of a tier's place. Raises InvalidInput that names the fault and what to write instead."""
    if len(text) > MAX_URI_CHARACTERS:
        raise InvalidInput(f"Use at most {MAX_URI_CHARACTERS} characters.", pointer=pointer)
    if text.startswith(S3_SCHEME):
        return _normalized_s3(text, pointer)
    return normalized_path(text, pointer=pointer)


def normalized_path(text: str, *, pointer: str) -> str:
    """An absolute path without `.`, `..`, doubled or trailing slashes. Raises InvalidInput."""
    if not text.startswith("/"):
        raise InvalidInput(f"{text!r} is not absolute; write a path such as /fast/checkpoints.", pointer=pointer)
    return "/" + "/".join(_segments(text, pointer))


def normalized_endpoint(text: str, *, pointer: str = "/endpoint_url") -> str:
    """Scheme, host and port of an object store. Raises InvalidInput for anything more, and for an address that nothing
    is ever sent to."""
    told = "Write the store's address as https://host or http://host:port, with nothing behind it."
    try:
        url = urlsplit(text.strip())
        host, port = url.hostname, url.port
    except ValueError as error:
        raise InvalidInput(told, pointer=pointer) from error
    rest = url.path.strip("/") or url.query or url.fragment or url.username or url.password
    if url.scheme not in ("http", "https") or not host or rest or len(text) > MAX_ENDPOINT_CHARACTERS:
        raise InvalidInput(told, pointer=pointer)
    address = numeric_address(host)  # a name is judged where it is connected to
    # which private networks are allowed is for each worker and node to say
    if address and (refused := why_refused(address, EVERYWHERE)):
        raise InvalidInput(f"{refused}.", pointer=pointer)
    shown = f"[{host}]" if ":" in host else host
    return f"{url.scheme}://{shown}" + (f":{port}" if port else "")


def contains(outer: str, inner: str) -> bool:
    """Whether `inner` is `outer` or lies below it; both normalized."""
    return outer in ("/", inner) or inner.startswith(outer + "/")


def is_posix(uri: str) -> bool:
    return uri.startswith("/")


def _normalized_s3(text: str, pointer: str) -> str:
    bucket, _, prefix = text.removeprefix(S3_SCHEME).partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise InvalidInput(f"{bucket!r} is no bucket name; write s3://bucket/prefix.", pointer=pointer)
    return "/".join([S3_SCHEME + bucket, *_segments(prefix, pointer)])


def _segments(text: str, pointer: str) -> list[str]:
    segments = [segment for segment in text.split("/") if segment]
    if any(segment in (".", "..") for segment in segments):
        raise InvalidInput("Write the path out, without . and .. in it.", pointer=pointer)
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise InvalidInput("The path has a control character in it.", pointer=pointer)
    return segments
