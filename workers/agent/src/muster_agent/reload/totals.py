"""What one pass over a plan did."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ReadTotals:
    """What happened. Seconds are sums over threads, but `reading_wall_seconds`: how long at least one of them was
    inside a call to the storage."""

    read_bytes: int = 0
    reading_seconds: float = 0.0
    reading_wall_seconds: float = 0.0
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
