"""First steps: from an empty installation to the first answer, each with its form or its exact command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from apps.accounts.access import reaches
from apps.accounts.models import Role
from apps.core.errors import ApplicationError, InvalidInput
from apps.dashboard import pages
from apps.dashboard.first_steps_forms import FirstClusterForm, FirstTierForm
from apps.dashboard.views.fleet import join_command
from apps.fleet import services
from apps.fleet.access import require_role, role_on, visible_clusters
from apps.fleet.models import Cluster
from apps.recovery.first_steps import ApiRequest, ClusterFacts, FirstStep, Step, are_done, current, first_steps
from apps.recovery.first_steps_facts import focus, unfinished
from apps.storage.services import create_tier

LIVE_SECONDS = 3
TOKEN_HOURS = 24


@dataclass(frozen=True)
class Line:
    """A step with the command that does it, empty where it is done or comes too early."""

    told: FirstStep
    command: str


@pages.page
def first_steps_page(request: HttpRequest) -> HttpResponse:
    """What has happened and what comes next; a POST does the next step that needs a form."""
    context = context_of(request, request.GET.get("cluster", ""))
    if request.method != "POST":
        return render(request, "dashboard/first_steps.html", context)
    act = _ACTIONS.get(request.POST.get("do", ""))
    if act is None:
        raise InvalidInput("Choose one of the steps.")
    answer = act(request, context)
    answer.headers["Cache-Control"] = "no-store"
    return answer


@pages.page
def first_steps_live(request: HttpRequest) -> HttpResponse:
    """The ticks. The page loads itself anew when another step has become the next one, unless it is to stay."""
    context = context_of(request, request.GET.get("cluster", ""))
    shown = request.GET.get("next", "")
    if shown and shown != context["next_name"]:
        context["live_seconds"] = 0
    return render(request, "dashboard/parts/first_steps_live.html", context)


def context_of(request: HttpRequest, cluster_id: str = "") -> dict[str, Any]:
    """The steps of the cluster that is asked for, else of the oldest that is not done."""
    facts = focus(_clusters(request, cluster_id))
    steps = first_steps(facts)
    now = current(steps)
    next_name = str(now.step) if now else ""
    query = f"?cluster={facts.cluster}&next={next_name}" if facts.cluster else f"?next={next_name}"
    return {
        "facts": facts,
        "lines": [Line(step, _command(request, step.request)) for step in steps],
        "step_count": len(steps),
        "done_count": sum(step.done_at is not None for step in steps),
        "all_done": are_done(steps),
        "now": now,
        "next_name": next_name,
        "role": _role(request, facts),
        "form": _FORMS[now.step]() if now and now.step in _FORMS else None,
        "has_live": not are_done(steps),
        "live_seconds": LIVE_SECONDS,
        "live_url": reverse("first-steps-live") + query,
    }


def line_of(request: HttpRequest) -> dict[str, Any]:
    """How far it has come, in one query; empty where all is done."""
    facts = next(unfinished(visible_clusters(request)), None)
    if facts is None:
        return {}
    steps = first_steps(facts)
    done = sum(step.done_at is not None for step in steps)
    return {"strip": {"cluster": facts.cluster_name, "done": done, "count": len(steps), "now": current(steps)}}


def _clusters(request: HttpRequest, cluster_id: str) -> QuerySet[Cluster]:
    if not cluster_id:
        return visible_clusters(request)
    found: Cluster = pages.find(request, Cluster.objects.all(), "pk", cluster_id)
    return Cluster.objects.filter(pk=found.pk)


def _role(request: HttpRequest, facts: ClusterFacts) -> dict[str, bool]:
    """What this user may do there."""
    role = role_on(request, facts.cluster)
    return {"admin": reaches(role, Role.ADMIN), "operator": reaches(role, Role.OPERATOR)}


def _command(request: HttpRequest, wanted: ApiRequest | None) -> str:
    """What a shell runs; the token comes from the environment, so that no history keeps it."""
    if wanted is None:
        return ""
    url = request.build_absolute_uri(f"/api/v1/{wanted.path}")
    body = shlex.quote(json.dumps(wanted.body))
    headers = '-H "Authorization: Bearer $MUSTER_TOKEN" -H "Content-Type: application/json"'
    return f"curl -sS -X {wanted.method} {shlex.quote(url)} {headers} -d {body}"


def _make_cluster(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    form = FirstClusterForm(request.POST)
    require_role(request, Role.ADMIN)
    if form.is_valid():
        try:
            made = services.create_cluster(**form.cleaned_data, actor=request.user.get_username())
        except ApplicationError as error:
            form.add_error("name", error.detail)
        else:
            messages.success(request, f"The cluster {made.name} is there.")
            return redirect("first-steps")
    return _refused(request, context, form)


def _make_tier(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    cluster = _cluster(request, context)
    actor = pages.authorize(request, Role.ADMIN, cluster.pk)
    form = FirstTierForm(request.POST)
    if form.is_valid():
        try:
            made = create_tier(cluster=cluster, actor=actor, **form.cleaned_data)
        except ApplicationError as error:
            name = (getattr(error, "pointer", "") or "").strip("/")
            form.add_error(name if name in form.fields else None, error.detail)
        else:
            messages.success(request, f"The tier {made.name} is there.")
            return redirect(f"{reverse('first-steps')}?cluster={cluster.pk}")
    return _refused(request, context, form)


def _make_token(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    """The secret is in this answer and nowhere else, so the page stays as it is while the ticks go on."""
    cluster = _cluster(request, context)
    actor = pages.authorize(request, Role.ADMIN, cluster.pk)
    token, secret = services.create_join_token(cluster=cluster, actor=actor, max_uses=1, hours=TOKEN_HOURS)
    live_url = f"{reverse('first-steps-live')}?cluster={cluster.pk}"
    context |= {"join_command": join_command(request, cluster, secret), "token": token, "live_url": live_url}
    return render(request, "dashboard/first_steps.html", context)


def _cluster(request: HttpRequest, context: dict[str, Any]) -> Cluster:
    cluster_id = request.POST.get("cluster") or context["facts"].cluster
    found: Cluster = pages.find(request, Cluster.objects.all(), "pk", cluster_id)
    return found


def _refused(request: HttpRequest, context: dict[str, Any], form: forms.Form) -> HttpResponse:
    # a page that was posted is not loaded anew by itself: what was typed stays
    live_url = f"{reverse('first-steps-live')}?cluster={context['facts'].cluster}"
    return render(request, "dashboard/first_steps.html", {**context, "form": form, "live_url": live_url}, status=422)


_ACTIONS: dict[str, Callable[[HttpRequest, dict[str, Any]], HttpResponse]] = {
    "cluster": _make_cluster,
    "tier": _make_tier,
    "join": _make_token,
}
_FORMS: dict[Step, type[forms.Form]] = {Step.CLUSTER: FirstClusterForm, Step.TIER: FirstTierForm}
