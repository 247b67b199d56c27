"""What stands behind a folder: a mounted file system, or a bucket. Readers of formats see only this."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from muster_agent.formats.folder import FileSeen, Folder


ARCHIVED = errno.ENOMEDIUM
"""The `errno` of an OSError that says: the file is there, but must be restored from an archive first."""


class Opened(Protocol):
    """One open file. A context manager, for those that inherit; closing twice is harmless."""

    size_bytes: int

    def pread(self, length_bytes: int, offset_bytes: int) -> bytes:
        """Up to `length_bytes` from `offset_bytes`; fewer only where the file ends. Raises OSError."""
        ...

    def hole(self) -> tuple[int, int] | None:
        """The first range [begin, end) that was never written and reads as zeros; None where there is none or where
        the storage does not know of holes. Raises nothing."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Tree(Protocol):
    """Paths are absolute (`/a/b`, or `s3://bucket/a/b`), their parts joined with `/`."""

    def look(self, path: str, root: str) -> Folder:
        """The folder at `path`, whose links may not lead out of the resolved folder `root`. Raises nothing: trouble is
        in the folder's findings, and `listed` is False where it could not be listed."""
        ...

    def open(self, path: str) -> Opened:
        """Raises OSError where the file cannot be opened."""
        ...

    def ahead(self, paths: Iterable[str]) -> Iterator[str]:
        """The paths in their order, for a caller that opens each in turn: they are brought near many at a time."""
        ...

    def take(self, folder: Folder, name: str) -> None:
        """Take the file `name`, a safe relative path into a sub-folder, into `folder.files` if it is there, or into
        `folder.blocked` if it could not be looked at. Raises nothing."""
        ...

    def stamp(self, path: str) -> FileSeen | None:
        """The file at `path` as a listing would show it now; None where it is not there or cannot be looked at."""
        ...
