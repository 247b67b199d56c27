"""What people do with clusters, join tokens and agents."""

from __future__ import annotations

import ipaddress
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts import secrets
from apps.accounts.services import log_activity
from apps.core.errors import Conflict, InvalidInput
from apps.core.transitions import transition
from apps.core.wakeups import announce
from apps.fleet import tasks
from apps.fleet.models import Agent, AgentTask, Cluster, JoinToken

MAX_JOIN_TOKEN_HOURS = 24
MAX_JOIN_TOKEN_USES = 100_000
_CHANGEABLE = ("scheduler", "gpu_count", "gpu_hour_cost", "allows_disruption")


# -- clusters ----------------------------------------------------------------------------------------------------------
@transaction.atomic
def create_cluster(
    *,
    name: str,
    actor: str,
    scheduler: str = Cluster.Scheduler.NONE,
    gpu_count: int | None = None,
    gpu_hour_cost: Decimal | None = None,
    allows_disruption: bool = False,
) -> Cluster:
    """A new scheduler domain; names are unique."""
    if Cluster.objects.filter(name=name).exists():
        raise Conflict(f"There is already a cluster {name!r}.", pointer="/name")
    cluster = Cluster.objects.create(
        name=name,
        scheduler=scheduler,
        gpu_count=gpu_count,
        gpu_hour_cost=gpu_hour_cost,
        allows_disruption=allows_disruption,
        created_at=timezone.now(),
    )
    log_activity(
        actor=actor,
        action="cluster.create",
        target_kind="cluster",
        target_id=cluster.pk,
        cluster_id=cluster.pk,
        detail={"name": name},
    )
    return cluster


@transaction.atomic
def update_cluster(*, cluster: Cluster, changes: dict[str, Any], actor: str) -> Cluster:
    """Change some of scheduler, gpu_count, gpu_hour_cost and allows_disruption."""
    unknown = sorted(set(changes) - set(_CHANGEABLE))
    if unknown:
        raise InvalidInput(f"A cluster's {unknown[0]} cannot be changed.", pointer=f"/{unknown[0]}")
    for name, value in changes.items():
        setattr(cluster, name, value)
    cluster.save(update_fields=list(changes))
    detail = {name: str(value) if isinstance(value, Decimal) else value for name, value in changes.items()}
    log_activity(
        actor=actor,
        action="cluster.update",
        target_kind="cluster",
        target_id=cluster.pk,
        cluster_id=cluster.pk,
        detail=detail,
    )
    return cluster


# -- join tokens -------------------------------------------------------------------------------------------------------
@transaction.atomic
def create_join_token(
    *, cluster: Cluster, actor: str, max_uses: int = 1, hours: float = 24, cidr: str = ""
) -> tuple[JoinToken, str]:
    """A token and its secret, shown once. More than one use means that each agent waits for an admin's approval."""
    if not 0 < hours <= MAX_JOIN_TOKEN_HOURS:
        raise InvalidInput(
            f"A join token lives more than 0 and at most {MAX_JOIN_TOKEN_HOURS} hours.", pointer="/hours"
        )
    if not 1 <= max_uses <= MAX_JOIN_TOKEN_USES:
        raise InvalidInput(f"A join token has 1 to {MAX_JOIN_TOKEN_USES} uses.", pointer="/max_uses")
    secret, now = secrets.new_secret("mjt"), timezone.now()
    token = JoinToken.objects.create(
        cluster=cluster,
        secret_sha256=secrets.digest(secret),
        max_uses=max_uses,
        cidr=_network(cidr),
        created_by=actor,
        created_at=now,
        expires_at=now + timedelta(hours=hours),
    )
    detail = {"cluster": cluster.name, "max_uses": max_uses, "hours": hours, "cidr": token.cidr}
    log_activity(
        actor=actor,
        action="join_token.create",
        target_kind="join_token",
        target_id=token.pk,
        cluster_id=token.cluster_id,
        detail=detail,
    )
    return token, secret


@transaction.atomic
def revoke_join_token(*, token: JoinToken, actor: str) -> None:
    """Nobody joins with it from now on; who has joined stays. Revoking twice changes nothing."""
    if JoinToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
        log_activity(
            actor=actor,
            action="join_token.revoke",
            target_kind="join_token",
            target_id=token.pk,
            cluster_id=token.cluster_id,
        )
    token.refresh_from_db()


def _network(cidr: str) -> str:
    if not cidr:
        return ""
    try:
        return str(ipaddress.ip_network(cidr.strip(), strict=False))
    except ValueError as error:
        raise InvalidInput(f"{cidr!r} is no network; write it like 10.0.0.0/8.", pointer="/cidr") from error


# -- agents ------------------------------------------------------------------------------------------------------------
@transaction.atomic
def approve_agent(*, agent: Agent, actor: str) -> Agent:
    """Let an agent that joined with a fleet token take work."""
    if not transition(agent, old=Agent.State.PENDING, new=Agent.State.ONLINE, reason="approved", actor=actor):
        raise Conflict(f"Only a pending agent is approved; this one is {agent.state}.")
    return _changed(agent, "agent.approve", actor)


@transaction.atomic
def revoke_agent(*, agent: Agent, actor: str, reason: str = "") -> Agent:
    """Refuse its credential from now on (a waiting poll ends at once) and give up what it holds."""
    if agent.state == Agent.State.REVOKED:
        return agent
    reason = reason or "revoked"
    if not transition(agent, old=agent.state, new=Agent.State.REVOKED, reason=reason, actor=actor):
        raise Conflict("The agent changed just now; try again.")
    unfinished = AgentTask.objects.filter(agent=agent).exclude(state__in=AgentTask.FINISHED)
    for task in unfinished:
        if tasks.request_cancel(task=task, reason=f"its agent was revoked: {reason}"):
            tasks.give_up(task, f"its agent was revoked: {reason}")
    return _changed(agent, "agent.revoke", actor, {"reason": reason})


@transaction.atomic
def drain_agent(*, agent: Agent, actor: str) -> Agent:
    """No new work; what runs is finished or handed back. The agent stays connected."""
    if agent.state in (Agent.State.REVOKED, Agent.State.PENDING):
        raise Conflict(f"A {agent.state} agent has no work to drain.")
    if Agent.objects.filter(pk=agent.pk, drain_requested_at=None).update(drain_requested_at=timezone.now()):
        return _changed(agent, "agent.drain", actor)
    return agent


@transaction.atomic
def resume_agent(*, agent: Agent, actor: str) -> Agent:
    """Take work again after a drain."""
    if Agent.objects.filter(pk=agent.pk).exclude(drain_requested_at=None).update(drain_requested_at=None):
        return _changed(agent, "agent.resume", actor)
    return agent


def _changed(agent: Agent, action: str, actor: str, detail: dict[str, Any] | None = None) -> Agent:
    log_activity(
        actor=actor,
        action=action,
        target_kind="agent",
        target_id=agent.pk,
        cluster_id=agent.node.cluster_id,
        detail=detail,
    )
    announce(f"agent:{agent.pk}")
    agent.refresh_from_db()
    return agent
