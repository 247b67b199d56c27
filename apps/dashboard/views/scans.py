"""One scan: its progress, what it found different, and how it differs from an earlier one."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.models import Role
from apps.checkpoints import scan_diffs, scans
from apps.checkpoints.models import InventoryScan, ScanChange
from apps.checkpoints.scan_progress import progress_of
from apps.dashboard import pages
from apps.dashboard.facets import facet

CHANGES = 50
EARLIER = 30
SHOWN_DIFFERENCES = 200


@pages.page
def scan_detail(request: HttpRequest, scan_id: str) -> HttpResponse:
    scan = _scan(request, scan_id)
    context = {
        **_live_context(request, scan),
        "can_operate": pages.operates(request, scan.tier.cluster_id),
        "has_live": scan.state in scans.UNFINISHED,
        **_comparison(request, scan),
    }
    return render(request, "dashboard/scan.html", context)


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
        "page": pages.listing(request, changes.filter(kind=kind) if kind else changes, order="pk", limit=CHANGES),
    }


def _comparison(request: HttpRequest, scan: InventoryScan) -> dict[str, Any]:
    """The earlier scans to choose from, and the differences from the chosen one."""
    if scan.state != InventoryScan.State.FINISHED:
        return {}
    done = InventoryScan.objects.filter(tier=scan.tier, state=InventoryScan.State.FINISHED)
    earlier = list(done.filter(finished_at__lt=scan.finished_at).order_by("-finished_at")[:EARLIER])
    wanted = request.GET.get("since", "")
    since = done.select_related("tier").filter(pk=wanted).first() if wanted else None
    found = scan_diffs.diff(since, scan) if since is not None else None
    return {"earlier": earlier, "since": since, "diff": found, "differences": found and found.shown[:SHOWN_DIFFERENCES]}


@pages.action
def scan_cancel(request: HttpRequest, scan_id: str) -> HttpResponse:
    scan = _scan(request, scan_id)
    actor = pages.authorize(request, Role.OPERATOR, scan.tier.cluster_id)
    scans.cancel_scan(scan=scan, actor=actor)
    messages.success(request, "The scan is being cancelled; what it had listed is dropped.")
    return redirect("scan", scan_id=scan.pk)
