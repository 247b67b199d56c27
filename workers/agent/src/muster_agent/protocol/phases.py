"""The phases of a recovery, in their one order, from the fault to the first training step beyond the checkpoint."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    DETECT = "detect"
    RESCHEDULE = "reschedule"
    LAUNCH = "launch"
    RESOLVE = "resolve"
    STAGE = "stage"
    ALLOCATE = "allocate"
    READ = "read"
    VERIFY = "verify"
    MATERIALIZE = "materialize"
    TO_DEVICE = "to_device"
    FIRST_STEP = "first_step"


PHASES: tuple[Phase, ...] = tuple(Phase)
STORAGE_PHASES: tuple[Phase, ...] = (
    Phase.RESOLVE,
    Phase.STAGE,
    Phase.ALLOCATE,
    Phase.READ,
    Phase.VERIFY,
    Phase.MATERIALIZE,
    Phase.TO_DEVICE,
)
"""The phases a storage-only drill can measure; the others are shown as not measured, never as 0."""
