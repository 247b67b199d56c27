"""Reading a part: which chunks, and what that proves. Pure."""

from __future__ import annotations

import math
from typing import NamedTuple

import xxhash


class Sample(NamedTuple):
    """Which chunks are read: `ratio` (above 0, at most 1) of them, in the order that `seed` gives, the stretch number
    `turn` of it."""

    ratio: float = 1.0
    seed: int = 0
    turn: int = 0


EVERYTHING = Sample()


def sample_chunks(total_chunks: int, sample_ratio: float, seed: int, turn: int = 0) -> list[int]:
    """Ascending numbers of the chunks to read: `sample_size` of them, the same for the same seed and turn.

    The seed puts all chunks into one random order, and each turn takes the next stretch of it, round and round: any one
    turn is a random sample, and `turns_to_cover` turns in a row leave no chunk out. Raises ValueError for a ratio
    outside (0, 1].
    """
    count = sample_size(total_chunks, sample_ratio)
    if count == total_chunks:
        return list(range(total_chunks))
    order = sorted(range(total_chunks), key=lambda chunk: _place_of(chunk, seed))
    begin = turn * count % total_chunks
    return sorted((order[begin:] + order[:begin])[:count])


def _place_of(chunk: int, seed: int) -> int:
    """The same in every version of everything: the turns of one rotation may be made years and hosts apart."""
    return xxhash.xxh3_64_intdigest(chunk.to_bytes(8, "little"), seed)


def sample_size(total_chunks: int, sample_ratio: float) -> int:
    """`ceil(total * ratio)` chunks, at least one where there are any. Raises ValueError for a ratio outside (0, 1]."""
    if not 0 < sample_ratio <= 1:
        raise ValueError(f"the sample ratio must be above 0 and at most 1, not {sample_ratio}")
    return min(total_chunks, max(1, math.ceil(total_chunks * sample_ratio)))


def turns_to_cover(total_chunks: int, sample_ratio: float) -> int:
    """How many turns in a row read every chunk at least once: about 1 / ratio."""
    return math.ceil(total_chunks / sample_size(total_chunks, sample_ratio)) if total_chunks else 1


def covered_chunks(total_chunks: int, sample_ratio: float, turns: int) -> int:
    """How many different chunks so many turns in a row have read."""
    return min(total_chunks, turns * sample_size(total_chunks, sample_ratio))


def detection_probability(total_chunks: int, sampled_chunks: int, damaged_chunks: int = 1) -> float:
    """The chance (0..1) that a sample without replacement meets at least one damaged chunk: 1 - C(n-k, m) / C(n, m)."""
    if not 0 <= sampled_chunks <= total_chunks or not 0 <= damaged_chunks <= total_chunks:
        raise ValueError("the sample and the damage must lie between 0 and the total")
    if damaged_chunks == 0 or sampled_chunks == 0:
        return 0.0
    if sampled_chunks + damaged_chunks > total_chunks:
        return 1.0
    missed = 1.0
    for index in range(damaged_chunks):
        missed *= (total_chunks - sampled_chunks - index) / (total_chunks - index)
    return 1.0 - missed
