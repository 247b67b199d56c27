"""The arithmetic of reading a checkpoint back with many clients: who reads what, and what the clients' figures mean
together. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

SLOWEST_EXPECTED_BYTES_PER_SECOND = 20_000_000
"""A client below this for its whole share is called stuck: a cold tier over one slow link is still faster."""
MIN_DEADLINE_SECONDS = 300.0
STRAGGLER_RATIO = 1.25
FROM_MEMORY_RATIO = 0.05
"""More than this cached before, and the rate speaks of memory too, not of the tier."""


@dataclass(frozen=True)
class File:
    """One shard: its path relative to the checkpoint, and its size. `for_every_reader` is metadata, say."""

    path: str
    size_bytes: int
    for_every_reader: bool = False


@dataclass(frozen=True)
class Share:
    """What one client reads. `ranks` is empty where the format knows no ranks."""

    ranks: tuple[int, ...]
    files: tuple[File, ...]
    part: tuple[int, int] | None = None
    """(number, count): of all these bytes only this even part."""

    @property
    def total_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files) // (self.part[1] if self.part else 1)


@dataclass
class _Draft:
    ranks: list[int] = field(default_factory=list)
    files: list[File] = field(default_factory=list)

    @property
    def total_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def split(files_by_rank: Mapping[int | None, Sequence[File]], client_count: int) -> tuple[Share, ...]:
    """Every file at least once over at most `client_count` shares, in client order.

    Ranks go to clients in order and in blocks, as launchers place them: with as many clients as ranks, rank i reads on
    client i. A file that several ranks of a block read is read once there. Files of no rank (None) go to the lightest
    client, largest first, but those for every reader go to each. Shares that would read nothing of their own are left
    out, so fewer may come back. Raises ValueError below one client.
    """
    if client_count < 1:
        raise ValueError("a drill needs at least one client")
    ranks = sorted(rank for rank in files_by_rank if rank is not None)
    drafts = [_Draft() for _ in range(client_count)]
    blocks = min(client_count, len(ranks))
    for index in range(blocks):
        block = ranks[index * len(ranks) // blocks : (index + 1) * len(ranks) // blocks]
        drafts[index].ranks += block
        drafts[index].files += dict.fromkeys(file for rank in block for file in files_by_rank[rank])
    loose = sorted(files_by_rank.get(None, ()), key=lambda file: (-file.size_bytes, file.path))
    for file in loose:
        if not file.for_every_reader:
            min(drafts, key=lambda draft: draft.total_bytes).files.append(file)
    common = [file for file in loose if file.for_every_reader]
    used = [draft for draft in drafts if draft.files] or drafts[:1]
    shares = [Share(tuple(draft.ranks), (*draft.files, *common)) for draft in used]
    return tuple(share for share in shares if share.files)


def split_evenly(files_by_rank: Mapping[int | None, Sequence[File]], client_count: int) -> tuple[Share, ...]:
    """The same number of bytes of every file's for each client, whatever ranks saved them."""
    files = tuple(dict.fromkeys(file for found in files_by_rank.values() for file in found))
    return tuple(Share((), files, (number, client_count)) for number in range(client_count))


def deadline_seconds(shares: Sequence[Share], max_bytes_per_second: int | None) -> float:
    """How long one round may take: twice the largest share at its cap, or at a rate that every working tier has."""
    largest = max((share.total_bytes for share in shares), default=0)
    rate = min(max_bytes_per_second or SLOWEST_EXPECTED_BYTES_PER_SECOND, SLOWEST_EXPECTED_BYTES_PER_SECOND)
    return max(MIN_DEADLINE_SECONDS, 2 * largest / rate)


@dataclass(frozen=True, kw_only=True)
class ClientFigures:
    """What one client measured: `started_seconds` on a clock common to all clients, the rest by its own monotonic
    clock. `phases` are critical-path seconds that add up to `seconds`."""

    name: str
    ranks: tuple[int, ...]
    bytes: int
    seconds: float
    started_seconds: float
    phases: Mapping[str, float]
    cached_ratio_before: float | None = None
    verified: bool | None = None


@dataclass(frozen=True, kw_only=True)
class FleetFigures:
    """All clients of one round together.

    `seconds` runs from the first client's start to the last one's end; `phases` are those of the client that ended
    last, and `unattributed_seconds` is the rest of the wall time: how much later than the first that client started,
    and whatever it did not attribute itself. Both together always give `seconds`.
    """

    seconds: float
    total_bytes: int
    bytes_per_second: float | None
    phases: dict[str, float]
    unattributed_seconds: float
    start_skew_seconds: float
    jain_index: float | None
    cached_ratio_before: float | None
    verified: bool | None
    slowest: str
    slowest_ranks: tuple[int, ...]
    stragglers: tuple[str, ...]


