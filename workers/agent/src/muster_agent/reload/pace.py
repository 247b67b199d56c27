"""How many threads read at once, and how much each of them reads before it hashes. Pure; measured in
docs/measurements/reload.md."""

from __future__ import annotations

from typing import NamedTuple

READERS = 8
"""Where the answer takes a while, more requests under way bring more bytes; a few are enough for a device next door."""
_CACHED_PIECE_BYTES = 1 << 20
"""From the page cache a block is copied and hashed in pieces that fit into a CPU's own cache."""


class Pace(NamedTuple):
    """`piece_bytes` None where a block is read in one request."""

    readers: int
    piece_bytes: int | None


def pace_of(*, from_cache: bool, is_remote: bool, cpus: int) -> Pace:
    """From memory a thread per CPU, since the CPU is the limit. From a device of this node one more: it is never idle
    while all CPUs hash, and further ones only hash bytes that have grown cold. From another machine `READERS`."""
    if from_cache:
        return Pace(min(READERS, cpus), _CACHED_PIECE_BYTES)
    return Pace(READERS if is_remote else min(READERS, cpus + 1), None)
