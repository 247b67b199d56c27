"""Retention policies: what stays on a fast tier, what moves down, and the plan before anything acts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from apps.accounts.models import Role
from apps.audits.models import AuditPolicy
from apps.checkpoints.models import TrainingRun
from apps.core import cron
from apps.core.errors import ApplicationError, Conflict, InvalidInput
from apps.dashboard import pages
from apps.dashboard.lists.state import context_of
from apps.dashboard.lists.work import POLICIES
from apps.dashboard.policy_forms import PolicyForm
from apps.drills.selectors import NEXT_COUNT
from apps.fleet.access import scoped
from apps.storage.models import StorageTier
from apps.transfers import planning, policies, selectors
from apps.transfers.models import RetentionPolicy

_FIELDS = {"high_water_ratio": "high_water_percent", "low_water_ratio": "low_water_percent"}
SHOWN_MIGRATIONS = 20
MAX_CHOICES = 500


@pages.page
def policy_list(request: HttpRequest) -> HttpResponse:
    context = context_of(POLICIES, request)
    context["can_operate_some"] = pages.may_operate_somewhere(request)
    return render(request, "dashboard/policies.html", context)


@pages.page
def policy_create(request: HttpRequest) -> HttpResponse:
    tiers = list(_tiers(request)[:MAX_CHOICES])
    runs = list(
        scoped(request, TrainingRun.objects.select_related("cluster"), "cluster").order_by("name")[:MAX_CHOICES]
    )
    names = [(run.pk, f"{run.name} ({run.cluster.name})") for run in runs]
    form = PolicyForm(
        request.POST or None, tiers=_names(tiers), runs=names, initial={"run": request.GET.get("run", "")}
    )
    context = {"form": form, "tiers": tiers}
    if request.method == "POST" and form.is_valid():
        by_id = {tier.pk: tier for tier in tiers}
        hot = by_id[form.cleaned_data["hot_tier"]]
        run = next((run for run in runs if run.pk == form.cleaned_data["run"]), None)
        actor = pages.authorize(request, Role.OPERATOR, hot.cluster_id)
        cold = by_id.get(form.cleaned_data["cold_tier"])
        try:
            policy = policies.create_policy(
                cluster=hot.cluster, run=run, hot_tier=hot, cold_tier=cold, actor=actor, **form.details()
            )
        except (InvalidInput, Conflict) as error:
            form.add_error(_field_of(error, form), error.detail)
            return render(request, "dashboard/policy_form.html", context, status=422)
        messages.success(request, f"Policy {policy.name} is saved. It only plans: look at its plan, then let it act.")
        return redirect("policy-plan", policy_id=policy.pk)
    return render(request, "dashboard/policy_form.html", context, status=422 if request.method == "POST" else 200)


@pages.page
def policy_detail(request: HttpRequest, policy_id: str) -> HttpResponse:
    """One policy with what it planned before; for operators also its form."""
    policy = _policy(request, policy_id)
    can_operate = pages.operates(request, policy.cluster_id)
    tiers = list(_tiers(request).filter(cluster=policy.cluster_id)[:MAX_CHOICES]) if can_operate else []
    form = PolicyForm(request.POST or None, tiers=_names(tiers), initial=PolicyForm.initial_of(policy))
    context = {"form": form, "can_operate": can_operate, **_context(policy)}
    if request.method != "POST":
        return render(request, "dashboard/policy.html", context)
    actor = pages.authorize(request, Role.OPERATOR, policy.cluster_id)
    if not form.is_valid():
        return render(request, "dashboard/policy.html", context, status=422)
    by_id = {tier.pk: tier for tier in tiers}
    chosen = {name: by_id.get(form.cleaned_data[name]) for name in ("hot_tier", "cold_tier")}
    try:
        policies.update_policy(policy=policy, changes={**form.details(), **chosen}, actor=actor)
    except (InvalidInput, Conflict) as error:
        form.add_error(_field_of(error, form), error.detail)
        return render(request, "dashboard/policy.html", context, status=422)
    messages.success(request, f"Policy {policy.name} is saved.")
    return redirect("policy", policy_id=policy.pk)


@pages.page
def policy_plan(request: HttpRequest, policy_id: str) -> HttpResponse:
    """What it would do now, line by line."""
    policy = _policy(request, policy_id)
    context = {
        "policy": policy,
        "plan": selectors.plan_json(planning.preview(policy)),
        "can_operate": pages.operates(request, policy.cluster_id),
    }
    return render(request, "dashboard/policy_plan.html", context)


@pages.action
def policy_act(request: HttpRequest, policy_id: str) -> HttpResponse:
    """Let it act, or have it only plan."""
    policy = _policy(request, policy_id)
    actor = pages.authorize(request, Role.OPERATOR, policy.cluster_id)
    plan_only = request.POST.get("plan_only") == "1"
    policies.update_policy(policy=policy, changes={"plan_only": plan_only}, actor=actor)
    told = "only plans from now on" if plan_only else "acts from its next run on"
    messages.success(request, f"Policy {policy.name} {told}.")
    return redirect("policy", policy_id=policy.pk)


@pages.action
def policy_run(request: HttpRequest, policy_id: str) -> HttpResponse:
    policy = _policy(request, policy_id)
    actor = pages.authorize(request, Role.OPERATOR, policy.cluster_id)
    migration = planning.run_policy(policy=policy, actor=actor)
    if migration.plan_only:
        messages.success(request, "The plan is recorded. Nothing was begun: the policy only plans.")
        return redirect("policy", policy_id=policy.pk)
    messages.success(request, f"{migration.transfers.count()} transfers have begun.")
    return redirect("transfers")


@pages.page
def policy_delete(request: HttpRequest, policy_id: str) -> HttpResponse:
    policy = _policy(request, policy_id)
    actor = pages.authorize(request, Role.OPERATOR, policy.cluster_id)
    if request.method != "POST":
        return render(request, "dashboard/policy_delete.html", {"policy": policy})
    name = policy.name
    policies.delete_policy(policy=policy, actor=actor)
    messages.success(request, f"Policy {name} is deleted. Its transfers go on.")
    return redirect("policies")


def _policy(request: HttpRequest, policy_id: str) -> RetentionPolicy:
    policy: RetentionPolicy = pages.find(request, selectors.policies(), "cluster", policy_id)
    return policy


def _tiers(request: HttpRequest) -> Any:
    rows = StorageTier.objects.select_related("cluster").order_by("cluster__name", "speed_order", "name")
    return scoped(request, rows, "cluster")


def _names(tiers: list[StorageTier]) -> list[tuple[str, str]]:
    return [(tier.pk, f"{tier.name} ({tier.cluster.name})") for tier in tiers]


def _context(policy: RetentionPolicy) -> dict[str, Any]:
    rows = selectors.migrations().filter(policy=policy).order_by("-created_at")[:SHOWN_MIGRATIONS]
    return {"policy": policy, "migrations": list(rows), "next_times": next_times_of(policy)}


def next_times_of(policy: RetentionPolicy | AuditPolicy) -> list[datetime]:
    """When it runs next by its schedule."""
    if not policy.cron or not policy.enabled:
        return []
    try:
        return cron.next_times(policy.cron, policy.time_zone, timezone.now(), NEXT_COUNT)
    except cron.BadSchedule:
        return []


def _field_of(error: ApplicationError, form: PolicyForm) -> str | None:
    name = (error.pointer or "").strip("/")
    name = _FIELDS.get(name, name)
    return name if name in form.fields else None
