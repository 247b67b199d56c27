"""The contract between the engine and anything that holds shards. Every implementation passes the same tests."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class ShardSource(Protocol):
    """One open shard that many threads read at once."""

    size_bytes: int
    """Length when it was opened; the file may change afterwards, which the caller detects."""
    mtime_ns: int

    def read_into(self, buffer: memoryview, offset_bytes: int, length_bytes: int) -> int:
        """Fill `buffer` from `offset_bytes` and return the bytes delivered: fewer than `length_bytes` only where the
        shard ends. `buffer` is writable, contiguous, starts on a 4 KiB boundary and is at least `length_bytes` long,
        rounded up to 4 KiB; what lies beyond the returned count is undefined. `offset_bytes` is a multiple of 4 KiB.
        Thread-safe. Raises OSError where the storage does not deliver; a short count never stands for an error."""
        ...

    def close(self) -> None:
        """Release the shard; calling it twice is harmless."""
        ...


@runtime_checkable
class InPlaceSource(Protocol):
    """A shard whose bytes go elsewhere than to host memory, and can be hashed there."""

    def read_in_place(self, offset_bytes: int, length_bytes: int) -> int:
        """Bytes delivered into this thread's block, where they stay until its next read. Offsets, short counts and
        errors as in `ShardSource.read_into`."""
        ...

    def digests_in_place(self, length_bytes: int, chunk_bytes: int) -> list[int]:
        """The XXH3-64 of each `chunk_bytes` of the first `length_bytes` of this thread's block. Raises OSError."""
        ...
