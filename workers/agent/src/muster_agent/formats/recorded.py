"""A check sum that a checkpoint carries for some of its own bytes, and who finds such sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from muster_agent.formats.base import ShardMap
from muster_agent.formats.tree import Opened


class RecordedSum(NamedTuple):
    """Bytes [begin, end) of a shard must have the check sum `expected` (lower-case hex) of the kind `algorithm`. `what`
    names them in findings. `part_bytes` are the sizes of the parts that an ETag is made of: one that agrees proves the
    bytes, one that differs proves nothing, since stores and encryption make others."""

    begin: int
    end: int
    algorithm: str
    expected: str
    what: str
    part_bytes: tuple[int, ...] = ()


Open = Callable[[str], Opened]
Source = Callable[[ShardMap, Open], Mapping[str, Sequence[RecordedSum]]]
"""Finds recorded sums by shard path, and reads for that what it must. May raise OSError."""
