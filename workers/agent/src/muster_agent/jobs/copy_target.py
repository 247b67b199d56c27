"""What a copy needs of the place that it goes to. Every implementation passes the same tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from muster_agent.jobs.control import JobControl
from muster_agent.manifest.model import Manifest
from muster_agent.protocol.copies import CopiedFile, CopyCursor
from muster_agent.reload.plan import Extent
from muster_agent.reload.reader import Consumer

Stat = tuple[str, int, int]
"""Path inside the checkpoint, size in bytes, mtime in ns."""


class Replaced(OSError):
    """What lies at the target is not what was written there."""


class CopyTarget(Protocol):
    """Nothing is to be seen at the target's own path until `switch`. All raise CopyTrouble, and every method may be
    called again after a crash at any moment in it."""

    block_bytes: int
    """Blocks are written whole, at multiples of this; only a file's last one is shorter."""

    patches: bool
    """Whether a part of a file can be written again after `close`."""

    def look(self, cursor: CopyCursor) -> None:
        """Whether the tier's root is there, and the same as when the copy began."""
        ...

    def begin(self, cursor: CopyCursor) -> None:
        """Look, and make room. Partial bytes of an earlier attempt stay where they are."""
        ...

    def write(self, file: CopiedFile, offset_bytes: int, data: memoryview) -> None:
        """From many threads at once."""
        ...

    def pause(self) -> None:
        """Nothing is written for a while: let go of what is open."""
        ...

    def written(self, file: CopiedFile) -> Iterator[memoryview]:
        """The bytes of the first `copied_bytes` again, in blocks of 4 MiB; fewer where they are not there any more."""
        ...

    def close(self, cursor: CopyCursor, check: Callable[[], None]) -> None:
        """Every block of every file was written: make them durable, with their times and modes as far as the storage
        keeps these."""
        ...

    def checksum(self, cursor: CopyCursor) -> str:
        """By which check sum the store compared every byte while it took it in; empty where it did not."""
        ...

    def read_back(
        self, extents: Sequence[Extent], files: Sequence[CopiedFile], consumer: Consumer, control: JobControl
    ) -> dict[int, OSError]:
        """Read from the storage, around caches where that is possible; what failed, by the extents' shard."""
        ...

    def stats(self, files: Sequence[CopiedFile]) -> list[Stat]:
        """The files as they lie now, before or after the switch."""
        ...

    def switch(self, manifest: Manifest, cursor: CopyCursor) -> None:
        """Put the proven copy in its place, the manifest beside it."""
        ...

    def discard(self, cursor: CopyCursor) -> None:
        """Remove what an unfinished copy left. Never touches a copy that was switched."""
        ...
