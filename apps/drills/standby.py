"""Standby: put a pre-warmed spare in for a node, through the cluster's scheduler, and time each step.

Probe the spare, drain the node, bring the spare in; then the gate: probe the node that is to come back, bring it back,
park the spare again. A spare is a node that the scheduler keeps out of use with the reason `muster standby`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone
from muster_agent.protocol.probe import ProbeBody, ProbeParams
from muster_agent.protocol.wire import TaskKind

from apps.core.transitions import transition
from apps.drills import fitness, safety, selectors
from apps.drills.faults import node_reason
from apps.drills.finish import OWNER_KIND, finish, objective_state
from apps.drills.models import Drill, DrillStep
from apps.drills.reading import CannotRun, require_small_enough
from apps.fleet import tasks
from apps.fleet.models import Agent, AgentTask
from apps.fleet.schedulers.access import required_scheduler
from apps.fleet.schedulers.base import PARKED_REASON, Scheduler, SchedulerError, SchedulerNode

DEADLINE_SECONDS = 600
UNFIT_REASON = "muster: not fit to return"
log = logging.getLogger(__name__)


class Unfit(Exception):
    """A node did not pass its checks; the message says which and why."""


# -- the beginning -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Candidates:
    """`nodes`: one of them is taken out; `spare` takes its place."""

    nodes: tuple[SchedulerNode, ...]
    spare: SchedulerNode
    agents: Mapping[str, Agent]


def candidates(drill: Drill, nodes: Sequence[SchedulerNode]) -> Candidates:
    """Whom a drill would put where, of the scheduler's `nodes`. Raises CannotRun."""
    agents = selectors.agents_by_node(drill.cluster)
    return Candidates(_fitting_nodes(drill, nodes, agents), _chosen_spare(nodes, agents), agents)


def begin(drill: Drill) -> bool:
    """Choose the node and its spare. Raises CannotRun."""
    try:
        nodes = required_scheduler(drill.cluster).snapshot().nodes
    except SchedulerError as problem:
        raise CannotRun(str(problem)) from problem
    found = candidates(drill, nodes)
    node, spare, agents = random.Random(drill.seed).choice(found.nodes), found.spare, found.agents
    require_small_enough(drill, safety.Radius(nodes=(node.name, spare.name)))
    now = timezone.now()
    chosen = {one.name: agents[one.name].pk for one in (node, spare)}
    facts = {"node": node.name, "spare": spare.name, "gpu_count": node.gpu_count, "agents": chosen}
    with transaction.atomic():
        moved = transition(
            drill,
            old=Drill.State.PREPARING,
            new=Drill.State.RUNNING,
            started_at=now,
            deadline_at=now + timedelta(seconds=drill.deadline_seconds or DEADLINE_SECONDS),
            facts={**drill.facts, **facts},
        )
        if moved:
            DrillStep.objects.bulk_create(
                DrillStep(drill=drill, order=order, what=what, began_at=None if order else now)
                for order, what in enumerate(_ACTIONS)
            )
    return moved


def _fitting_nodes(
    drill: Drill, nodes: Sequence[SchedulerNode], agents: Mapping[str, Agent]
) -> tuple[SchedulerNode, ...]:
    usable = [node for node in nodes if node.usable and node.name in agents]
    fitting = [node for node in usable if drill.worker_node in ("", node.name)]
    if not fitting:
        wanted = drill.worker_node or "that the scheduler uses and whose agent is online"
        raise CannotRun(f"There is no node {wanted} to take out: in use with an agent are {_names(usable)}.")
    return tuple(sorted(fitting, key=lambda node: node.name))


def _chosen_spare(nodes: Sequence[SchedulerNode], agents: Mapping[str, Agent]) -> SchedulerNode:
    parked = [node for node in nodes if node.parked]
    ready = [node for node in parked if node.name in agents]
    if not ready:
        raise CannotRun(
            f"There is no spare whose agent is online (parked: {_names(parked)}). Park one: `scontrol update "
            f'nodename=NAME state=drain reason="{PARKED_REASON}"`.'
        )
    return min(ready, key=lambda node: node.name)


def _names(nodes: list[SchedulerNode]) -> str:
    return ", ".join(node.name for node in nodes[:8]) or "none"


# -- step by step ------------------------------------------------------------------------------------------------------
def observe(drill: Drill) -> bool:
    """Do, or look for the end of, the step at hand."""
    step = DrillStep.objects.filter(drill=drill, ended_at=None).order_by("order").first()
    if step is None:
        return _conclude(drill)
    try:
        detail = _ACTIONS[step.what](drill, required_scheduler(drill.cluster))
    except Unfit as problem:
        return _unfit(drill, step, str(problem))
    except SchedulerError as problem:
        return _overdue(drill, step, f" The scheduler: {problem}")
    if detail is None:
        return _overdue(drill, step, "")
    return _end_step(step, detail)


def _end_step(step: DrillStep, detail: dict[str, Any]) -> bool:
    now = timezone.now()
    with transaction.atomic():
        ended = DrillStep.objects.filter(pk=step.pk, ended_at=None).update(ended_at=now, detail=detail) == 1
        if ended:
            DrillStep.objects.filter(drill=step.drill_id, order=step.order + 1).update(began_at=now)
    return ended


def _probe_spare(drill: Drill, _scheduler: Scheduler) -> dict[str, Any] | None:
    return _fit(drill, drill.facts["spare"])


