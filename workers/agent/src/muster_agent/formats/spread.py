"""Which of many a quick look takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


def spread(items: Sequence[_Item], count: int) -> list[_Item]:
    """At most `count` (2 or more) of the items: the first, the last and some evenly between."""
    if len(items) <= count:
        return list(items)
    last = len(items) - 1
    return [items[index * last // (count - 1)] for index in range(count)]
