"""Enrolment: a join token buys a node its agent and a credential."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone
from muster_agent.protocol.wire import SUPPORTED_PROTOCOLS, EnrolRequest

from apps.accounts import secrets
from apps.accounts.services import log_activity
from apps.core.errors import Conflict, Forbidden, InvalidInput, NotSignedIn
from apps.core.transitions import record, transition
from apps.fleet.models import Agent, JoinToken, Node

_NODE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_REPLACEABLE = (Agent.State.LOST, Agent.State.REVOKED, Agent.State.PENDING, Agent.State.INCOMPATIBLE)
"""Nobody works under these, so another machine may take the node's name over."""


def enrol(*, request: EnrolRequest, address: str) -> tuple[Agent, str]:
    """The node's agent and its credential, shown once. The same token, machine and nonce again give the same two.

    `address` is where the request came from. Each way a token can be wrong is an error of its own.
    """
    _check_request(request)
    token = _usable_token(request.join_token, address)
    try:
        return _enrol(request, token, address)
    except IntegrityError as error:  # two requests made the node at once; the loser asks again
        raise Conflict("This node is being enrolled right now; try again.", code="enrolment_races") from error


@transaction.atomic
def _enrol(request: EnrolRequest, token: JoinToken, address: str) -> tuple[Agent, str]:
    node = Node.objects.filter(cluster_id=token.cluster_id, name=request.node_name).first()
    agent = Agent.objects.filter(node=node).first() if node is not None else None
    repeated = agent is not None and _is_same_enrolment(agent, request) and agent.state != Agent.State.REVOKED
    if agent is not None and not repeated:
        _check_replaceable(agent, request)
    if not repeated:
        _use(token)
    if node is None:
        node = Node.objects.create(cluster_id=token.cluster_id, name=request.node_name, created_at=timezone.now())
    credential = _credential(request)
    agent = _written(agent, node, request, token, credential, repeated=repeated)
    detail = {"join_token": token.pk, "address": address, "node": request.node_name, "repeated": repeated}
    log_activity(
        actor=f"join token {token.pk}",
        action="agent.enrol",
        target_kind="agent",
        target_id=agent.pk,
        cluster_id=token.cluster_id,
        detail=detail,
    )
    return agent, credential


def _written(
    agent: Agent | None, node: Node, request: EnrolRequest, token: JoinToken, credential: str, *, repeated: bool
) -> Agent:
    values: dict[str, Any] = {
        "machine_id": request.machine_id,
        "enrol_nonce": secrets.digest(request.nonce),
        "credential_sha256": secrets.digest(credential),
        "version": request.agent_version[:32],
        "roots": _roots(request.facts),
        "enrolled_at": timezone.now(),
    }
    Node.objects.filter(pk=node.pk).update(facts=request.facts)
    state = Agent.State.PENDING if token.max_uses > 1 else Agent.State.ONLINE
    if agent is None:
        agent = Agent.objects.create(node=node, state=state, **values)
        record("agent", agent.pk, old="", new=state, reason=f"enrolled with join token {token.pk}")
        return agent
    Agent.objects.filter(pk=agent.pk).update(**values)
    if not repeated and agent.state != state:
        transition(agent, old=agent.state, new=state, reason=f"enrolled again with join token {token.pk}")
    agent.refresh_from_db()
    return agent


def _is_same_enrolment(agent: Agent, request: EnrolRequest) -> bool:
    return agent.enrol_nonce == secrets.digest(request.nonce) and agent.machine_id == request.machine_id


def _credential(request: EnrolRequest) -> str:
    """From two secrets of the request, neither kept here: a copy of it that was held up on the way, and arrives when
    the agent works already, buys the credential that the agent has, rather than another in its place."""
    return secrets.derived_secret("mag", key=request.join_token, message=f"{request.machine_id}\n{request.nonce}")


def _check_replaceable(agent: Agent, request: EnrolRequest) -> None:
    if agent.machine_id == request.machine_id or agent.state in _REPLACEABLE:
        return
    raise Conflict(
        f"Node {request.node_name} is enrolled from another machine and its agent is {agent.state}. "
        "Choose another --name, or have an admin revoke that agent first.",
        code="node_name_taken",
    )


def _use(token: JoinToken) -> None:
    """Take one use, compare-and-set: of two nodes that race for the last one, exactly one gets it."""
    taken = JoinToken.objects.filter(pk=token.pk, revoked_at=None, uses__lt=F("max_uses")).update(uses=F("uses") + 1)
    if not taken:
        raise Conflict("This join token has been used up; ask an admin for another.", code="join_token_used")


def _usable_token(secret: str, address: str) -> JoinToken:
    token = JoinToken.objects.filter(secret_sha256=secrets.digest(secret)).first()
    if token is None:
        raise NotSignedIn(
            "This join token is not known here; check it and the server's address.", code="join_token_unknown"
        )
    if token.revoked_at is not None:
        raise Forbidden("This join token was revoked; ask an admin for another.", code="join_token_revoked")
    if token.expires_at <= timezone.now():
        raise Forbidden("This join token has expired; ask an admin for another.", code="join_token_expired")
    if token.cidr and not _is_inside(address, token.cidr):
        raise Forbidden(
            f"This join token admits only addresses in {token.cidr}; this request came from {address}.",
            code="join_token_address",
        )
    return token


def _is_inside(address: str, cidr: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed) in ipaddress.ip_network(cidr, strict=False)


def _check_request(request: EnrolRequest) -> None:
    if not _NODE_NAME.fullmatch(request.node_name):
        raise InvalidInput(
            "A node name has letters, digits, dots, hyphens and underscores, at most 253.", pointer="/node_name"
        )
    for field in ("machine_id", "nonce"):
        if not 1 <= len(getattr(request, field)) <= 128:
            raise InvalidInput(f"{field} has 1 to 128 characters.", pointer=f"/{field}")
    if not set(request.protocols) & set(SUPPORTED_PROTOCOLS):
        raise Conflict(
            f"This control plane speaks protocol {', '.join(map(str, SUPPORTED_PROTOCOLS))}, the agent "
            f"{', '.join(map(str, request.protocols)) or 'none'}; update the older of the two.",
            code="incompatible",
        )


def _roots(facts: dict[str, Any]) -> list[str]:
    roots = facts.get("roots")
    return [root for root in roots if isinstance(root, str)] if isinstance(roots, list) else []
