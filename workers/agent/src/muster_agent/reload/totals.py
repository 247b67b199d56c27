"""What one pass over a plan did."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster_agent.protocol.phases import Phase
from muster_agent.reload.reader_thread import ReaderThread


@dataclass(slots=True)
class ReadTotals:
    """What happened. Seconds are sums over threads, but `wall_seconds`: how long at least one of them waited for the
    storage, and how long none did while memory was touched."""

    read_bytes: int = 0
    reading_seconds: float = 0.0
    placing_seconds: float = 0.0
    placing_cpu_seconds: float = 0.0
    """Touching memory that is kept."""
    wall_seconds: dict[Phase, float] = field(default_factory=dict)
    consuming_seconds: float = 0.0
    cpu_seconds: float = 0.0
    consuming_cpu_seconds: float = 0.0
    """Those of `cpu_seconds` that went into hashing; the others into reading."""
    direct_bytes: int = 0
    buffered_bytes: int = 0
    dropped_bytes: int = 0
    """Those of `buffered_bytes` that left nothing in the page cache."""
    errors: dict[int, OSError] = field(default_factory=dict)
    """By shard number: the first error; later extents of a shard that cannot be opened are not tried."""
    read_by_shard: dict[int, int] = field(default_factory=dict)
    """By shard number: bytes that came."""
    ended_at_bytes: dict[int, int] = field(default_factory=dict)
    """By shard number: where it ended although more was planned."""
    sources: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By shard number: (size in bytes, mtime in ns) when it was opened."""

    def add(self, reader: ReaderThread) -> None:
        """What one thread did."""
        self.read_bytes += reader.read_bytes
        self.reading_seconds += reader.calling.seconds
        self.placing_seconds += reader.placing.seconds
        self.placing_cpu_seconds += reader.placing.cpu_seconds
        self.consuming_seconds += reader.consuming.seconds
        self.consuming_cpu_seconds += reader.consuming.cpu_seconds
        self.cpu_seconds += reader.cpu_seconds
        for shard, count in reader.read_by_shard.items():
            self.read_by_shard[shard] = self.read_by_shard.get(shard, 0) + count