def combine(clients: Sequence[ClientFigures]) -> FleetFigures:
    """The fleet's figures: the slowest decides, nothing is averaged. Raises ValueError without clients."""
    if not clients:
        raise ValueError("no client has reported")
    first_start = min(client.started_seconds for client in clients)
    slowest = max(clients, key=lambda client: client.started_seconds + client.seconds)
    seconds = slowest.started_seconds - first_start + slowest.seconds
    total_bytes = sum(client.bytes for client in clients)
    return FleetFigures(
        seconds=seconds,
        total_bytes=total_bytes,
        bytes_per_second=total_bytes / seconds if seconds > 0 else None,
        phases=dict(slowest.phases),
        unattributed_seconds=max(0.0, seconds - sum(slowest.phases.values())),
        start_skew_seconds=max(client.started_seconds for client in clients) - first_start,
        jain_index=jain([client.bytes / client.seconds for client in clients if client.seconds > 0]),
        cached_ratio_before=weighted_ratio([(client.bytes, client.cached_ratio_before) for client in clients]),
        verified=all_verified([client.verified for client in clients]),
        slowest=slowest.name,
        slowest_ranks=slowest.ranks,
        stragglers=stragglers({client.name: client.seconds for client in clients}),
    )


@dataclass(frozen=True)
class Balance:
    """The clients' rates in bytes per second, slowest, middle and fastest, and who was slowest."""

    min_rate: float | None
    median_rate: float | None
    max_rate: float | None
    slowest: str


def balance(clients: Sequence[ClientFigures]) -> Balance:
    """Of clients that read; None for each figure where none did."""
    rates = {client.name: client.bytes / client.seconds for client in clients if client.seconds > 0}
    if not rates:
        return Balance(None, None, None, "")
    slowest = min(rates, key=lambda name: rates[name])
    return Balance(rates[slowest], median(rates.values()), max(rates.values()), slowest)


def jain(rates: Sequence[float]) -> float | None:
    """Jain's fairness index of the clients' rates: 1 when all are equal, 1/n when one has everything."""
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares > 0 else None


def weighted_ratio(parts: Sequence[tuple[int, float | None]]) -> float | None:
    """The share of all bytes, from each part's (bytes, ratio). None when any part with bytes is not known."""
    if any(ratio is None and count for count, ratio in parts):
        return None
    total = sum(count for count, _ratio in parts)
    return sum(count * (ratio or 0.0) for count, ratio in parts) / total if total else None


def all_verified(verdicts: Sequence[bool | None]) -> bool | None:
    """False where any part differs, True only where every part is proven equal, else None: not all was checked."""
    if any(verdict is False for verdict in verdicts):
        return False
    return True if verdicts and all(verdicts) else None


@dataclass(frozen=True)
class Blame:
    """Why a client was late: in `phase` it took `excess_seconds` more than the others' median."""

    name: str
    ranks: tuple[int, ...]
    seconds: float
    phase: str
    excess_seconds: float


def blame(clients: Sequence[ClientFigures]) -> tuple[Blame, ...]:
    """The stragglers, slowest first, each with the phase in which it lost most against the median of all clients."""
    late = stragglers({client.name: client.seconds for client in clients})
    usual = {
        phase: median(client.phases.get(phase, 0.0) for client in clients)
        for phase in {phase for client in clients for phase in client.phases}
    }
    found = []
    for client in sorted((one for one in clients if one.name in late and one.phases), key=lambda one: -one.seconds):
        excess = {phase: seconds - usual[phase] for phase, seconds in client.phases.items()}
        phase = max(excess, key=lambda name: excess[name])
        found.append(Blame(client.name, client.ranks, client.seconds, phase, excess[phase]))
    return tuple(found)


@dataclass(frozen=True)
class Spread:
    """Of the same reading done `count` times; `spread_ratio` is (slowest - fastest) / median."""

    count: int
    min_seconds: float
    median_seconds: float
    max_seconds: float
    spread_ratio: float


def spread(seconds: Sequence[float]) -> Spread:
    """Raises ValueError for none."""
    middle = median(seconds)
    ratio = (max(seconds) - min(seconds)) / middle if middle > 0 else 0.0
    return Spread(len(seconds), min(seconds), middle, max(seconds), ratio)


def stragglers(seconds_by_client: Mapping[str, float]) -> tuple[str, ...]:
    """Clients that took over 1.25 times the median, slowest first; below three there is nothing to compare."""
    if len(seconds_by_client) < 3:
        return ()
    limit = STRAGGLER_RATIO * median(seconds_by_client.values())
    late = [name for name, seconds in seconds_by_client.items() if seconds > limit]
    return tuple(sorted(late, key=lambda name: -seconds_by_client[name]))
