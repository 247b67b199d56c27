"""A storage system in events: queues at a metadata server and at the data servers, uneven service, slow clients.

It shares no code and no formula with the predictor, which only sees what drills on it measure.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class System:
    """Rates in bytes per second. Each client keeps `depth` requests under way; every request queues at one of the
    `servers`, then crosses the client's own link. One client in `slow_every` has a link at `slow_ratio`."""

    name: str
    servers: int
    server_rate: float
    link_rate: float
    request_seconds: float
    open_seconds: float
    unevenness: float
    slow_every: int
    slow_ratio: float
    depth: int = 4


SYSTEMS = (
    System("local_nvme", 64, 6.5e9, 6.0e9, 1e-4, 1e-4, 0.05, 40, 0.9),
    System("parallel_fs", 32, 10e9, 20e9, 5e-4, 5e-4, 0.15, 25, 0.8),
    System("nas", 2, 2.5e9, 3.0e9, 2e-3, 4e-3, 0.25, 20, 0.7),
    System("object_store", 48, 1.2e9, 4.0e9, 4e-2, 2e-2, 0.5, 16, 0.75),
    System("archive", 6, 0.25e9, 1.0e9, 2e-1, 1e-1, 0.6, 16, 0.8),
)


def read_seconds(system: System, total_bytes: float, clients: int, seed: int, requests_each: int = 24) -> float:
    """From the common start until the slowest client has its share."""
    return _Round(system, total_bytes, clients, requests_each, random.Random(seed)).run()


class _Round:
    def __init__(self, system: System, total_bytes: float, clients: int, requests: int, dice: random.Random) -> None:
        self.system, self.dice, self.requests = system, dice, requests
        self.size = total_bytes / clients / requests
        self.server_free_at = [0.0] * system.servers
        self.link_free_at = [0.0] * clients
        self.link_rates = [
            system.link_rate * (system.slow_ratio if dice.randrange(system.slow_every) == 0 else 1.0)
            for _client in range(clients)
        ]
        self.left = [requests] * clients
        self.ended_at = 0.0

    def run(self) -> float:
        """Events are (time, order, client): the client sends its next request then."""
        events: list[tuple[float, int, int]] = []
        order = 0
        for client in range(len(self.left)):
            opened_at = (client + 1) * self.system.open_seconds  # one metadata server, first come first served
            for _slot in range(min(self.system.depth, self.requests)):
                heapq.heappush(events, (opened_at, order, client))
                order += 1
        while events:
            at, _order, client = heapq.heappop(events)
            if not self.left[client]:
                continue
            self.left[client] -= 1
            order += 1
            heapq.heappush(events, (self._serve(at, client), order, client))
        return self.ended_at

    def _serve(self, at: float, client: int) -> float:
        system = self.system
        first, second = self.dice.randrange(system.servers), self.dice.randrange(system.servers)
        server = first if self.server_free_at[first] <= self.server_free_at[second] else second
        takes = (
            self.size / system.server_rate * self.dice.lognormvariate(-(system.unevenness**2) / 2, system.unevenness)
        )
        served_at = max(at, self.server_free_at[server]) + system.request_seconds + takes
        self.server_free_at[server] = served_at
        here_at = max(served_at, self.link_free_at[client]) + self.size / self.link_rates[client]
        self.link_free_at[client] = here_at
        self.ended_at = max(self.ended_at, here_at)
        return here_at
