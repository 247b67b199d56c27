"""Pages of a listing, read from the raw answer: boto3's own parser gives a few thousand keys a second, which for a
million keys is minutes of one processor."""

from __future__ import annotations

import errno
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import unquote_plus
from xml.parsers import expat

import msgspec

from muster_agent.formats.object_store import ObjectSeen

MAX_PAGE_BYTES = 64 * 1024 * 1024
_ARCHIVE_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EMPTY = b"<ListBucketResult/>"
_OURS = "MusterPage"


class Page(NamedTuple):
    """`token` is where the listing goes on, None at its end."""

    objects: list[ObjectSeen]
    prefixes: list[str]
    token: str | None
    server_unix_seconds: float | None = None


def unix_ns(moment: datetime) -> int:
    """Nanoseconds since 1970, exactly."""
    return (moment - _EPOCH) // _MICROSECOND * 1000


def take_raw(client: Any) -> None:
    """From now on the client's listings hold what `page_of` takes. Twice is as once: a second reader would find the
    body that the first one left, which is an empty listing."""
    client.meta.events.register("before-parse.s3.ListObjectsV2", _read_raw, unique_id="muster-raw-pages")


def _read_raw(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    body = response_dict["body"]
    if response_dict["status_code"] != 200 or len(body) > MAX_PAGE_BYTES:
        return
    try:
        page = parsed(body)
    except (expat.ExpatError, ValueError, KeyError):
        return  # botocore says what is wrong with it
    if page is not None:
        customized_response_dict[_OURS] = page
        response_dict["body"] = _EMPTY


def page_of(answer: dict[str, Any]) -> Page:
    """The page of a listing by a client of `take_raw`. Raises OSError."""
    page = answer.get(_OURS)
    if not isinstance(page, Page):
        raise OSError(errno.EAGAIN, "the store's listing is not understood")
    return page._replace(server_unix_seconds=_server_time(answer))


def _server_time(answer: dict[str, Any]) -> float | None:
    try:
        return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return None


def parsed(body: bytes) -> Page | None:
    """None for what is no listing. Raises ExpatError, ValueError and KeyError for a broken one."""
    reader = _Reader()
    # With events in place of a tree, nothing is made that the garbage collector would have to look through again and
    # again: with a tree it took twice as long as everything else.
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = reader.begin
    parser.CharacterDataHandler = reader.text.append
    parser.EndElementHandler = reader.end
    parser.StartDoctypeDeclHandler = _refuse
    parser.Parse(body, True)
    return reader.page() if reader.last == "ListBucketResult" else None


def _refuse(*_: object) -> None:
    raise ValueError("a listing has no document type")


class _Known(dict[str, int]):
    """Numbers by their texts, each made once: shards of a run have one size, and files of a save nearly one time."""

    def __init__(self, number_of: Callable[[str], int]) -> None:
        super().__init__()
        self._number_of = number_of

    def __missing__(self, text: str) -> int:
        if len(self) >= _MOST_KNOWN:
            self.clear()
        number = self[text] = self._number_of(text)
        return number


_MOST_KNOWN = 1 << 14
_SIZES = _Known(int)
_TIMES = _Known(lambda text: unix_ns(datetime.fromisoformat(text)))


class _Reader:
    """Takes the events of one page. `last` is the element that ended last."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.last = ""
        self._values: dict[str, str] = {}
        self._objects: list[ObjectSeen] = []
        self._prefixes: list[str] = []

    def begin(self, _name: str, _attributes: object) -> None:
        self.text.clear()

    def end(self, name: str) -> None:
        self.last = name
        if name == "Contents":
            self._take_object(self._values)
        elif name == "CommonPrefixes":
            self._prefixes.append(self._values["Prefix"])
        else:
            self._values[name] = "".join(self.text)
            self.text.clear()

    def _take_object(self, values: dict[str, str]) -> None:
        kind = values.pop("StorageClass", "")
        in_progress, expires = values.pop("IsRestoreInProgress", ""), values.pop("RestoreExpiryDate", "")
        self._objects.append(
            ObjectSeen(
                values.pop("Key"),
                _SIZES[values.pop("Size")],
                _TIMES[values.pop("LastModified")],
                values.pop("ETag", ""),
                kind in _ARCHIVE_CLASSES and not (in_progress == "false" and bool(expires)),
            )
        )

    def page(self) -> Page:
        objects, prefixes = self._objects, self._prefixes
        if self._values.get("EncodingType") == "url":
            objects = [
                msgspec.structs.replace(one, key=_unquoted(one.key)) if _is_coded(one.key) else one for one in objects
            ]
            prefixes = list(map(_unquoted, prefixes))
        goes_on = self._values.get("IsTruncated") == "true"
        return Page(objects, prefixes, self._values.get("NextContinuationToken", "") if goes_on else None)


def _is_coded(text: str) -> bool:
    return "%" in text or "+" in text


def _unquoted(text: str) -> str:
    return unquote_plus(text) if _is_coded(text) else text
