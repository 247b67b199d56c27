"""The herd ladder: where the storage stops scaling as more clients read at once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

KNEE_GAIN_RATIO = 0.2


@dataclass(frozen=True)
class Rung:
    """`client_count` clients reading at once reached `bytes_per_second` together."""

    client_count: int
    bytes_per_second: float


@dataclass(frozen=True)
class Knee:
    """The first rung that gained less than 20 % per doubling of clients over the rung before it."""

    client_count: int
    previous_count: int
    gain_per_doubling_ratio: float


def default_ladder(client_count: int) -> list[int]:
    """1, 2, 4 and so on below `client_count`, then `client_count` itself."""
    ladder = []
    rung = 1
    while rung < client_count:
        ladder.append(rung)
        rung *= 2
    return [*ladder, client_count]


def gain_per_doubling(previous: Rung, rung: Rung) -> float:
    """How much the aggregate rate grew for each doubling of clients: 1.0 is perfect scaling, 0.0 none.

    Rungs need not double: from 2 to 8 clients are two doublings, and growth from 1 to 4 GB/s gives 1.0. Raises
    ValueError where the client count does not grow or the earlier rate is 0.
    """
    if rung.client_count <= previous.client_count or previous.bytes_per_second <= 0:
        raise ValueError("a ladder's client counts ascend and its rates are positive")
    doublings = log2(rung.client_count / previous.client_count)
    return float((rung.bytes_per_second / previous.bytes_per_second) ** (1 / doublings) - 1)


def knee(rungs: Sequence[Rung]) -> Knee | None:
    """Where scaling ends, None when every rung still gained or there is only one."""
    for previous, rung in zip(rungs, rungs[1:], strict=False):
        gain = gain_per_doubling(previous, rung)
        if gain < KNEE_GAIN_RATIO:
            return Knee(rung.client_count, previous.client_count, gain)
    return None


def ladder_problem(ladder: Sequence[object]) -> str | None:
    """What is wrong with a ladder that a user gave; None when nothing is."""
    if not all(isinstance(count, int) and not isinstance(count, bool) and count >= 1 for count in ladder):
        return "Give whole client counts from 1, such as [1, 2, 4]."
    if any(a >= b for a, b in zip(ladder, ladder[1:], strict=False)):  # type: ignore[operator]
        return "Give client counts in ascending order, each once, such as [1, 2, 4]."
    return "Give at most 20 rungs." if len(ladder) > 20 else None
