"""What the formats need of an object store. The client behind it is not theirs to know."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from muster_agent.formats.recorded import RecordedSum
from muster_agent.storage.addresses import Networks


class ObjectSeen(msgspec.Struct, frozen=True, gc=False):
    """One key as a listing shows it; the garbage collector need not know of a million of them. `is_archived`: it lies
    in a class that must be restored before it can be read."""

    key: str
    size_bytes: int
    mtime_ns: int
    etag: str = ""
    is_archived: bool = False


class UploadSeen(NamedTuple):
    """An upload in parts that was begun and neither completed nor aborted."""

    key: str
    begun_ns: int


class Listing(NamedTuple):
    """`prefixes` are those of a listing of one level, with the `/` at their end. `server_unix_seconds` is the store's
    own clock, None where it does not tell."""

    objects: list[ObjectSeen]
    prefixes: list[str]
    server_unix_seconds: float | None = None


class BucketMissing(FileNotFoundError):
    """There is no bucket of that name."""


class BucketRefused(PermissionError):
    """The store does not let these credentials do it, or there are none; `hint` says what to do."""

    def __init__(self, number: int, text: str, hint: str) -> None:
        super().__init__(number, text)
        self.hint = hint


class ObjectStore(Protocol):
    """All raise OSError, after retries where the trouble may pass: EACCES, ENOENT, ESTALE where the object is not the
    one with that `etag` any more, `tree.ARCHIVED` where it must be restored first, else EIO or what fits."""

    networks: Networks | None
    """Beside public addresses the only ones that it may be reached at; None: anywhere (`storage.addresses`)."""

    def objects(self, bucket: str, prefix: str, *, one_level: bool, check: Callable[[], None]) -> Listing:
        """Every key that begins with `prefix`, all pages of it; with `one_level`, keys with a further `/` only as
        prefixes. `check` is called between pages, and may raise to end the listing."""
        ...

    def first(self, bucket: str, prefix: str) -> ObjectSeen | None:
        """The first key that begins with `prefix`, in the order of keys: `prefix` itself where it is one."""
        ...

    def uploads(self, bucket: str, prefix: str) -> list[UploadSeen]: ...

    def read(self, bucket: str, key: str, offset_bytes: int, length_bytes: int, etag: str) -> tuple[bytes, str]:
        """Exactly that range of the object, and its ETag. An empty `etag` stands for any."""
        ...

    def sums(self, bucket: str, key: str, etag: str, *, or_etag: bool = False) -> list[RecordedSum]:
        """The check sums that the store keeps of the object with that ETag, or of its parts; nothing where it keeps
        none that are known here, or then, with `or_etag`, that ETag where it may be one."""
        ...

    def write(self, bucket: str, key: str, data: bytes, *, only_new: bool, replaces: str = "") -> str:
        """Store a small object whole; its ETag. With `only_new` raises FileExistsError where the key is taken, and with
        `replaces` where the object does not have that ETag any more: by the store's own check where it makes one."""
        ...

    def signed_url(self, bucket: str, key: str, life_seconds: int) -> str:
        """A URL with which anybody may read any range of the object for so long. It is made here: nobody is asked."""
        ...
