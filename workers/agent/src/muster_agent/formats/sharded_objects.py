"""Megatron's objects that every rank saves a part of: `rng_state/shard_0.1_2.2` is part (0, 1) of a grid of 2 x 2.

Loading wants each part. A save that left some out ends as if nothing had happened.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from muster_agent.formats.base import Finding
from muster_agent.formats.codes import finding

_PART = re.compile(r"(.*)/shard_(\d{1,9}(?:\.\d{1,9}){0,15})_(\d{1,9}(?:\.\d{1,9}){0,15})", re.ASCII | re.DOTALL)
_MAX_NAMED = 8
_MAX_LISTED = 100
_CURE = (
    "Resume from an older complete step; let the job plan its save anew (restart it, or turn off the caching of save "
    "plans), so that every rank's part is written."
)
Index = tuple[int, ...]


class Part(NamedTuple):
    """The part of the object `key` that lies at `place` of a grid of `shape`."""

    key: str
    place: Index
    shape: Index


def part_of(name: str) -> Part | None:
    """The part that a name means; None for a name of anything else."""
    match = _PART.fullmatch(name)
    if match is None:
        return None
    place, shape = (tuple(map(int, text.split("."))) for text in match.groups()[1:])
    if len(place) != len(shape) or any(one >= size for one, size in zip(place, shape, strict=True)):
        return None
    return Part(match.group(1), place, shape)


def group_findings(names: Iterable[str], path: str | None = None) -> list[Finding]:
    """One finding for each object of which some parts are named and others are not. `path` is where the names are from;
    where it is None each part is a file of its own, and the first missing one's is named."""
    groups: dict[tuple[str, Index], set[Index]] = defaultdict(set)
    for part in filter(None, map(part_of, names)):
        groups[part.key, part.shape].add(part.place)
    lost = ((key, shape, have) for (key, shape), have in sorted(groups.items()) if len(have) < math.prod(shape))
    return [_finding(key, shape, have, path) for _, (key, shape, have) in zip(range(_MAX_LISTED), lost, strict=False)]


def _finding(key: str, shape: Index, have: set[Index], path: str | None) -> Finding:
    count = math.prod(shape)
    absent = [_name(index, shape) for _, index in zip(range(_MAX_NAMED), _absent(shape, have), strict=False)]
    more = f" and {count - len(have) - len(absent)} more" if count - len(have) > len(absent) else ""
    detail = f"{len(have)} of {count} parts of the object {key!r} were saved; {', '.join(absent)}{more} are missing"
    return finding("shard_missing", path=path or f"{absent[0]}.pt", detail=detail, cure=_CURE, tensor=key)


def _name(index: Index, shape: Index) -> str:
    return f"shard_{'.'.join(map(str, index))}_{'.'.join(map(str, shape))}"


def _absent(shape: Index, have: set[Index]) -> Iterator[Index]:
    """The missing places in order. The grid may be absurdly large: take only as many as are needed."""
    for number in range(math.prod(shape)):
        index = []
        for size in reversed(shape):
            number, place = divmod(number, size)
            index.append(place)
        if (found := tuple(reversed(index))) not in have:
            yield found
