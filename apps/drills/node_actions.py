"""Parking a node as a spare, and bringing one back through the gate: asked for by a person, done by a worker.

Parking drains the node (what runs there runs on) with the reason by which Muster knows its spares. A node comes back
only once its agent has said that it is fit; one that is not stays out, with its checks to be read.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from muster_agent.protocol.probe import ProbeBody, ProbeParams
from muster_agent.protocol.wire import TaskKind

from apps.accounts.services import log_activity
from apps.core import transitions
from apps.core.dispatch import wake_owner
from apps.core.errors import Conflict
from apps.core.transitions import transition
from apps.core.wakeups import announce
from apps.drills import fitness, safety, selectors
from apps.drills.models import Drill, NodeAction
from apps.fleet import cluster_inventory, tasks
from apps.fleet.models import Agent, AgentTask, Cluster
from apps.fleet.schedulers.access import required_scheduler
from apps.fleet.schedulers.base import PARKED_REASON, Scheduler, SchedulerError, SchedulerNode

OWNER_KIND = "node_action"
DEADLINE = timedelta(minutes=3)
PACE = timedelta(seconds=1)
_MAX_STEPS = 10


@transaction.atomic
def request_action(*, cluster: Cluster, node_name: str, what: str, actor: str) -> NodeAction:
    """Park `node_name` or bring it back. Raises Conflict where the cluster has no scheduler, its rules forbid it, or
    something is at work on the node."""
    if cluster.scheduler == Cluster.Scheduler.NONE:
        raise Conflict(f"{cluster.name} has no scheduler that could do it.", code="no_scheduler")
    if what == NodeAction.What.PARK:
        _require_parking_allowed(cluster)
    drill = Drill.objects.filter(cluster=cluster, restore_node=node_name).first()
    if drill is not None:
        raise Conflict(f"Drill {drill.pk} has taken {node_name} out, and brings it back itself.", code="node_busy")
    now = timezone.now()
    try:
        with transaction.atomic():
            action = NodeAction.objects.create(
                cluster=cluster,
                node_name=node_name,
                what=what,
                requested_by=actor,
                created_at=now,
                deadline_at=now + DEADLINE,
                next_attempt_at=now,
            )
    except IntegrityError as problem:
        raise Conflict(f"Something is at work on {node_name} already: wait for it.", code="node_busy") from problem
    transitions.record("nodeaction", action.pk, old="", new=action.state, actor=actor)
    detail = {"node": node_name, "what": what}
    log_activity(
        actor=actor,
        action="node.act",
        target_kind="cluster",
        target_id=cluster.pk,
        cluster_id=cluster.pk,
        detail=detail,
    )
    wake_owner(OWNER_KIND, action.pk)
    return action


def _require_parking_allowed(cluster: Cluster) -> None:
    stopped = selectors.stopped_reason()
    if stopped:
        raise Conflict(stopped, code="drills_stopped")
    safety.require_disruption_allowed(cluster)


# -- step by step ------------------------------------------------------------------------------------------------------
def advance(action_id: str) -> None:
    """Look at the action and do whatever is due now. Calling it twice, or from two workers, is harmless."""
    for _step in range(_MAX_STEPS):
        action = NodeAction.objects.select_related("cluster", "agent").filter(pk=action_id).first()
        if action is None or action.state == NodeAction.State.FINISHED:
            return
        NodeAction.objects.filter(pk=action.pk, state=action.state).update(next_attempt_at=timezone.now() + PACE)
        if not _moved(action):
            return


def due(now: datetime | None = None) -> list[str]:
    """Actions whose next look has come."""
    rows = NodeAction.objects.filter(next_attempt_at__lte=now or timezone.now())
    return list(rows.order_by("next_attempt_at").values_list("pk", flat=True)[:500])


def wake_due(now: datetime | None = None) -> None:
    """The tick's share of the sweep."""
    for action_id in due(now):
        wake_owner(OWNER_KIND, action_id)


def _moved(action: NodeAction) -> bool:
    try:
        return _STEPS[NodeAction.State(action.state)](action, required_scheduler(action.cluster))
    except SchedulerError as problem:
        return _overdue(action, f" The scheduler: {problem}")


