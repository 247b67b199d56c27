"""Moving one copy by hand, and saying that a checkpoint is to be kept."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.models import Role
from apps.checkpoints.models import Checkpoint, Placement
from apps.core.errors import Conflict, InvalidInput
from apps.dashboard import pages
from apps.dashboard.move_forms import MoveForm
from apps.storage.models import StorageTier
from apps.transfers import facts, marks, services

_FIELDS = {f"/{name}": name for name in ("tier", "kind", "proof", "where")}
_FIELDS["/max_bytes_per_second"] = "max_mb_per_second"


@pages.page
def move_start(request: HttpRequest, checkpoint_id: str) -> HttpResponse:
    """What is to become of one copy: the form says what each choice does before its button does it."""
    checkpoint = _checkpoint(request, checkpoint_id)
    actor = pages.authorize(request, Role.OPERATOR, checkpoint.run.cluster_id)
    placement = _copy(checkpoint, request.GET.get("copy"))
    tiers = _other_tiers(placement)
    form = MoveForm(request.POST or None, tiers=[tier for tier, _seconds in tiers], source=placement.tier)
    context = {"checkpoint": checkpoint, "run": checkpoint.run, "copy": placement, "form": form, "tiers": tiers}
    if request.method != "POST":
        return render(request, "dashboard/move.html", context)
    if form.is_valid():
        try:
            transfer = services.request_transfer(placement=placement, actor=actor, **form.wishes())
        except (InvalidInput, Conflict) as error:
            form.add_error(_FIELDS.get(error.pointer or ""), error.detail)
        else:
            messages.success(request, f"{transfer.get_kind_display()} of step {checkpoint.step} is on its way.")
            return redirect("transfer", transfer_id=transfer.pk)
    return render(request, "dashboard/move.html", context, status=422)


def _other_tiers(placement: Placement) -> list[tuple[StorageTier, float | None]]:
    """The other tiers, fastest first, with the seconds that a copy of this size takes by the latest transfers there;
    None: not measured."""
    tiers = StorageTier.objects.filter(cluster=placement.tier.cluster_id).exclude(pk=placement.tier_id)
    found: list[tuple[StorageTier, float | None]] = []
    for tier in tiers.order_by("speed_order", "name")[:50]:
        rate = facts.measured_bytes_per_second(placement.tier_id, tier.pk)
        found.append((tier, placement.total_bytes / rate if rate else None))
    return found


@pages.action
def checkpoint_pin(request: HttpRequest, checkpoint_id: str) -> HttpResponse:
    """Keep a checkpoint for good, or let policies decide again (`unpin`)."""
    checkpoint = _checkpoint(request, checkpoint_id)
    actor = pages.authorize(request, Role.OPERATOR, checkpoint.run.cluster_id)
    if request.POST.get("unpin"):
        marks.unpin(checkpoint=checkpoint, actor=actor)
        messages.success(request, "Not pinned any more: policies decide again.")
    else:
        marks.pin(checkpoint=checkpoint, reason=request.POST.get("reason", ""), actor=actor)
        messages.success(request, "Pinned: no policy removes a copy of it.")
    return redirect("checkpoint", checkpoint_id=checkpoint.pk)


@pages.action
def checkpoint_labels(request: HttpRequest, checkpoint_id: str) -> HttpResponse:
    checkpoint = _checkpoint(request, checkpoint_id)
    actor = pages.authorize(request, Role.OPERATOR, checkpoint.run.cluster_id)
    wanted = request.POST.get("labels", "").replace(",", " ").split()
    told = marks.set_labels(checkpoint=checkpoint, labels=wanted, actor=actor)
    messages.success(request, f"Labels: {', '.join(told) or 'none'}.")
    return redirect("checkpoint", checkpoint_id=checkpoint.pk)


def _checkpoint(request: HttpRequest, checkpoint_id: str) -> Checkpoint:
    rows: Any = Checkpoint.objects.select_related("run", "pin")
    found: Checkpoint = pages.find(request, rows, "run__cluster", checkpoint_id)
    return found


def _copy(checkpoint: Checkpoint, pk: str | None) -> Placement:
    rows = Placement.objects.filter(checkpoint=checkpoint).select_related(
        "checkpoint__run", "tier__cluster", "manifest"
    )
    found = rows.defer("manifest__body").filter(pk=pk or "").first()
    if found is None:
        raise InvalidInput("Choose one of this checkpoint's copies.")
    return found
