"""Nodes with their agents, join tokens, and what admins do with them."""

from __future__ import annotations

import shlex
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from apps.accounts.models import Role
from apps.core.errors import InvalidInput, NotFound
from apps.core.models import Transition
from apps.dashboard import pages
from apps.dashboard.facts import readable
from apps.dashboard.forms import JoinTokenForm
from apps.dashboard.lists.fleet import NODES
from apps.dashboard.lists.state import context_of
from apps.fleet import services
from apps.fleet.access import scoped
from apps.fleet.models import Agent, AgentTask, Cluster, JoinToken, Node
from apps.storage.paths import is_posix
from apps.storage.selectors import tiers_of

PLACEHOLDER_ROOT = "/path/to/checkpoints"
ACTIONS = {
    "approve": (services.approve_agent, "may take work now"),
    "drain": (services.drain_agent, "takes no new work"),
    "resume": (services.resume_agent, "takes work again"),
    "revoke": (services.revoke_agent, "is revoked: its credential is refused from now on"),
}


@pages.page
def node_list(request: HttpRequest) -> HttpResponse:
    context = context_of(NODES, request)
    clusters = list(scoped(request, Cluster.objects.order_by("name"), "pk")[:200])
    administered = pages.operable(request, {cluster.pk for cluster in clusters}, Role.ADMIN)
    context |= {
        "clusters": [(cluster, cluster.pk in administered) for cluster in clusters],
        "administered": [cluster for cluster in clusters if cluster.pk in administered],
        "tokens": _open_tokens(administered),
        "token_form": JoinTokenForm(),
    }
    return render(request, "dashboard/nodes.html", context)


def _open_tokens(cluster_ids: set[str]) -> list[JoinToken]:
    rows = JoinToken.objects.filter(cluster__in=cluster_ids, revoked_at=None, expires_at__gt=timezone.now())
    return [
        token for token in rows.select_related("cluster").order_by("-created_at")[:50] if token.uses < token.max_uses
    ]


@pages.page
def node_detail(request: HttpRequest, node_id: str) -> HttpResponse:
    node: Node = pages.find(request, Node.objects.select_related("cluster", "agent"), "cluster", node_id)
    agent: Agent | None = getattr(node, "agent", None)
    tasks = AgentTask.objects.filter(agent=agent).defer("params", "result", "late_results").order_by("-created_at")[:30]
    changes = Transition.objects.filter(owner_kind="agent", owner_id=agent.pk if agent else "").order_by("-at")[:30]
    context = {
        "node": node,
        "agent": agent,
        "facts": readable(node.facts),
        "tasks": list(tasks) if agent else [],
        "changes": list(changes) if agent else [],
        "can_administer": pages.operates(request, node.cluster_id, Role.ADMIN),
    }
    return render(request, "dashboard/node.html", context)


@pages.action
def agent_act(request: HttpRequest, node_id: str, verb: str) -> HttpResponse:
    """Approve, drain, resume or revoke the agent of a node."""
    node: Node = pages.find(request, Node.objects.select_related("agent"), "cluster", node_id)
    actor = pages.authorize(request, Role.ADMIN, node.cluster_id)
    agent: Agent | None = getattr(node, "agent", None)
    if verb not in ACTIONS or agent is None:
        raise NotFound(f"{node.name} has no agent that could {verb}.")
    service, told = ACTIONS[verb]
    service(agent=agent, actor=actor)
    messages.success(request, f"The agent on {node.name} {told}.")
    return redirect("node", node_id=node.pk)


@pages.page
def join_token(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Make a join token and show, this once, the exact command for the node."""
    cluster: Cluster = pages.find(request, Cluster.objects.all(), "pk", cluster_id)
    actor = pages.authorize(request, Role.ADMIN, cluster.pk)
    form = JoinTokenForm(request.POST or None)
    context: dict[str, Any] = {"cluster": cluster, "form": form}
    if request.method == "POST" and form.is_valid():
        try:
            token, secret = services.create_join_token(cluster=cluster, actor=actor, **form.cleaned_data)
            context |= {"token": token, "command": join_command(request, cluster, secret)}
        except InvalidInput as error:
            name = (error.pointer or "").strip("/")
            form.add_error(name if name in form.fields else None, error.detail)
    status = 422 if request.method == "POST" and "command" not in context else 200
    response = render(request, "dashboard/join_token.html", context, status=status)
    response["Cache-Control"] = "no-store"
    return response


def join_command(request: HttpRequest, cluster: Cluster, secret: str) -> str:
    """What to run on the node. The token goes by the environment, so that no process list shows it."""
    places = [tier.uri for tier in tiers_of(cluster) if is_posix(tier.uri)] or [PLACEHOLDER_ROOT]
    roots = " ".join(f"--root {shlex.quote(place)}" for place in places)
    server = request.build_absolute_uri("/").rstrip("/")
    joining = f"MUSTER_JOIN_TOKEN={shlex.quote(secret)} muster agent join --server {shlex.quote(server)} {roots}"
    return f"{joining} && muster agent run"


@pages.action
def join_token_revoke(request: HttpRequest, token_id: str) -> HttpResponse:
    token: JoinToken = pages.find(request, JoinToken.objects.all(), "cluster", token_id)
    actor = pages.authorize(request, Role.ADMIN, token.cluster_id)
    services.revoke_join_token(token=token, actor=actor)
    messages.success(request, "The join token is revoked: nobody joins with it from now on.")
    return redirect("nodes")


@pages.action
def cluster_disruption(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Allow or forbid disruptive drills on a cluster."""
    cluster: Cluster = pages.find(request, Cluster.objects.all(), "pk", cluster_id)
    actor = pages.authorize(request, Role.ADMIN, cluster.pk)
    allowed = request.POST.get("allow") == "yes"
    services.update_cluster(cluster=cluster, changes={"allows_disruption": allowed}, actor=actor)
    word = "allowed" if allowed else "off"
    messages.success(request, f"Disruptive drills are {word} on {cluster.name}.")
    return redirect("nodes")
