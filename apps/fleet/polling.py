"""One poll: heartbeat, fencing of other boots, hand-out of tasks and word of cancellation."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from muster_agent.protocol.wire import SUPPORTED_PROTOCOLS, PollReply, PollRequest, TaskOrder

from apps.core.errors import Conflict, NotSignedIn
from apps.core.transitions import transition
from apps.core.wakeups import announce
from apps.fleet import handout, tasks
from apps.fleet.models import Agent, AgentTask, Node

CLONE_WINDOW_SECONDS = 300
CLONE_LIMIT = 3
MAX_SLOTS = 1000
REMEMBERED_BOOTS = 16
INCOMPATIBLE_POLL_SECONDS = 60.0
SUPERSEDED = (
    "Another process polls with this agent's credential and has taken over. Stop one of them; "
    "a copied node needs its own join."
)


def begin(*, agent: Agent, request: PollRequest) -> PollReply:
    """Take the heartbeat, then look for work. Raises Conflict `superseded` for a boot that another one fenced."""
    if not _admit_boot(agent, request.boot_id):
        _refuse_fenced(agent)
    _heartbeat(agent, request)
    return _hand_out(agent, request)


def look(*, agent_id: str, request: PollRequest) -> PollReply | None:
    """What has come up since; None while there is nothing. A newer poll of the same boot ends this one, empty."""
    agent = Agent.objects.get(pk=agent_id)
    if agent.state == Agent.State.REVOKED:
        raise NotSignedIn("This agent was revoked; join again with a new join token.", code="credential_revoked")
    if agent.boot_id != request.boot_id:
        _refuse_fenced(agent)
    if agent.poll_seq > request.seq:
        return _reply(agent, (), ())
    reply = _hand_out(agent, request)
    return reply if is_news(reply, request) else None


def with_news(waiting: list[tuple[str, PollRequest]]) -> set[tuple[str, int]]:
    """Which of these waiting polls, as (agent's id, `seq`), `look` may have something for. Two queries for all."""
    ids = {agent_id for agent_id, _request in waiting}
    agents = {agent.pk: agent for agent in Agent.objects.filter(pk__in=ids)}
    work: dict[str, set[str]] = {}
    states = (AgentTask.State.QUEUED, AgentTask.State.CANCELLING)
    for agent_id, state in AgentTask.objects.filter(agent__in=ids, state__in=states).values_list("agent_id", "state"):
        work.setdefault(agent_id, set()).add(state)
    return {
        (agent_id, request.seq)
        for agent_id, request in waiting
        if agent_id not in agents or _may_have_news(agents[agent_id], request, work.get(agent_id, set()))
    }


def _may_have_news(agent: Agent, request: PollRequest, work: set[str]) -> bool:
    return (
        agent.state == Agent.State.REVOKED
        or agent.boot_id != request.boot_id
        or agent.poll_seq > request.seq
        or (agent.drain_requested_at is not None and not request.draining)
        or (AgentTask.State.QUEUED in work and request.free_slots > 0)
        or AgentTask.State.CANCELLING in work
    )


def is_news(reply: PollReply, request: PollRequest) -> bool:
    """Whether the agent should hear this now rather than at the end of the wait."""
    known = {running.task_id for running in request.running if running.cancelling}
    return bool(reply.tasks) or bool(set(reply.cancel) - known) or (reply.drain and not request.draining)


# -- boots -------------------------------------------------------------------------------------------------------------
def _admit_boot(agent: Agent, boot_id: str) -> bool:
    if boot_id == agent.boot_id:
        return True
    if boot_id in agent.fenced_boots:
        return False
    fenced = [*agent.fenced_boots, agent.boot_id][-REMEMBERED_BOOTS:] if agent.boot_id else agent.fenced_boots
    with transaction.atomic():
        taken = Agent.objects.filter(pk=agent.pk, boot_id=agent.boot_id).update(
            boot_id=boot_id, fenced_boots=fenced, poll_seq=0
        )
        if taken and agent.boot_id:
            tasks.release_of_old_boot(agent)
            announce(f"agent:{agent.pk}")
    agent.refresh_from_db()
    return bool(taken) or agent.boot_id == boot_id


def _refuse_fenced(agent: Agent) -> None:
    """A fenced boot that still polls is a second machine with one credential: thrice in 5 minutes fences all."""
    now = time.time()
    changes = [at for at in agent.boot_changes if now - at < CLONE_WINDOW_SECONDS] + [now]
    Agent.objects.filter(pk=agent.pk).update(boot_changes=changes)
    if len(changes) >= CLONE_LIMIT:
        reason = "two machines use one credential: each was fenced; enrol each with its own join token"
        transition(agent, old=agent.state, new=Agent.State.REVOKED, reason=reason)
        announce(f"agent:{agent.pk}")
    raise Conflict(SUPERSEDED, code="superseded")


# -- heartbeat ---------------------------------------------------------------------------------------------------------
@transaction.atomic
def _heartbeat(agent: Agent, request: PollRequest) -> None:
    values: dict[str, Any] = {
        "last_seen_at": timezone.now(),
        "poll_seq": request.seq,
        "free_slots": _slots(request),
        "protocol": max(request.protocol, 0),
        "clock_offset_seconds": request.clock_offset_seconds,
    }
    if request.agent_version:
        values["version"] = request.agent_version[:32]
    if request.facts is not None:
        Node.objects.filter(pk=agent.node_id).update(facts=request.facts)
        roots = request.facts.get("roots")
        values["roots"] = [root for root in roots if isinstance(root, str)] if isinstance(roots, list) else []
    Agent.objects.filter(pk=agent.pk).update(**values)
    for name, value in values.items():
        setattr(agent, name, value)
    _follow_state(agent, request)


def _follow_state(agent: Agent, request: PollRequest) -> None:
    new = state_after_poll(agent, request)
    if new == agent.state:
        return
    reasons = {Agent.State.INCOMPATIBLE: f"it speaks protocol {request.protocol}"}
    if not transition(agent, old=agent.state, new=new, reason=reasons.get(new, "poll")):
        agent.refresh_from_db()  # somebody else moved it; the next poll settles it


def state_after_poll(agent: Agent, request: PollRequest) -> Agent.State:
    """The state that a heartbeat leads to. Approval and revocation are people's; a poll never undoes them."""
    current = Agent.State(agent.state)
    if current in (Agent.State.PENDING, Agent.State.REVOKED):
        return current
    if request.protocol not in SUPPORTED_PROTOCOLS:
        return Agent.State.INCOMPATIBLE
    if request.draining or agent.drain_requested_at is not None:
        return Agent.State.DRAINING
    return Agent.State.BUSY if request.running else Agent.State.ONLINE


# -- work --------------------------------------------------------------------------------------------------------------
def _hand_out(agent: Agent, request: PollRequest) -> PollReply:
    may_claim = agent.state in (Agent.State.ONLINE, Agent.State.BUSY) and agent.drain_requested_at is None
    slots = _slots(request)
    claimed = tasks.claim(agent=agent, slots=slots) if may_claim and slots else []
    cancel = AgentTask.objects.filter(agent=agent, state=AgentTask.State.CANCELLING).values_list("pk", flat=True)
    return _reply(agent, tuple(_order(task) for task in claimed), tuple(cancel))


def _slots(request: PollRequest) -> int:
    return min(max(request.free_slots, 0), MAX_SLOTS)


def _order(task: AgentTask) -> TaskOrder:
    return TaskOrder(
        task_id=task.pk,
        attempt=task.attempt,
        kind=task.kind,
        params=handout.params_for(task),
        lease_seconds=float(settings.TASK_LEASE_SECONDS),
        has_barrier=task.group_id is not None,
    )


def _reply(agent: Agent, orders: tuple[TaskOrder, ...], cancel: tuple[str, ...]) -> PollReply:
    return PollReply(
        server_unix_seconds=time.time(),
        tasks=orders,
        cancel=cancel,
        drain=agent.drain_requested_at is not None,
        state=agent.state,
        next_poll_seconds=INCOMPATIBLE_POLL_SECONDS if agent.state == Agent.State.INCOMPATIBLE else 0.0,
    )
