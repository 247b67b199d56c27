"""Clusters: the list, and one with what it consists of by its scheduler and its agents, and what changed."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.models import Role
from apps.core.errors import InvalidInput
from apps.dashboard import pages
from apps.dashboard.forms import ClusterCostForm
from apps.dashboard.lists.fleet import CLUSTERS
from apps.dashboard.lists.state import context_of
from apps.drills.models import NodeAction
from apps.fleet import cluster_inventory, services
from apps.fleet.models import Cluster, ClusterInventory
from apps.recovery.advice import REPAIR_HOURS
from apps.recovery.advisor import spares_needed

ROWS = 500
HISTORY = 20
ACTIONS = 10


@pages.page
def cluster_list(request: HttpRequest) -> HttpResponse:
    context = context_of(CLUSTERS, request)
    administered = pages.operable(request, {cluster.pk for cluster in context["page"].items}, Role.ADMIN)
    for cluster in context["page"].items:
        cluster.can_administer = cluster.pk in administered
    return render(request, "dashboard/clusters.html", context)


@pages.page
def cluster_detail(request: HttpRequest, cluster_id: str) -> HttpResponse:
    cluster: Cluster = pages.find(request, Cluster.objects.all(), "pk", cluster_id)
    newest, whole = cluster_inventory.newest(cluster), cluster_inventory.newest_whole(cluster)
    history = ClusterInventory.objects.filter(cluster=cluster, change_count__gt=0).defer("contents")
    context = {
        "cluster": cluster,
        "newest": newest,
        "whole": whole,
        "node_actions": list(NodeAction.objects.filter(cluster=cluster).order_by("-created_at")[:ACTIONS]),
        "history": list(history.order_by("-taken_at")[:HISTORY]),
        "can_operate": pages.operates(request, cluster.pk, Role.OPERATOR),
        "cost_form": _cost_form(cluster) if pages.operates(request, cluster.pk, Role.ADMIN) else None,
        **_contents(cluster, whole),
    }
    return render(request, "dashboard/cluster.html", context)


def _cost_form(cluster: Cluster) -> ClusterCostForm:
    return ClusterCostForm(initial={"gpu_count": cluster.gpu_count, "gpu_hour_cost": cluster.gpu_hour_cost})


@pages.action
def cluster_cost(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """What a GPU-hour costs, and how many GPUs there are."""
    cluster: Cluster = pages.find(request, Cluster.objects.all(), "pk", cluster_id)
    actor = pages.authorize(request, Role.ADMIN, cluster.pk)
    form = ClusterCostForm(request.POST)
    if not form.is_valid():
        raise InvalidInput("; ".join(f"{form[name].label}: {errors[0]}" for name, errors in form.errors.items()))
    services.update_cluster(cluster=cluster, changes=form.cleaned_data, actor=actor)
    messages.success(request, f"The costs of {cluster.name} are saved.")
    return redirect("cluster", cluster_id=cluster.pk)


def _contents(cluster: Cluster, whole: ClusterInventory | None) -> dict[str, Any]:
    """The rows of the tables: nodes with something wrong first."""
    if whole is None:
        return {}
    found = cluster_inventory.contents_of(whole)
    ids = dict(cluster.nodes.values_list("name", "pk"))
    ordered = sorted(found.nodes, key=lambda node: (not node.problems, node.agent is not None, node.name))
    return {
        "nodes": [(node, ids.get(node.name)) for node in ordered[:ROWS]],
        "partitions": found.partitions,
        "spares": [node.name for node in found.nodes if node.scheduler and node.scheduler.parked],
        "spares_needed": spares_needed(len(found.nodes), REPAIR_HOURS),
        "jobs": found.jobs[:ROWS],
        "row_limit": ROWS,
    }


@pages.action
def cluster_take_inventory(request: HttpRequest, cluster_id: str) -> HttpResponse:
    cluster: Cluster = pages.find(request, Cluster.objects.all(), "pk", cluster_id)
    actor = pages.authorize(request, Role.OPERATOR, cluster.pk)
    cluster_inventory.request_inventory(cluster=cluster, actor=actor)
    messages.success(request, f"A worker asks the scheduler of {cluster.name} now; load this page again in a moment.")
    return redirect("cluster", cluster_id=cluster.pk)
