"""What a drill would do, without doing it: the very preparation that its first step makes. A scheduler is not asked
again: what its last inventory showed has to do, and says of when it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from apps.checkpoints.models import Placement, RunAttempt, TrainingRun
from apps.core.errors import ApplicationError
from apps.drills import faults, reading, safety, selectors, standby
from apps.drills.models import Drill, DrillKind, Fault
from apps.drills.reading import CannotRun
from apps.drills.spec import checked, new_seed
from apps.fleet import cluster_inventory
from apps.fleet.schedulers.base import SchedulerNode

MAX_CANDIDATES = 100


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What one kind of drill would touch. `candidates`: the workers (failover) or nodes (standby) of which one is
    taken, at random where there are several; `radius` is then that of any one of them. `launch` and `inventory_at`:
    what it was read from."""

    radius: safety.Radius = field(default_factory=lambda: safety.Radius(nodes=()))
    effect: str = ""
    problems: tuple[str, ...] = ()
    placement: Placement | None = None
    ladder: tuple[int, ...] = ()
    launch: RunAttempt | None = None
    candidates: tuple[str, ...] = ()
    candidate_count: int = 0
    spare: str = ""
    inventory_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Preview:
    """`refusals` are the reasons why it would not start now; empty: it would."""

    kind: str
    disrupts: bool
    needs_approval: bool
    outlook: Outlook
    refusals: tuple[str, ...]

    @property
    def radius(self) -> safety.Radius:
        return self.outlook.radius

    @property
    def placement(self) -> Placement | None:
        return self.outlook.placement

    @property
    def ladder(self) -> tuple[int, ...]:
        return self.outlook.ladder


def preview(run: TrainingRun, spec: Mapping[str, Any]) -> Preview:
    """Raises InvalidInput that names a field of `spec`. Nothing is stored and no agent is asked."""
    values = {"seed": new_seed(), **checked(run, spec)}
    drill = Drill(run=run, cluster=run.cluster, **values)
    rules = safety.rules_of(run.cluster)
    try:
        outlook = _OUTLOOKS.get(DrillKind(drill.kind), _of_reading)(drill)
    except CannotRun as problem:
        outlook = Outlook(problems=(str(problem),))
    refusals = [
        selectors.stopped_reason(),
        _forbidden(run, drill.kind),
        *outlook.problems,
        safety.radius_problem(rules, outlook.radius) if outlook.radius.nodes else "",
        "This cluster only plans drills; none begins." if rules.plan_only else "",
    ]
    return Preview(
        kind=drill.kind,
        disrupts=drill.kind in safety.DISRUPTIVE,
        needs_approval=safety.waits_for_approval(drill),
        outlook=outlook,
        refusals=tuple(filter(None, refusals)),
    )


def _forbidden(run: TrainingRun, kind: str) -> str:
    try:
        safety.require_allowed(run, kind)
    except ApplicationError as problem:
        return problem.detail
    return ""


def _of_reading(drill: Drill) -> Outlook:
    ready = reading.prepare(drill)
    return Outlook(radius=reading.radius_of(drill, ready), placement=ready.placement, ladder=ready.ladder)


def _of_failover(drill: Drill) -> Outlook:
    attempt = selectors.live_attempt(drill)
    if attempt is None:
        raise CannotRun(
            f"No launch of {drill.run.name} has reported in the last two minutes, so there is nothing to end now."
        )
    known = Outlook(launch=attempt, effect=_effect(drill))
    try:
        workers = faults.fitting_workers(drill, attempt)
        known = replace(
            known,
            radius=safety.Radius(nodes=(workers[0].node,)),
            candidates=tuple(one.who for one in workers[:MAX_CANDIDATES]),
            candidate_count=len(workers),
        )
        if drill.fault == Fault.NODE:
            taken_at, nodes = _inventoried(drill)
            out_of_use = [node.name for node in nodes if not node.usable and node.name == workers[0].node]
            problems = tuple(f"{name} is out of use already." for name in out_of_use)
            return replace(known, inventory_at=taken_at, problems=problems)
        faults.require_agent(attempt, workers[0])
    except CannotRun as problem:
        return replace(known, problems=(str(problem),))
    return known


def _of_standby(drill: Drill) -> Outlook:
    taken_at, nodes = _inventoried(drill)
    found = standby.candidates(drill, nodes)
    names = [node.name for node in found.nodes]
    out = names[0] if len(names) == 1 else "A random node"
    return Outlook(
        radius=safety.Radius(nodes=(names[0], found.spare.name)),
        effect=f"{out} takes no new work until it has passed the gate; what runs there runs on. {found.spare.name} "
        "takes its place, and is parked again at the end.",
        candidates=tuple(names[:MAX_CANDIDATES]),
        candidate_count=len(names),
        spare=found.spare.name,
        inventory_at=taken_at,
    )


_OUTLOOKS: dict[DrillKind, Callable[[Drill], Outlook]] = {
    DrillKind.FAILOVER: _of_failover,
    DrillKind.STANDBY: _of_standby,
}


def _effect(drill: Drill) -> str:
    """What breaks, in a sentence."""
    return {
        Fault.NODE: "The worker's whole node is set down in the scheduler, with every job on it, and brought back when "
        "the drill has ended.",
        Fault.LINK: f"The link {drill.link} breaks, by the command in the node's own configuration.",
        Fault.EXCEPTION: "The training process raises an exception at its next step, where it opted in.",
        Fault.PROCESS: f"The process is ended by {drill.signal_name}.",
    }[Fault(drill.fault)]


def _inventoried(drill: Drill) -> tuple[datetime, list[SchedulerNode]]:
    """The scheduler's nodes as of the cluster's last inventory. Raises CannotRun without one."""
    row = cluster_inventory.newest_whole(drill.cluster)
    nodes = [node.scheduler for node in cluster_inventory.contents_of(row).nodes if node.scheduler] if row else []
    if row is None or not nodes:
        raise CannotRun(
            f"No scheduler of {drill.cluster.name} has been inventoried: connect one, or take an inventory now."
        )
    return row.taken_at, nodes
