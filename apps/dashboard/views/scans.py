"""Scans: what they found different, and one with its progress and how it differs from an earlier one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.models import Role
from apps.checkpoints import scan_diffs, scans
from apps.checkpoints.models import InventoryScan, ScanChange
from apps.checkpoints.scan_progress import progress_of
from apps.core.errors import ApplicationError, InvalidInput
from apps.core.units import seconds_of
from apps.dashboard import pages
from apps.dashboard.facets import facet
from apps.dashboard.lists.log import CHANGES
from apps.dashboard.lists.state import context_of

SHOWN_CHANGES = 50
EARLIER = 30
SHOWN_DIFFERENCES = 200
SPANS = (("1h", "the last hour"), ("24h", "the last 24 hours"), ("7d", "the last 7 days"))


@pages.page
def change_list(request: HttpRequest) -> HttpResponse:
    """What scans found different, of every tier in sight."""
    return render(request, "dashboard/changes.html", context_of(CHANGES, request))


@pages.page
def scan_detail(request: HttpRequest, scan_id: str) -> HttpResponse:
    scan = _scan(request, scan_id)
    comparison = _comparison(request, scan)
    context = {
        **_live_context(request, scan),
        "can_operate": pages.operates(request, scan.tier.cluster_id),
        "has_live": scan.state in scans.UNFINISHED,
        **comparison,
    }
    return render(request, "dashboard/scan.html", context, status=422 if comparison.get("problem") else 200)


@pages.page
def scan_live(request: HttpRequest, scan_id: str) -> HttpResponse:
    return render(request, "dashboard/parts/scan_live.html", _live_context(request, _scan(request, scan_id)))


def _scan(request: HttpRequest, scan_id: str) -> InventoryScan:
    rows = InventoryScan.objects.select_related("tier__cluster", "agent__node")
    scan: InventoryScan = pages.find(request, rows, "tier__cluster", scan_id)
    return scan


def _live_context(request: HttpRequest, scan: InventoryScan) -> dict[str, Any]:
    changes = ScanChange.objects.filter(scan=scan).select_related("placement__checkpoint__run")
    kind = pages.chosen(request, "kind", ScanChange.Kind.values)
    finished = scan.state not in scans.UNFINISHED
    return {
        "scan": scan,
        "tier": scan.tier,
        "finished": finished,
        "live_seconds": 0 if finished else 2,
        "progress": {} if finished else progress_of(scan),
        "facets": [facet(request, "kind", "Change", ScanChange.Kind.choices)],
        "page": pages.listing(request, changes.filter(kind=kind) if kind else changes, order="pk", limit=SHOWN_CHANGES),
    }


def _comparison(request: HttpRequest, scan: InventoryScan) -> dict[str, Any]:
    """The earlier scans to choose from, and the differences from the chosen one."""
    if scan.state != InventoryScan.State.FINISHED:
        return {}
    done = InventoryScan.objects.filter(tier=scan.tier, state=InventoryScan.State.FINISHED)
    earlier = list(done.filter(finished_at__lt=scan.finished_at).order_by("-finished_at")[:EARLIER])
    oldest = done.order_by("finished_at").values_list("finished_at", flat=True).first()
    context: dict[str, Any] = {
        "earlier": earlier,
        "earlier_shown": EARLIER,
        "spans": _spans(scan, oldest),
        "wanted": request.GET.get("since", ""),
    }
    if not context["wanted"]:
        return context
    try:
        since = _since(context["wanted"], scan)
        found = scan_diffs.diff(since, scan)
    except ApplicationError as error:
        return {**context, "problem": error.detail}
    return {**context, "since": since, "diff": found, "differences": found.shown[:SHOWN_DIFFERENCES]}


def _since(wanted: str, scan: InventoryScan) -> InventoryScan:
    """Raises InvalidInput for what names no earlier scan of the same tier."""
    at = scan_diffs.moment(wanted, scan)
    if at is not None:
        return scan_diffs.newest_before(at, scan)
    found = InventoryScan.objects.select_related("tier").filter(tier=scan.tier, pk=wanted).first()
    if found is None:
        raise InvalidInput(f"{scan.tier.name} has no scan {wanted}; it may have been removed as too old.")
    return found


def _spans(scan: InventoryScan, oldest: datetime | None) -> list[tuple[str, str]]:
    """The ages that a link can ask for: some scan had finished by then."""
    assert scan.finished_at is not None
    return [
        (age, words)
        for age, words in SPANS
        if oldest and oldest <= scan.finished_at - timedelta(seconds=seconds_of(age) or 0)
    ]


@pages.action
def scan_cancel(request: HttpRequest, scan_id: str) -> HttpResponse:
    scan = _scan(request, scan_id)
    actor = pages.authorize(request, Role.OPERATOR, scan.tier.cluster_id)
    scans.cancel_scan(scan=scan, actor=actor)
    messages.success(request, "The scan is being cancelled; what it had listed is dropped.")
    return redirect("scan", scan_id=scan.pk)
