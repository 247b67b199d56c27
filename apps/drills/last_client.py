"""Who came last in a round, why, and what it cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from apps.core import units
from apps.core.phases import LABELS, Phase
from apps.drills.reload import STRAGGLER_RATIO, ClientFigures

FEW = 3
"""Below so many clients there is no usual one to compare with."""
_NOTABLE_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class LastClient:
    """Seconds run from the first client's start. `phase` is where it lost most against the median of all clients,
    `excess_seconds` how much there, `rate_ratio` its reading rate against that of the others (None where not known).
    `without_seconds`: when the round would have been over without it."""

    name: str
    ranks: tuple[int, ...]
    end_seconds: float
    after_median_seconds: float
    phase: str
    excess_seconds: float
    rate_ratio: float | None
    without_seconds: float
    is_straggler: bool
    sentence: str


def last_client(clients: Sequence[ClientFigures]) -> LastClient | None:
    """None below three clients."""
    if len(clients) < FEW:
        return None
    first = min(client.started_seconds for client in clients)
    ends = {client.name: client.started_seconds - first + client.seconds for client in clients}
    last = max(clients, key=lambda client: ends[client.name])
    others = [client for client in clients if client is not last]
    phase, excess = _blamed(last, others)
    after = ends[last.name] - median(ends.values())
    figures = {
        "end_seconds": ends[last.name],
        "after_median_seconds": after,
        "excess_seconds": excess,
        "without_seconds": max(ends[client.name] for client in others),
    }
    ratio = _rate_ratio(last, others)
    return LastClient(
        name=last.name,
        ranks=last.ranks,
        phase=phase,
        rate_ratio=ratio,
        is_straggler=last.seconds > STRAGGLER_RATIO * median(client.seconds for client in clients),
        sentence=_sentence(last, phase, ratio, figures),
        **figures,
    )


def _blamed(last: ClientFigures, others: Sequence[ClientFigures]) -> tuple[str, float]:
    usual = {phase: median(other.phases.get(phase, 0.0) for other in others) for phase in last.phases}
    excess = {phase: seconds - usual[phase] for phase, seconds in last.phases.items()}
    if not excess:
        return "", 0.0
    phase = max(excess, key=lambda name: excess[name])
    return phase, excess[phase]


def _rate_ratio(last: ClientFigures, others: Sequence[ClientFigures]) -> float | None:
    """By the read phase where all have it: a rank with more bytes is not slow for that."""
    own = _read_rate(last)
    rates = [rate for other in others if (rate := _read_rate(other)) is not None]
    return own / median(rates) if own is not None and len(rates) == len(others) else None


def _read_rate(client: ClientFigures) -> float | None:
    seconds = client.phases.get(Phase.READ) or 0.0
    return client.bytes / seconds if seconds > 0 and client.bytes else None


def _sentence(last: ClientFigures, phase: str, ratio: float | None, figures: dict[str, float]) -> str:
    who = _who(last)
    after, excess = figures["after_median_seconds"], figures["excess_seconds"]
    if after < _NOTABLE_SECONDS:
        return f"All clients ended together; {who} came last by {units.duration(after)}."
    label = LABELS[Phase(phase)].lower() if phase in set(Phase) else phase
    why = ""
    if ratio is not None and phase == Phase.READ:
        why = f": it read at {ratio:.2f} of the others' rate"
    elif phase and excess >= _NOTABLE_SECONDS:
        why = f": {label} took {units.duration(excess)} more than usual"
    without = units.duration(figures["without_seconds"])
    return f"{who} ended {units.duration(after)} after the median{why}. Without it: {without}."


def _who(client: ClientFigures) -> str:
    """`Rank 17 on gpu-02`."""
    if not client.ranks:
        return client.name
    if len(client.ranks) == 1:
        return f"Rank {client.ranks[0]} on {client.name}"
    return f"Ranks {client.ranks[0]} to {client.ranks[-1]} on {client.name}"
