"""The phases of one reload, from the moments between them, and what CPU time each of them took."""

from __future__ import annotations

import time
from typing import NamedTuple

from muster_agent.protocol.phases import Phase
from muster_agent.reload.totals import ReadTotals


class Moments(NamedTuple):
    """The moments between the phases, in monotonic seconds. `materialized_at` None where nothing was kept."""

    began_at: float
    resolved_at: float
    allocated_at: float
    verified_at: float
    materialized_at: float | None = None
    arrived_at: float | None = None
    """When the last byte had come to a device after it was read; None where none had to."""

    @property
    def kept_at(self) -> float:
        """When the tensors could be used where they are kept."""
        return self.verified_at if self.materialized_at is None else self.materialized_at

    @property
    def ended_at(self) -> float:
        """When the last phase ended."""
        return self.kept_at if self.arrived_at is None else self.arrived_at


class CpuMeter:
    """CPU seconds by phase of the thread that made it, which reports where each of its phases ends."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._before = time.thread_time()

    def lap(self, phase: Phase, of_other_threads: float = 0.0) -> None:
        """All CPU time since the lap before belongs to this phase, and that of other threads with it."""
        now = time.thread_time()
        self.seconds[phase.value] = self.seconds.get(phase.value, 0.0) + now - self._before + of_other_threads
        self._before = now

    def lap_reading(self, totals: ReadTotals, *, verifies: bool) -> None:
        """The end of the reads, in which the readers hashed too."""
        hashing, placing = totals.consuming_cpu_seconds if verifies else 0.0, totals.placing_cpu_seconds
        self.lap(Phase.READ, totals.cpu_seconds - hashing - placing)
        self.seconds[Phase.ALLOCATE.value] = self.seconds.get(Phase.ALLOCATE.value, 0.0) + placing
        if verifies:
            self.seconds[Phase.VERIFY.value] = hashing


def phases_of(moments: Moments, totals: ReadTotals, *, verifies: bool) -> dict[str, float]:
    """Critical-path seconds that add up to the wall time. Blocks are hashed, and memory that is kept is touched, while
    others are read: `read` is the time in which at least one thread was waiting for the storage, `allocate` and
    `verify` that in which none was. Phases that this reload does not have are absent."""
    placing_seconds = totals.wall_seconds.get(Phase.ALLOCATE, 0.0)
    pass_seconds = moments.verified_at - moments.allocated_at - placing_seconds
    read_seconds = min(totals.wall_seconds.get(Phase.READ, 0.0), pass_seconds) if verifies else pass_seconds
    phases = {
        Phase.RESOLVE.value: moments.resolved_at - moments.began_at,
        Phase.ALLOCATE.value: moments.allocated_at - moments.resolved_at + placing_seconds,
        Phase.READ.value: read_seconds,
    }
    if verifies:
        phases[Phase.VERIFY.value] = pass_seconds - read_seconds
    if moments.materialized_at is not None:
        phases[Phase.MATERIALIZE.value] = moments.materialized_at - moments.verified_at
    if moments.arrived_at is not None:
        phases[Phase.TO_DEVICE.value] = moments.arrived_at - moments.kept_at
    return phases


def busy_of(totals: ReadTotals, *, verifies: bool, copy_seconds: float | None = None) -> dict[str, float]:
    """Seconds of work in the phases that overlap, summed over the threads; `copy_seconds` by the device's own clock."""
    busy = {Phase.READ.value: totals.reading_seconds}
    if totals.placing_seconds:
        busy = {Phase.ALLOCATE.value: totals.placing_seconds, **busy}
    if verifies:
        busy[Phase.VERIFY.value] = totals.consuming_seconds
    if copy_seconds is not None:
        busy[Phase.TO_DEVICE.value] = copy_seconds
    return busy
