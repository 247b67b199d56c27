"""Fewer points with the same extremes: each stretch of a series keeps its smallest and its largest. Pure.

Only what is drawn gets less; every number in words is made from all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def extremes(items: Sequence[Item], most: int, value: Callable[[Item], float]) -> list[Item]:
    """At most `most` (two or more) of `items`, in their order: of each of `most // 2` equal stretches the smallest and
    the largest. All of them where they are few enough."""
    if len(items) <= most:
        return list(items)
    buckets = most // 2
    kept = []
    for number in range(buckets):
        stretch = range(number * len(items) // buckets, (number + 1) * len(items) // buckets)
        low = min(stretch, key=lambda at: value(items[at]))
        high = max(stretch, key=lambda at: value(items[at]))
        kept += [items[at] for at in sorted({low, high})]
    return kept
