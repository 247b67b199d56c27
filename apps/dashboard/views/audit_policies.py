"""Audit policies: what is audited when, and what came of each round."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.models import Role
from apps.audits import policies, rounds, selectors
from apps.audits.models import AuditPolicy
from apps.checkpoints.models import TrainingRun
from apps.core.errors import ApplicationError, Conflict, InvalidInput
from apps.dashboard import pages
from apps.dashboard.audit_policy_forms import AuditPolicyForm
from apps.dashboard.lists.state import context_of
from apps.dashboard.lists.work import AUDIT_POLICIES
from apps.dashboard.views.policies import MAX_CHOICES, next_times_of
from apps.fleet.access import scoped, visible_clusters
from apps.fleet.models import Cluster
from apps.storage.models import StorageTier

_FIELDS = {"sample_ratio": "sample_percent", "max_bytes_per_second": "max_mb_per_second"}


@pages.page
def audit_policy_list(request: HttpRequest) -> HttpResponse:
    context = context_of(AUDIT_POLICIES, request)
    context["can_operate_some"] = pages.may_operate_somewhere(request)
    return render(request, "dashboard/audit_policies.html", context)


@pages.page
def audit_policy_create(request: HttpRequest) -> HttpResponse:
    clusters = list(visible_clusters(request).order_by("name")[:MAX_CHOICES])
    names = [(cluster.pk, cluster.name) for cluster in clusters]
    form = AuditPolicyForm(request.POST or None, clusters=names, **_choices(request))
    if request.method == "POST" and form.is_valid():
        cluster = next(one for one in clusters if one.pk == form.cleaned_data["cluster"])
        actor = pages.authorize(request, Role.OPERATOR, cluster.pk)
        try:
            details = {**form.details(), **_rows(request, form)}
            policy = policies.create_policy(cluster=cluster, actor=actor, **details)
        except (InvalidInput, Conflict) as error:
            form.add_error(_field_of(error, form), error.detail)
        else:
            messages.success(request, f"Audit policy {policy.name} is saved.")
            return redirect("audit-policy", policy_id=policy.pk)
    context = {"form": form, "clusters": clusters}
    status = 422 if request.method == "POST" else 200
    return render(request, "dashboard/audit_policy_form.html", context, status=status)


@pages.page
def audit_policy_detail(request: HttpRequest, policy_id: str) -> HttpResponse:
    """One policy with its rounds; for operators also its form."""
    policy = _policy(request, policy_id)
    can_operate = pages.operates(request, policy.cluster_id)
    choices = _choices(request, policy.cluster) if can_operate else {"runs": [], "tiers": []}
    form = AuditPolicyForm(request.POST or None, initial=AuditPolicyForm.initial_of(policy), **choices)
    context = {"form": form, "can_operate": can_operate, "policy": policy, "rounds": selectors.rounds(policy)}
    context["next_times"] = next_times_of(policy)
    if request.method != "POST":
        return render(request, "dashboard/audit_policy.html", context)
    actor = pages.authorize(request, Role.OPERATOR, policy.cluster_id)
    if form.is_valid():
        try:
            changes = {**form.details(), **_rows(request, form)}
            policies.update_policy(policy=policy, changes=changes, actor=actor)
        except (InvalidInput, Conflict) as error:
            form.add_error(_field_of(error, form), error.detail)
        else:
            messages.success(request, f"Audit policy {policy.name} is saved.")
            return redirect("audit-policy", policy_id=policy.pk)
    return render(request, "dashboard/audit_policy.html", context, status=422)


@pages.action
def audit_policy_run(request: HttpRequest, policy_id: str) -> HttpResponse:
    policy = _policy(request, policy_id)
    actor = pages.authorize(request, Role.OPERATOR, policy.cluster_id)
    row = rounds.run_policy(policy=policy, actor=actor)
    messages.success(request, f"{row.audit_count} audits have begun or wait for their turn.")
    return redirect("audit-policy", policy_id=policy.pk)


@pages.page
def audit_policy_delete(request: HttpRequest, policy_id: str) -> HttpResponse:
    policy = _policy(request, policy_id)
    actor = pages.authorize(request, Role.OPERATOR, policy.cluster_id)
    if request.method != "POST":
        return render(request, "dashboard/audit_policy_delete.html", {"policy": policy})
    name = policy.name
    policies.delete_policy(policy=policy, actor=actor)
    messages.success(request, f"Audit policy {name} is deleted. Its audits stay.")
    return redirect("audit-policies")


def _policy(request: HttpRequest, policy_id: str) -> AuditPolicy:
    policy: AuditPolicy = pages.find(request, selectors.policies(), "cluster", policy_id)
    return policy


def _choices(request: HttpRequest, cluster: Cluster | None = None) -> dict[str, Any]:
    runs = scoped(request, TrainingRun.objects.select_related("cluster"), "cluster").order_by("name")
    tiers = scoped(request, StorageTier.objects.select_related("cluster"), "cluster").order_by("speed_order", "name")
    if cluster is not None:
        runs, tiers = runs.filter(cluster=cluster), tiers.filter(cluster=cluster)
    return {
        kind: [(row.pk, f"{row.name} ({row.cluster.name})") for row in rows[:MAX_CHOICES]]
        for kind, rows in (("runs", runs), ("tiers", tiers))
    }


def _rows(request: HttpRequest, form: AuditPolicyForm) -> dict[str, Any]:
    wanted = form.cleaned_data
    run = scoped(request, TrainingRun.objects.all(), "cluster").filter(pk=wanted["run"]).first()
    return {"run": run, "tier": scoped(request, StorageTier.objects.all(), "cluster").filter(pk=wanted["tier"]).first()}


def _field_of(error: ApplicationError, form: AuditPolicyForm) -> str | None:
    name = (error.pointer or "").strip("/")
    name = _FIELDS.get(name, name)
    return name if name in form.fields else None
