"""What a drill would do, without doing it: the very preparation that its first step makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.checkpoints.models import Placement, TrainingRun
from apps.core.errors import ApplicationError
from apps.drills import reading, safety, selectors
from apps.drills.models import Drill, DrillKind
from apps.drills.spec import checked, new_seed


@dataclass(frozen=True, kw_only=True)
class Preview:
    """`refusals` are the reasons why it would not start now; empty: it would."""

    kind: str
    disrupts: bool
    needs_approval: bool
    radius: safety.Radius
    placement: Placement | None
    ladder: tuple[int, ...]
    refusals: tuple[str, ...]


def preview(run: TrainingRun, spec: Mapping[str, Any]) -> Preview:
    """Raises InvalidInput that names a field of `spec`. Nothing is stored and no agent is asked."""
    values = {"seed": new_seed(), **checked(run, spec)}
    drill = Drill(run=run, cluster=run.cluster, **values)
    rules = safety.rules_of(run.cluster)
    refusals = [text for text in (selectors.stopped_reason(), _forbidden(run, drill.kind)) if text]
    radius, ready = safety.Radius(nodes=()), None
    try:
        if drill.kind == DrillKind.FAILOVER:
            radius = _of_failover(drill)
        else:
            ready = reading.prepare(drill)
            radius = reading.radius_of(drill, ready)
        refusals += filter(None, [safety.radius_problem(rules, radius)])
    except reading.CannotRun as problem:
        refusals.append(str(problem))
    if rules.plan_only:
        refusals.append("This cluster only plans drills; none begins.")
    return Preview(
        kind=drill.kind,
        disrupts=drill.kind in safety.DISRUPTIVE,
        needs_approval=safety.waits_for_approval(drill),
        radius=radius,
        placement=ready.placement if ready else None,
        ladder=ready.ladder if ready else (),
        refusals=tuple(refusals),
    )


def _forbidden(run: TrainingRun, kind: str) -> str:
    try:
        safety.require_allowed(run, kind)
    except ApplicationError as problem:
        return problem.detail
    return ""


def _of_failover(drill: Drill) -> safety.Radius:
    attempt = selectors.live_attempt(drill)
    if attempt is None:
        raise reading.CannotRun(f"No launch of {drill.run.name} has reported in the last two minutes.")
    return safety.Radius(nodes=(attempt.agent.node.name,) if attempt.agent else ())
