"""The contract between the engine and anything that holds shards. Every implementation passes the same tests."""

from __future__ import annotations

from typing import Protocol


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
