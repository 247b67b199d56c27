"""How long a run would take to train again, from what its drills measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from apps.core.phases import PHASES, Phase

COMPARED = 10
_GROWS_WITH_BYTES = frozenset({Phase.STAGE, Phase.READ, Phase.VERIFY, Phase.MATERIALIZE, Phase.TO_DEVICE})


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One passed drill, newest first among its like. `is_restart`: it timed a really restarting job (a failover), and
    its reading is the trainer's own; otherwise it measured the storage part alone."""

    run_id: str
    tier_id: str | None
    total_bytes: int | None
    seconds: float | None
    phases: Mapping[str, float]
    is_restart: bool = False


@dataclass(frozen=True)
class Prediction:
    """`seconds` is the sum of `phases`. A phase that no drill measured is absent, so the prediction is of the measured
    phases only; `is_storage_only` where no restart of the run was ever timed."""

    seconds: float
    phases: dict[str, float]
    drill_count: int
    is_storage_only: bool


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
    """For a copy of `total_bytes` on a tier, from the run's own restarts where any was timed, else from its storage
    drills: medians of each phase, those that grow with the bytes scaled to this copy. Reading that no restart timed on
    this tier is the floor. None when no drill has measured this run, or nothing has read the tier."""
    own = [drill for drill in drills if drill.run_id == run_id]
    restarts = [drill for drill in own if drill.is_restart]
    rate = ceiling(drills, tier_id, known_rates)
    if not own or rate is None:
        return None
    basis = restarts or own
    usual = {phase: _usual(basis, phase, total_bytes) for phase in PHASES}
    on_tier = [drill for drill in restarts if drill.tier_id == tier_id]
    usual[Phase.READ] = _usual(on_tier, Phase.READ, total_bytes) or read_floor_seconds(total_bytes, rate)
    phases = {phase.value: seconds for phase, seconds in usual.items() if seconds is not None}
    return Prediction(sum(phases.values()), phases, len(basis), is_storage_only=not restarts)


def _read_rate(drill: Measured) -> float | None:
    # a restart's whole time is no reading time; its read phase is
    seconds = drill.phases.get(Phase.READ) or (None if drill.is_restart else drill.seconds)
    return drill.total_bytes / seconds if drill.total_bytes and seconds else None


def _usual(drills: Sequence[Measured], phase: Phase, total_bytes: int) -> float | None:
    measured = [_scaled(drill, phase, total_bytes) for drill in drills if phase in drill.phases]
    return median(measured[:COMPARED]) if measured else None


def _scaled(drill: Measured, phase: Phase, total_bytes: int) -> float:
    if phase not in _GROWS_WITH_BYTES or not drill.total_bytes:
        return drill.phases[phase]
    return drill.phases[phase] * total_bytes / drill.total_bytes
