"""When plans fire in the coming days, and which of them get in each other's way. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One due time of a plan. It holds its cluster from `begins_at` for about `seconds`."""

    plan_id: str
    cluster_id: str
    planned_at: datetime
    begins_at: datetime
    seconds: float

    @property
    def ends_at(self) -> datetime:
        return self.begins_at + timedelta(seconds=self.seconds)


def smear(plan_id: str, planned_at: datetime, most_seconds: int) -> timedelta:
    """How much later than planned this occurrence begins: always the same for it, evenly spread over all."""
    if most_seconds <= 0:
        return timedelta(0)
    digest = hashlib.sha256(f"{plan_id} {planned_at.timestamp():.0f}".encode()).digest()
    return timedelta(seconds=int.from_bytes(digest[:4], "big") % (most_seconds + 1))


def conflicts(occurrences: Sequence[Planned]) -> list[tuple[Planned, tuple[str, ...]]]:
    """Each in order of its beginning, with the ids of the plans that are still at work on its cluster then, or that
    begin before it ends: drills of one cluster wait for each other."""
    ordered = sorted(occurrences, key=lambda one: (one.begins_at, one.plan_id))
    found: list[set[str]] = [set() for _one in ordered]
    at_work: list[int] = []
    for number, one in enumerate(ordered):
        at_work = [earlier for earlier in at_work if ordered[earlier].ends_at > one.begins_at]
        for earlier in at_work:
            if ordered[earlier].cluster_id == one.cluster_id:
                found[number].add(ordered[earlier].plan_id)
                found[earlier].add(one.plan_id)
        at_work.append(number)
    return [(one, tuple(sorted(found[number]))) for number, one in enumerate(ordered)]
