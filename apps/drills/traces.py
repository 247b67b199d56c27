"""One trace for each finished drill: the drill, its slowest clients, and the phases of each.

Phases are critical-path seconds that add up to the wall time; here they are laid end to end in their order. What was
not measured has no span.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from apps.core import tracing
from apps.core.phases import PHASES
from apps.drills.models import Drill, RankResult

MAX_CLIENTS = 16
"""The slowest ones: they are what a drill waits for."""


def send(drill_id: str) -> bool:
    """Send its trace. False where there is none: traces are off, or the drill never began."""
    if not tracing.is_on() or tracing.tracer() is None:
        return False
    drill = Drill.objects.select_related("run", "cluster").filter(pk=drill_id, state=Drill.State.FINISHED).first()
    if drill is None or drill.started_at is None or drill.finished_at is None:
        return False
    whole = tracing.record_span(
        f"drill {drill.kind}", drill.started_at, (drill.finished_at - drill.started_at).total_seconds(),
        ids=tracing.trace_of(drill.pk), failed="" if drill.outcome == "passed" else drill.reason or drill.outcome,
        **_facts(drill),
    )  # fmt: skip
    _trace_phases(drill.phases, drill.fault_at, whole)
    for result in _slowest(drill):
        began_at = result.started_at or drill.started_at
        client = tracing.record_span(
            f"rank {result.rank}", began_at, result.seconds or 0.0, parent=whole, failed=result.error,
            **_client_facts(result),
        )  # fmt: skip
        _trace_phases(result.phases, began_at, client)
    return True


def _facts(drill: Drill) -> dict[str, Any]:
    return {
        "muster.drill.id": drill.pk,
        "muster.drill.outcome": drill.outcome,
        "muster.drill.objective": drill.objective_state,
        "muster.run": drill.run.name,
        "muster.cluster": drill.cluster.name,
        "muster.step": drill.checkpoint_step,
        "muster.bytes": drill.total_bytes,
        "muster.seconds": drill.seconds,
    }


def _client_facts(result: RankResult) -> dict[str, Any]:
    return {
        "muster.rank": result.rank,
        "host.name": result.node.name if result.node else "",
        "muster.bytes": result.bytes,
        "muster.reader": result.effective,
        "muster.cache_state": result.cache_state,
    }


def _slowest(drill: Drill) -> list[RankResult]:
    results = RankResult.objects.filter(rung__drill=drill, seconds__isnull=False).select_related("node")
    return list(results.order_by("-seconds", "pk")[:MAX_CLIENTS])


def _trace_phases(phases: Mapping[str, float], began_at: datetime | None, parent: Any) -> None:
    """Where the common start is known: a failover's fault, a client's own beginning."""
    if began_at is None:
        return
    for name in sorted(phases, key=_place):
        tracing.record_span(name, began_at, phases[name], parent=parent)
        began_at += timedelta(seconds=phases[name])


def _place(name: str) -> int:
    known = [str(phase) for phase in PHASES]
    return known.index(name) if name in known else len(known)
