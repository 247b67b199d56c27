"""Storage tiers: what lies where, measured ceilings, scans and their schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.db.models import Count, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from apps.accounts.models import Role
from apps.checkpoints import scans
from apps.checkpoints.models import InventoryScan
from apps.checkpoints.standing import newest_looks
from apps.core import cron
from apps.core.errors import InvalidInput
from apps.dashboard import pages
from apps.dashboard.forms import TierScanForm
from apps.fleet.access import scoped
from apps.storage import ceilings, services
from apps.storage.models import CeilingRun, StorageTier, TierCeiling

RECENT_SCANS = 20
RECENT_CEILINGS = 5
NEXT_COUNT = 5


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
    looks = {scan.tier_id: scan for scan in newest_looks(tiers)}
    return {
        "tiers": [(tier, ceilings.get(tier.pk), looks.get(tier.pk), tier.cluster_id in operable) for tier in tiers],
        "scans": recent,
        "live_seconds": 2 if running else 0,
    }


def _newest_ceilings(tiers: Sequence[StorageTier]) -> dict[str, TierCeiling]:
    """The best measurement of each tier with its date and method."""
    rows = TierCeiling.objects.filter(tier__in=tiers).order_by("bytes_per_second", "measured_at")
    return {ceiling.tier_id: ceiling for ceiling in rows}


@pages.page
def tier_detail(request: HttpRequest, tier_id: str) -> HttpResponse:
    """One tier: how its inventory stands, when it is scanned, and its scans; for admins the schedule's form."""
    tier = _tier(request, tier_id)
    can_change = pages.operates(request, tier.cluster_id, Role.ADMIN)
    form = TierScanForm(request.POST or None, initial=TierScanForm.initial_of(tier))
    if request.method == "POST":
        actor = pages.authorize(request, Role.ADMIN, tier.cluster_id)
        if form.is_valid() and _save_schedule(tier, form, actor):
            messages.success(request, _said(tier))
            return redirect("tier", tier_id=tier.pk)
        tier = _tier(request, tier_id)
    scan_rows = InventoryScan.objects.filter(tier=tier).select_related("agent__node", "tier")
    context = {
        "tier": tier,
        "form": form,
        "can_change": can_change,
        "can_operate": pages.operates(request, tier.cluster_id),
        "ceilings": TierCeiling.objects.filter(tier=tier).order_by("-bytes_per_second")[:RECENT_CEILINGS],
        "ceiling_run": CeilingRun.objects.filter(tier=tier)
        .select_related("agent__node")
        .order_by("-created_at")
        .first(),
        "look": newest_looks([tier]).first(),
        "next_times": _next_times(tier),
        "page": pages.listing(request, scan_rows, order="-created_at", limit=RECENT_SCANS),
    }
    return render(request, "dashboard/tier.html", context, status=422 if form.errors else 200)


def _tier(request: HttpRequest, tier_id: str) -> StorageTier:
    rows = StorageTier.objects.select_related("cluster").annotate(
        copy_count=Count("placements"), copy_bytes=Sum("placements__total_bytes")
    )
    tier: StorageTier = pages.find(request, rows, "cluster", tier_id)
    return tier


def _save_schedule(tier: StorageTier, form: TierScanForm, actor: str) -> bool:
    try:
        services.update_tier(tier=tier, actor=actor, **form.cleaned_data)
    except InvalidInput as error:
        name = (error.pointer or "").strip("/")
        form.add_error(name if name in form.fields else None, error.detail)
        return False
    return True


def _said(tier: StorageTier) -> str:
    times = _next_times(tier)
    if not times:
        return f"{tier.name} has no schedule of its own any more."
    return f"{tier.name} is scanned next at {times[0]:%Y-%m-%d %H:%M} UTC."


def _next_times(tier: StorageTier) -> list[datetime]:
    if not tier.scan_cron:
        return []
    try:
        return cron.next_times(tier.scan_cron, tier.scan_time_zone, timezone.now(), NEXT_COUNT)
    except cron.BadSchedule:
        return []


@pages.action
def tier_scan(request: HttpRequest, tier_id: str) -> HttpResponse:
    tier: StorageTier = pages.find(request, StorageTier.objects.select_related("cluster"), "cluster", tier_id)
    actor = pages.authorize(request, Role.OPERATOR, tier.cluster_id)
    scan = scans.request_scan(tier=tier, accepts_loss="accepts_loss" in request.POST, actor=actor)
    messages.success(request, f"{tier.uri} is being listed by {scan.lister}.")
    return redirect("scan", scan_id=scan.pk)


@pages.action
def tier_measure(request: HttpRequest, tier_id: str) -> HttpResponse:
    tier: StorageTier = pages.find(request, StorageTier.objects.select_related("cluster"), "cluster", tier_id)
    actor = pages.authorize(request, Role.OPERATOR, tier.cluster_id)
    run = ceilings.request_measurement(tier=tier, actor=actor)
    node = run.agent.node.name if run.agent else "an agent"
    messages.success(request, f"{node} is measuring how fast {tier.name} can be read: about half a minute.")
    return redirect("tier", tier_id=tier.pk)