def _begin(action: NodeAction, scheduler: Scheduler) -> bool:
    node = scheduler.node(action.node_name)
    if action.what == NodeAction.What.PARK:
        if node.usable:
            return _to_acting(action)
        why = f" ({node.reason})" if node.reason else ""
        return _finish(action, NodeAction.Outcome.REFUSED, f"It is {node.state}{why} already.")
    if node.usable:
        return _finish(action, NodeAction.Outcome.REFUSED, "It is in use already.")
    agent = selectors.agents_by_node(action.cluster).get(action.node_name)
    if agent is None:
        return _finish(
            action, NodeAction.Outcome.REFUSED, "No agent is online there, so nobody can say whether it is fit."
        )
    with transaction.atomic():
        moved = transition(action, old=NodeAction.State.ASKED, new=NodeAction.State.CHECKING, agent=agent)
        if moved:
            tasks.create_task(
                agent=agent, kind=TaskKind.PROBE, params=ProbeParams(), owner_kind=OWNER_KIND, owner_id=action.pk
            )
    return moved


def _check(action: NodeAction, scheduler: Scheduler) -> bool:
    """The gate: what the node's agent says of it, against what the others are."""
    task = tasks.tasks_of(OWNER_KIND, action.pk).first()
    if task is not None and task.outcome == "":
        return _overdue(action, " Its agent has not answered.")
    if task is None or task.outcome != AgentTask.Outcome.DONE:
        why = (task.error or task.outcome) if task else "it is no longer known"
        return _finish(action, NodeAction.Outcome.REFUSED, f"Its agent did not say whether it is fit: {why}.")
    node = scheduler.node(action.node_name)
    peer = _peer(action, node, scheduler)
    needs, own = selectors.needs_of(action.cluster, action.node_name, like=peer, gpu_count=node.gpu_count)
    found = fitness.checks(tasks.body(task, ProbeBody), needs, own)
    checks = [{"name": one.name, "is_fit": one.is_fit, "detail": one.detail} for one in found]
    problem = fitness.unfit(found)
    if problem:
        return _finish(action, NodeAction.Outcome.REFUSED, f"It is not fit: {problem}.", checks=checks)
    return _to_acting(action, checks=checks)


def _peer(action: NodeAction, node: SchedulerNode, scheduler: Scheduler) -> Agent | None:
    """The agent of a node in use that this one should be like: of its GPU count where there is one."""
    agents = selectors.agents_by_node(action.cluster)
    used = [one for one in scheduler.snapshot().nodes if one.usable and one.name in agents and one.name != node.name]
    nearest = min(used, key=lambda one: (one.gpu_count != node.gpu_count, one.name), default=None)
    return agents[nearest.name] if nearest else None


def _act(action: NodeAction, scheduler: Scheduler) -> bool:
    """Ask for it unless it is so, then look: asking has been heard before it has taken effect."""
    wants_use = action.what == NodeAction.What.BRING_BACK
    if scheduler.node(action.node_name).usable != wants_use:
        if wants_use:
            scheduler.resume(action.node_name)
        else:
            scheduler.drain(action.node_name, PARKED_REASON)
    node = scheduler.node(action.node_name)
    if node.usable != wants_use:
        return _overdue(action, f" It is {node.state}.")
    said = "It takes work again." if wants_use else f"It is a spare now: {node.state}."
    return _finish(action, NodeAction.Outcome.DONE, said)


_STEPS: dict[NodeAction.State, Callable[[NodeAction, Scheduler], bool]] = {
    NodeAction.State.ASKED: _begin,
    NodeAction.State.CHECKING: _check,
    NodeAction.State.ACTING: _act,
}


def _to_acting(action: NodeAction, **updates: Any) -> bool:
    return transition(
        action, old=(NodeAction.State.ASKED, NodeAction.State.CHECKING), new=NodeAction.State.ACTING, **updates
    )


def _overdue(action: NodeAction, why: str) -> bool:
    if timezone.now() <= action.deadline_at:
        return False
    return _finish(action, NodeAction.Outcome.FAILED, f"Not done within {DEADLINE.seconds // 60} minutes.{why}")


@transaction.atomic
def _finish(action: NodeAction, outcome: NodeAction.Outcome, reason: str, **updates: Any) -> bool:
    ended = transition(
        action,
        old=(NodeAction.State.ASKED, NodeAction.State.CHECKING, NodeAction.State.ACTING),
        new=NodeAction.State.FINISHED,
        reason=f"{outcome}: {reason}",
        outcome=outcome,
        finished_at=timezone.now(),
        next_attempt_at=None,
        **updates,
    )
    if ended:
        NodeAction.objects.filter(pk=action.pk).update(reason=reason)
        tasks.cancel_owner(owner_kind=OWNER_KIND, owner_id=action.pk, reason=reason)
        cluster_inventory.request_again(action.cluster)
        announce(f"cluster:{action.cluster_id}")
    return ended
