"""Which launches ended in a disruption. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch of a run as its records tell. Times are seconds on one clock; `last_sign_at` is the last record that
    the launch itself made; `ended_at` its own word that it ended in order."""

    launch_id: str
    started_at: float
    last_sign_at: float
    last_step: int | None = None
    ended_at: float | None = None
    failure_detected_at: float | None = None


@dataclass(frozen=True)
class Disruption:
    """The true fault lies between `fault_at`, the last sign of life, and `detected_at`; None where nobody said that it
    was noticed."""

    launch_id: str
    fault_at: float
    detected_at: float | None
    detail: str


def disruptions(launches: Sequence[Launch]) -> list[Disruption]:
    """Those of a run's `launches` that had trained and ended without wanting to.

    A launch that somebody called failed, and one that never said it ended while a later one began. Silence alone is
    no disruption: unknown is not gone. A launch that never trained belongs to the recovery before it.
    """
    ordered = sorted(launches, key=lambda launch: launch.started_at)
    found = []
    for number, launch in enumerate(ordered):
        if launch.last_step is None:
            continue
        successor = ordered[number + 1] if number + 1 < len(ordered) else None
        detail = _detail(launch, successor)
        if detail:
            fault_at = launch.last_sign_at
            if launch.failure_detected_at is not None:
                fault_at = min(fault_at, launch.failure_detected_at)
            found.append(Disruption(launch.launch_id, fault_at, launch.failure_detected_at, detail))
    return found


def _detail(launch: Launch, successor: Launch | None) -> str:
    if launch.failure_detected_at is not None:
        return f"Launch {launch.launch_id} was reported as failed after step {launch.last_step}."
    if launch.ended_at is None and successor is not None and successor.started_at > launch.last_sign_at:
        return (
            f"Launch {successor.launch_id} began while {launch.launch_id} had not said that it ended; its last step "
            f"was {launch.last_step}."
        )
    return ""
