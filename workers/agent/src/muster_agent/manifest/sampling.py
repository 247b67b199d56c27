"""Reading a part: which chunks, and what that proves. Pure."""

from __future__ import annotations

import math
import random


def sample_chunks(total_chunks: int, sample_ratio: float, seed: int) -> list[int]:
    """Ascending numbers of the chunks to read: `ceil(total * ratio)` of them, at least one, the same for the same
    seed. Raises ValueError for a ratio outside (0, 1]."""
    if not 0 < sample_ratio <= 1:
        raise ValueError(f"the sample ratio must be above 0 and at most 1, not {sample_ratio}")
    count = min(total_chunks, max(1, math.ceil(total_chunks * sample_ratio)))
    if count == total_chunks:
        return list(range(total_chunks))
    return sorted(random.Random(seed).sample(range(total_chunks), count))


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
