"""Repairs: what would be rewritten from where, as it runs, and afterwards."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.models import Role
from apps.audits import repairs, selectors
from apps.audits.models import Repair
from apps.checkpoints.evidence import open_damage
from apps.checkpoints.models import Checkpoint, Placement
from apps.core.errors import InvalidInput
from apps.core.models import Transition
from apps.dashboard import pages
from apps.dashboard.lists.state import context_of
from apps.dashboard.lists.work import REPAIRS

CLUSTER = "placement__tier__cluster"


@pages.page
def repair_list(request: HttpRequest) -> HttpResponse:
    """Who had what rewritten from where, when, and whether it was proven afterwards."""
    return render(request, "dashboard/repairs.html", context_of(REPAIRS, request))


@pages.page
def repair_start(request: HttpRequest, checkpoint_id: str) -> HttpResponse:
    """What is damaged, which copies are good enough to repair from; the form that starts it."""
    rows = Checkpoint.objects.select_related("run__cluster")
    checkpoint: Checkpoint = pages.find(request, rows, "run__cluster", checkpoint_id)
    wanted = request.POST.get("placement") or request.GET.get("placement", "")
    copies = Placement.objects.select_related("tier__cluster", "manifest").defer("manifest__body")
    placement = copies.filter(checkpoint=checkpoint, pk=wanted).first()
    if placement is None:
        raise Http404("There is no such copy of this checkpoint.")
    candidates = repairs.sources(placement)
    if request.method == "POST":
        actor = pages.authorize(request, Role.OPERATOR, checkpoint.run.cluster_id)
        source = next((one for one in candidates if one.pk == request.POST.get("source")), None)
        if source is None:
            raise InvalidInput(repairs.why_not(placement, candidates) or "Choose one of the copies to repair from.")
        repair = repairs.request_repair(placement=placement, source=source, actor=actor)
        messages.success(request, "The repair has begun.")
        return redirect("repair", repair_id=repair.pk)
    context = {
        "checkpoint": checkpoint,
        "run": checkpoint.run,
        "placement": placement,
        "candidates": candidates,
        "why_not": repairs.why_not(placement, candidates),
        "findings": list(open_damage(placement.pk)[:20]),
        "can_operate": pages.operates(request, checkpoint.run.cluster_id),
    }
    return render(request, "dashboard/repair_start.html", context)


@pages.page
def repair_detail(request: HttpRequest, repair_id: str) -> HttpResponse:
    repair = _repair(request, repair_id)
    context = {**_live(repair), "can_operate": pages.operates(request, repair.placement.tier.cluster_id)}
    return render(request, "dashboard/repair.html", {**context, "has_live": not context["finished"]})


@pages.page
def repair_live(request: HttpRequest, repair_id: str) -> HttpResponse:
    return render(request, "dashboard/parts/repair_live.html", _live(_repair(request, repair_id)))


@pages.action
def repair_cancel(request: HttpRequest, repair_id: str) -> HttpResponse:
    repair = _repair(request, repair_id)
    actor = pages.authorize(request, Role.OPERATOR, repair.placement.tier.cluster_id)
    repairs.cancel_repair(repair=repair, actor=actor)
    messages.success(request, "The repair is cancelled. What was rewritten stays.")
    return redirect("repair", repair_id=repair.pk)


def _repair(request: HttpRequest, repair_id: str) -> Repair:
    repair: Repair = pages.find(request, selectors.repairs(), CLUSTER, repair_id)
    return repair


def _live(repair: Repair) -> dict[str, Any]:
    finished = repair.finished_at is not None
    events = Transition.objects.filter(owner_kind="repair", owner_id=repair.pk).order_by("at", "pk")[:100]
    return {
        "repair": repair,
        "placement": repair.placement,
        "checkpoint": repair.placement.checkpoint,
        "run": repair.placement.checkpoint.run,
        "finished": finished,
        "live_seconds": 0 if finished else 2,
        "events": list(events),
    }
