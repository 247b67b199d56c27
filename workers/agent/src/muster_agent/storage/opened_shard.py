"""Any file that can be read at an offset, as a shard of the engine."""

from __future__ import annotations

from muster_agent.formats.tree import Opened


class OpenedShard:
    """See `ShardSource`. Each read is copied once, so this is for storage whose reads cost more than that."""

    def __init__(self, file: Opened, mtime_ns: int) -> None:
        self._file = file
        self.size_bytes, self.mtime_ns = file.size_bytes, mtime_ns

    def read_into(self, buffer: memoryview, offset_bytes: int, length_bytes: int) -> int:
        """See `ShardSource.read_into`."""
        data = self._file.pread(length_bytes, offset_bytes)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """See `ShardSource.close`."""
        self._file.close()
