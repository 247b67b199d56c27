"""Storage tiers: what lies where, measured ceilings, and scans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.db.models import Count, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.models import Role
from apps.checkpoints import scans
from apps.checkpoints.models import InventoryScan
from apps.dashboard import pages
from apps.fleet.access import scoped
from apps.storage.models import StorageTier, TierCeiling

RECENT_SCANS = 20


@pages.page
def tier_list(request: HttpRequest) -> HttpResponse:
    context = _context(request)
    context["has_live"] = context["live_seconds"] > 0
    return render(request, "dashboard/tiers.html", context)


@pages.page
def tier_live(request: HttpRequest) -> HttpResponse:
    return render(request, "dashboard/parts/tiers_live.html", _context(request))


def _context(request: HttpRequest) -> dict[str, Any]:
    rows = StorageTier.objects.select_related("cluster").annotate(
        copy_count=Count("placements"), copy_bytes=Sum("placements__total_bytes")
    )
    tiers = list(scoped(request, rows, "cluster").order_by("cluster__name", "speed_order", "name")[:200])
    ceilings = _newest_ceilings(tiers)
    operable = pages.operable(request, {tier.cluster_id for tier in tiers})
    found = InventoryScan.objects.select_related("tier", "agent__node").order_by("-created_at", "-pk")
    recent = list(scoped(request, found, "tier__cluster")[:RECENT_SCANS])
    running = any(scan.state in scans.UNFINISHED for scan in recent)
    return {
        "tiers": [(tier, ceilings.get(tier.pk), tier.cluster_id in operable) for tier in tiers],
        "scans": recent,
        "live_seconds": 2 if running else 0,
    }


def _newest_ceilings(tiers: Sequence[StorageTier]) -> dict[str, TierCeiling]:
    """The best measurement of each tier with its date and method."""
    rows = TierCeiling.objects.filter(tier__in=tiers).order_by("bytes_per_second", "measured_at")
    return {ceiling.tier_id: ceiling for ceiling in rows}


@pages.action
def tier_scan(request: HttpRequest, tier_id: str) -> HttpResponse:
    tier: StorageTier = pages.find(request, StorageTier.objects.select_related("cluster"), "cluster", tier_id)
    actor = pages.authorize(request, Role.OPERATOR, tier.cluster_id)
    scan = scans.request_scan(tier=tier, actor=actor)
    messages.success(request, f"{scan.lister} lists {tier.uri}.")
    return redirect("tiers")
