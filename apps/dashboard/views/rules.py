"""`/clusters/ID/rules/`: what drills may do on a cluster."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from apps.accounts.models import Role
from apps.core.errors import Conflict, InvalidInput
from apps.dashboard import pages
from apps.dashboard.rules_form import RulesForm
from apps.drills import rules, safety
from apps.drills.models import Drill
from apps.fleet.models import Cluster


@pages.page
def cluster_rules(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Everybody may read them; admins change them."""
    cluster: Cluster = pages.find(request, Cluster.objects.all(), "pk", cluster_id)
    known = safety.rules_of(cluster)
    form = RulesForm(request.POST or None, initial=RulesForm.initial_of(known))
    context = {
        "cluster": cluster,
        "rules": known,
        "form": form,
        "is_admin": pages.operates(request, cluster.pk, Role.ADMIN),
        "breaker_is_open": safety.breaker_is_open(known, timezone.now()),
        "protected": form.initial["protected_runs"].splitlines(),
    }
    if request.method != "POST":
        return render(request, "dashboard/rules.html", context)
    actor = pages.authorize(request, Role.ADMIN, cluster.pk)
    try:
        if form.is_valid():
            rules.update_rules(cluster=cluster, changes=form.changes(), actor=actor)
            messages.success(request, f"The rules of {cluster.name} are saved.")
            return redirect("cluster-rules", cluster_id=cluster.pk)
    except InvalidInput as error:
        name = (error.pointer or "").strip("/")
        form.add_error(name if name in form.fields else None, error.detail)
    return render(request, "dashboard/rules.html", context, status=422)


@pages.action
def breaker_reset(request: HttpRequest, cluster_id: str) -> HttpResponse:
    cluster: Cluster = pages.find(request, Cluster.objects.all(), "pk", cluster_id)
    rules.reset_breaker(cluster=cluster, actor=pages.authorize(request, Role.ADMIN, cluster.pk))
    messages.success(request, f"Disruptive drills may start on {cluster.name} again.")
    return redirect("cluster-rules", cluster_id=cluster.pk)


@pages.action
def drill_approve(request: HttpRequest, drill_id: str) -> HttpResponse:
    drill: Drill = pages.find(request, Drill.objects.select_related("cluster"), "cluster", drill_id)
    actor = pages.authorize(request, Role.OPERATOR, drill.cluster_id)
    try:
        rules.approve(drill=drill, actor=actor)
        messages.success(request, "The drill is approved and begins.")
    except Conflict as error:
        messages.error(request, error.detail)
    return redirect("drill", drill_id=drill.pk)
