"""The phases of one reload, from the moments between them. Pure."""

from __future__ import annotations

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

    @property
    def ended_at(self) -> float:
        """When the last phase ended."""
        return self.verified_at if self.materialized_at is None else self.materialized_at


def phases_of(moments: Moments, totals: ReadTotals, *, verifies: bool) -> dict[str, float]:
    """Critical-path seconds that add up to the wall time. Blocks are hashed while others are read, so `verify` is only
    what remained after the last byte came in; phases that this reload does not have are absent."""
    read_until = (totals.last_read_at or moments.allocated_at) if verifies else moments.verified_at
    phases = {
        Phase.RESOLVE.value: moments.resolved_at - moments.began_at,
        Phase.ALLOCATE.value: moments.allocated_at - moments.resolved_at,
        Phase.READ.value: read_until - moments.allocated_at,
    }
    if verifies:
        phases[Phase.VERIFY.value] = moments.verified_at - read_until
    if moments.materialized_at is not None:
        phases[Phase.MATERIALIZE.value] = moments.materialized_at - moments.verified_at
    return phases


def busy_of(totals: ReadTotals, *, verifies: bool) -> dict[str, float]:
    """Seconds that threads spent in the phases that overlap, summed over the threads."""
    busy = {Phase.READ.value: totals.reading_seconds}
    return {**busy, Phase.VERIFY.value: totals.consuming_seconds} if verifies else busy
