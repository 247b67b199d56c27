"""Transfers: copies on their way between tiers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.models import Role
from apps.core.models import Transition
from apps.dashboard import pages
from apps.dashboard.lists.state import context_of
from apps.dashboard.lists.work import TRANSFERS
from apps.transfers import selectors, services
from apps.transfers.facts import FINISHED
from apps.transfers.models import Transfer
from apps.transfers.services import MOVING

_VERBS: dict[str, tuple[Callable[..., Transfer], str]] = {
    "pause": (services.pause, "The transfer waits; what was copied stays."),
    "resume": (services.resume, "The transfer goes on where it was."),
    "cancel": (services.cancel, "The transfer is cancelled; the part that was copied is removed, the source stays."),
}


@pages.page
def transfer_list(request: HttpRequest) -> HttpResponse:
    context = context_of(TRANSFERS, request)
    context["lines"] = [(row, selectors.progress_of(row)) for row in context["page"].items]
    return render(request, "dashboard/transfers.html", context)


@pages.page
def transfer_detail(request: HttpRequest, transfer_id: str) -> HttpResponse:
    transfer = _transfer(request, transfer_id)
    can_operate = pages.operates(request, transfer.cluster_id)
    context = {
        **_live_context(transfer),
        "can_pause": can_operate and transfer.state in MOVING,
        "can_resume": can_operate and transfer.state == Transfer.State.PAUSED,
        "can_cancel": can_operate and transfer.state in (*MOVING, Transfer.State.PAUSED),
        "has_live": transfer.state not in FINISHED,
    }
    return render(request, "dashboard/transfer.html", context)


@pages.page
def transfer_live(request: HttpRequest, transfer_id: str) -> HttpResponse:
    return render(request, "dashboard/parts/transfer_live.html", _live_context(_transfer(request, transfer_id)))


@pages.action
def transfer_act(request: HttpRequest, transfer_id: str, verb: str) -> HttpResponse:
    if verb not in _VERBS:
        raise Http404(f"There is nothing called {verb} here.")
    transfer = _transfer(request, transfer_id)
    actor = pages.authorize(request, Role.OPERATOR, transfer.cluster_id)
    service, told = _VERBS[verb]
    service(transfer=transfer, actor=actor)
    messages.success(request, told)
    return redirect("transfer", transfer_id=transfer.pk)


def _transfer(request: HttpRequest, transfer_id: str) -> Transfer:
    transfer: Transfer = pages.find(request, selectors.transfers(), "cluster", transfer_id)
    return transfer


def _live_context(transfer: Transfer) -> dict[str, Any]:
    events = Transition.objects.filter(owner_kind="transfer", owner_id=transfer.pk).order_by("at", "pk")[:100]
    finished = transfer.state in FINISHED
    progress = selectors.progress_of(transfer)
    return {
        "transfer": transfer,
        "checkpoint": transfer.checkpoint,
        "run": transfer.checkpoint.run,
        "progress": progress,
        "percent": None if progress.done_ratio is None else f"{100 * progress.done_ratio:.0f}",
        "finished": finished,
        "live_seconds": 0 if finished else 2,
        "events": list(events),
    }
