"""How long a run would take to train again, from what its drills measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from apps.core.phases import PHASES, Phase

COMPARED = 10


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One passed drill, newest first among its like."""

    run_id: str
    tier_id: str | None
    total_bytes: int | None
    seconds: float | None
    phases: Mapping[str, float]


@dataclass(frozen=True)
class Prediction:
    """`seconds` is the sum of `phases`: the read floor on the tier, and medians of what else was measured. A phase that
    no drill measured is absent, so the prediction is of the measured phases only."""

    seconds: float
    phases: dict[str, float]
    drill_count: int


def ceiling(drills: Iterable[Measured], tier_id: str, known: Sequence[float] = ()) -> float | None:
    """The best rate (bytes per second) at which a drill read from the tier; `known` are ceilings measured otherwise."""
    rates = [rate for drill in drills if drill.tier_id == tier_id and (rate := _read_rate(drill)) is not None]
    return max([*rates, *known], default=None)


def read_floor_seconds(
    total_bytes: int,
    storage_rate: float,
    *,
    ranks: Sequence[tuple[int, float]] = (),
    nodes: Sequence[tuple[int, float]] = (),
) -> float:
    """No restore is faster: all bytes at the storage's rate, and each rank's and node's (bytes, rate) at its own."""
    parts = [total_bytes / storage_rate, *(count / rate for count, rate in (*ranks, *nodes))]
    return max(parts)


def rate_needed(total_bytes: int, objective_seconds: float, other_seconds: float) -> float | None:
    """Bytes per second that the storage must give for the objective; None where the other phases already exceed it."""
    left = objective_seconds - other_seconds
    return total_bytes / left if left > 0 else None


def prediction(
    *, run_id: str, total_bytes: int, tier_id: str, drills: Sequence[Measured], known_rates: Sequence[float] = ()
) -> Prediction | None:
    """For a copy of `total_bytes` on a tier. None when no drill has measured this run, or nothing has read the tier."""
    own = [drill for drill in drills if drill.run_id == run_id]
    rate = ceiling(drills, tier_id, known_rates)
    if not own or rate is None:
        return None
    seconds = {phase.value: _usual(own, phase) for phase in PHASES if phase is not Phase.READ}
    phases = {name: value for name, value in seconds.items() if value is not None}
    phases[Phase.READ.value] = read_floor_seconds(total_bytes, rate)
    ordered = {phase.value: phases[phase] for phase in PHASES if phase in phases}
    return Prediction(sum(ordered.values()), ordered, len(own))


def _read_rate(drill: Measured) -> float | None:
    seconds = drill.phases.get(Phase.READ) or drill.seconds
    return drill.total_bytes / seconds if drill.total_bytes and seconds else None


def _usual(drills: Sequence[Measured], phase: Phase) -> float | None:
    measured = [drill.phases[phase] for drill in drills if phase in drill.phases]
    return median(measured[:COMPARED]) if measured else None
