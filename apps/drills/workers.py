"""Which worker of a running job a failover drill breaks. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One rank's process, as its hook registered it on `node`; `pid` None: the lowest rank that runs there."""

    agent_id: str
    node: str
    rank: int | None = None
    pid: int | None = None

    @property
    def who(self) -> str:
        return self.node if self.rank is None else f"rank {self.rank} on {self.node}"


def choose_worker(fit: Sequence[Worker], *, rank: int | None, seed: int) -> Worker:
    """Of workers that fit, in `fitting`'s order: the first of a named rank, else a random one, the same for the same
    seed and workers."""
    return fit[0] if rank is not None else random.Random(seed).choice(fit)


def fitting(workers: Sequence[Worker], *, rank: int | None, node: str) -> list[Worker]:
    """Those that could be chosen, by rank."""
    ordered = sorted(workers, key=lambda one: (one.rank is None, one.rank or 0, one.node, one.pid or 0))
    return [one for one in ordered if rank in (None, one.rank) and node in ("", one.node)]
