"""How a checkpoint's bytes are cut for its ranks, and the seconds that a better cut is predicted to save. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SKEW_RATIO = 1.5


@dataclass(frozen=True, kw_only=True)
class Shape:
    """`rank_bytes` are each rank's own bytes of state, `common_bytes` those that every rank must read too, `file_count`
    the files of state. `stripe_count` is the least number of storage targets that a drill saw under a large file; None:
    not seen."""

    rank_bytes: Mapping[int, int]
    common_bytes: int
    file_count: int
    readers: int
    stripe_count: int | None = None

    @property
    def total_bytes(self) -> int:
        return sum(self.rank_bytes.values()) + self.common_bytes


@dataclass(frozen=True)
class Rates:
    """Measured bytes per second of the tier: by all clients together, and by one. None: not measured."""

    together: float | None
    one: float | None


@dataclass(frozen=True, kw_only=True)
class ShapeFinding:
    """`seconds` to read as it is and `cured_seconds` as it could be, by the read floor; None without measured rates."""

    code: str
    detail: str
    seconds: float | None
    cured_seconds: float | None

    @property
    def saved_seconds(self) -> float | None:
        if self.seconds is None or self.cured_seconds is None:
            return None
        return max(0.0, self.seconds - self.cured_seconds)


def floor_seconds(read_bytes: float, most_bytes: float, rates: Rates) -> float | None:
    """The least time to read `read_bytes` in all, of which one client reads `most_bytes`: DESIGN's read floor."""
    if not rates.together or not rates.one:
        return None
    return max(read_bytes / rates.together, most_bytes / rates.one)


def shape_findings(shape: Shape, rates: Rates) -> list[ShapeFinding]:
    """Findings monolithic, rank_skew, shared_shard and stripe_narrow, in that order, as far as they are true."""
    if shape.readers < 2 or shape.total_bytes <= 0:
        return []
    if shape.file_count == 1:
        return [_monolithic(shape, rates), *_stripes(shape, rates)]
    return [*_skew(shape, rates), *_shared(shape, rates), *_stripes(shape, rates)]


def _monolithic(shape: Shape, rates: Rates) -> ShapeFinding:
    total = shape.total_bytes
    return ShapeFinding(
        code="monolithic",
        detail=f"One file holds everything, so one of {shape.readers} ranks reads it while the others wait.",
        seconds=floor_seconds(total, total, rates),
        cured_seconds=floor_seconds(total, total / shape.readers, rates),
    )


def _skew(shape: Shape, rates: Rates) -> list[ShapeFinding]:
    if len(shape.rank_bytes) < 2:
        return []
    rank, most = max(shape.rank_bytes.items(), key=lambda item: item[1])
    mean = sum(shape.rank_bytes.values()) / len(shape.rank_bytes)
    if most < SKEW_RATIO * mean:
        return []
    return [
        ShapeFinding(
            code="rank_skew",
            detail=f"Rank {rank} reads {most / mean:.1f} times the mean of {len(shape.rank_bytes)} ranks.",
            seconds=floor_seconds(shape.total_bytes, most + shape.common_bytes, rates),
            cured_seconds=floor_seconds(shape.total_bytes, mean + shape.common_bytes, rates),
        )
    ]


def _shared(shape: Shape, rates: Rates) -> list[ShapeFinding]:
    ranks = len(shape.rank_bytes)
    if shape.common_bytes <= 0 or ranks < 2:
        return []
    own, most = sum(shape.rank_bytes.values()), max(shape.rank_bytes.values())
    return [
        ShapeFinding(
            code="shared_shard",
            detail=f"{shape.common_bytes} bytes of state belong to no rank, so each of {ranks} ranks reads them all.",
            seconds=floor_seconds(own + ranks * shape.common_bytes, most + shape.common_bytes, rates),
            cured_seconds=floor_seconds(own + shape.common_bytes, most + shape.common_bytes / ranks, rates),
        )
    ]


def _stripes(shape: Shape, rates: Rates) -> list[ShapeFinding]:
    """Assumes that one storage target serves about as fast as one client reads; said so with the finding."""
    count = shape.stripe_count
    streams = shape.readers if shape.file_count == 1 else max(1, shape.readers // shape.file_count)
    if count is None or count >= streams:
        return []
    seconds = None
    if rates.together and rates.one:
        narrow = min(rates.together, count * shape.file_count * rates.one)
        seconds = shape.total_bytes / narrow
    return [
        ShapeFinding(
            code="stripe_narrow",
            detail=f"A file lies on {count} storage targets and is read by {streams} ranks; a target is taken to serve "
            "as fast as one client reads.",
            seconds=seconds,
            cured_seconds=floor_seconds(shape.total_bytes, shape.total_bytes / shape.readers, rates),
        )
    ]
