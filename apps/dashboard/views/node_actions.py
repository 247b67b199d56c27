"""`/clusters/ID/nodes/NAME/...`: parking a node as a spare, and bringing one back. Each asks before it acts."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.models import Role
from apps.core.errors import Conflict
from apps.dashboard import pages
from apps.drills import node_actions
from apps.drills.models import NodeAction
from apps.fleet import cluster_inventory
from apps.fleet.inventory import InventoryNode
from apps.fleet.models import Cluster


@pages.page
def node_action(request: HttpRequest, cluster_id: str, node_name: str, what: str) -> HttpResponse:
    """What it would do, and, once confirmed, the doing."""
    cluster: Cluster = pages.find(request, Cluster.objects.all(), "pk", cluster_id)
    actor = pages.authorize(request, Role.OPERATOR, cluster.pk)
    if what not in NodeAction.What.values:
        raise Http404(f"Nothing is called {what} here.")
    node = _node(cluster, node_name)
    context: dict[str, Any] = {
        "cluster": cluster,
        "node": node,
        "what": what,
        "jobs": _jobs(cluster, node_name),
    }
    if request.method != "POST":
        return render(request, "dashboard/node_action.html", context)
    try:
        node_actions.request_action(cluster=cluster, node_name=node_name, what=what, actor=actor)
    except Conflict as error:
        return render(request, "dashboard/node_action.html", {**context, "refused": error.detail}, status=409)
    messages.success(request, f"A worker is at {node_name}; load this page again in a moment.")
    return redirect("cluster", cluster_id=cluster.pk)


def _node(cluster: Cluster, name: str) -> InventoryNode:
    """As of the last inventory; one that it does not have cannot be acted on from here."""
    whole = cluster_inventory.newest_whole(cluster)
    nodes = cluster_inventory.contents_of(whole).nodes if whole else ()
    found = next((node for node in nodes if node.name == name and node.scheduler), None)
    if found is None:
        raise Http404(f"The scheduler of {cluster.name} had no node {name} at its last inventory.")
    return found


def _jobs(cluster: Cluster, name: str) -> list[str]:
    whole = cluster_inventory.newest_whole(cluster)
    jobs = cluster_inventory.contents_of(whole).jobs if whole else ()
    return [f"{job.job_id} {job.name}" for job in jobs if name in job.nodes]
