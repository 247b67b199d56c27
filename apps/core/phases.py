"""The recovery phases, in their one order (the list itself is shared with the agents), with how pages show them."""

from __future__ import annotations

from collections.abc import Mapping

from muster_agent.protocol.phases import PHASES, STORAGE_PHASES, Phase

__all__ = ["LABELS", "PHASES", "STORAGE_PHASES", "Phase", "not_measured", "ordered"]

LABELS: dict[Phase, str] = {
    Phase.DETECT: "Detect",
    Phase.RESCHEDULE: "Reschedule",
    Phase.LAUNCH: "Launch",
    Phase.RESOLVE: "Resolve",
    Phase.STAGE: "Stage",
    Phase.ALLOCATE: "Allocate",
    Phase.READ: "Read",
    Phase.VERIFY: "Verify",
    Phase.MATERIALIZE: "Materialize",
    Phase.TO_DEVICE: "To device",
    Phase.FIRST_STEP: "First step",
}


def ordered(seconds_by_phase: Mapping[str, float]) -> list[tuple[Phase, float | None]]:
    """Every phase in order with its seconds, None where it was not measured."""
    return [(phase, seconds_by_phase.get(phase)) for phase in PHASES]


def not_measured(seconds_by_phase: Mapping[str, float]) -> list[Phase]:
    return [phase for phase in PHASES if phase not in seconds_by_phase]