def _drain_node(drill: Drill, scheduler: Scheduler) -> dict[str, Any] | None:
    name = drill.facts["node"]
    # Before the effect: whatever happens from here on, it is brought back, and the spare is parked again.
    Drill.objects.filter(pk=drill.pk).update(restore_node=name, park_node=drill.facts["spare"])
    return _settled(scheduler, name, lambda node: not node.usable, lambda: scheduler.drain(name, node_reason(drill)))


def _bring_in(drill: Drill, scheduler: Scheduler) -> dict[str, Any] | None:
    name = drill.facts["spare"]
    return _settled(scheduler, name, lambda node: node.usable, lambda: scheduler.resume(name))


def _gate(drill: Drill, _scheduler: Scheduler) -> dict[str, Any] | None:
    return _fit(drill, drill.facts["node"])


def _return_node(drill: Drill, scheduler: Scheduler) -> dict[str, Any] | None:
    name = drill.facts["node"]
    return _settled(scheduler, name, lambda node: node.usable, lambda: scheduler.resume(name))


def _park_spare(drill: Drill, scheduler: Scheduler) -> dict[str, Any] | None:
    name = drill.facts["spare"]
    return _settled(scheduler, name, lambda node: not node.usable, lambda: scheduler.drain(name, PARKED_REASON))


_ACTIONS: dict[str, Callable[[Drill, Scheduler], dict[str, Any] | None]] = {
    "probe_spare": _probe_spare,
    "drain_node": _drain_node,
    "bring_in": _bring_in,
    "gate": _gate,
    "return_node": _return_node,
    "park_spare": _park_spare,
}
"""In their order. Each gives what it found once its end is reached, and None until then; asked again, it does nothing
twice."""
SUBSTITUTION = ("probe_spare", "drain_node", "bring_in")
"""The steps whose time is the drill's: from the decision until the spare takes work."""


def _settled(
    scheduler: Scheduler, name: str, reached: Callable[[SchedulerNode], bool], act: Callable[[], None]
) -> dict[str, Any] | None:
    """Ask for it unless it is so, then look: asking has been heard before it has taken effect."""
    if not reached(scheduler.node(name)):
        act()
    node = scheduler.node(name)
    return {"state": node.state, "reason": node.reason} if reached(node) else None


def _fit(drill: Drill, name: str) -> dict[str, Any] | None:
    """The checks of a node, once its agent has answered. Raises Unfit."""
    agent = Agent.objects.filter(pk=drill.facts["agents"][name]).first()
    if agent is None:
        raise Unfit("its agent is no longer known, so nobody can say whether it is")
    task = tasks.tasks_of(OWNER_KIND, drill.pk).filter(agent=agent).first()
    if task is None:
        task = tasks.create_task(
            agent=agent, kind=TaskKind.PROBE, params=ProbeParams(), owner_kind=OWNER_KIND, owner_id=drill.pk
        )
    if task.outcome == "":
        return None
    if task.outcome != AgentTask.Outcome.DONE:
        raise Unfit(f"its agent did not answer: {task.error or task.outcome}")
    like = selectors.agents_by_node(drill.cluster).get(drill.facts["node"])
    needs, own = selectors.needs_of(drill.cluster, name, like=like, gpu_count=drill.facts.get("gpu_count"))
    found = fitness.checks(tasks.body(task, ProbeBody), needs, own)
    problem = fitness.unfit(found)
    if problem:
        raise Unfit(problem)
    return {"checks": [{"name": one.name, "is_fit": one.is_fit, "detail": one.detail} for one in found]}


# -- the end -----------------------------------------------------------------------------------------------------------
def _unfit(drill: Drill, step: DrillStep, problem: str) -> bool:
    """A spare that is not fit changes nothing. A node that is not fit to return stays out, and the spare in."""
    name = drill.facts["spare"] if step.what == "probe_spare" else drill.facts["node"]
    updates: dict[str, Any] = {}
    if step.what == "gate":
        try:
            required_scheduler(drill.cluster).drain(name, f"{UNFIT_REASON}: {problem}"[:200])
        except SchedulerError as error:
            log.warning("drill %s: %s", drill.pk, error)
        updates = {"restore_node": "", "park_node": ""}
        Drill.objects.filter(pk=drill.pk).update(**updates)
        drill.restore_node = drill.park_node = ""
    stays = " It stays drained, and the spare in." if updates else ""
    return finish(drill, Drill.Outcome.FAILED, f"{name} is not fit: {problem}.{stays}", **_times(drill))


def _overdue(drill: Drill, step: DrillStep, why: str) -> bool:
    if drill.deadline_at is None or timezone.now() <= drill.deadline_at:
        return False
    words = step.what.replace("_", " ")
    return finish(drill, Drill.Outcome.FAILED, f"Not done by the deadline: {words}.{why}", **_times(drill))


def _times(drill: Drill) -> dict[str, Any]:
    """The drill's seconds, once the spare is in."""
    steps = {step.what: step for step in DrillStep.objects.filter(drill=drill)}
    first, last = steps[SUBSTITUTION[0]], steps[SUBSTITUTION[-1]]
    if first.began_at is None or last.ended_at is None:
        return {}
    return {"seconds": (last.ended_at - first.began_at).total_seconds()}


def _conclude(drill: Drill) -> bool:
    """Everything is as it was before: nothing is left to bring back."""
    Drill.objects.filter(pk=drill.pk).update(restore_node="", park_node="")
    drill.restore_node = drill.park_node = ""
    times = _times(drill)
    reason = f"{drill.facts['spare']} stood in for {drill.facts['node']}, which passed the gate and is back."
    in_time = objective_state(times["seconds"], drill.objective_seconds)
    return finish(drill, Drill.Outcome.PASSED, reason, objective_state=in_time, **times)
