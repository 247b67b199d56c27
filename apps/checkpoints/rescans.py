"""Scans that nobody has to ask for: after a save that a training job reported, at the times of a tier's schedule, and
of tiers not listed for a while."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F, Max, Q
from django.utils import timezone
from muster_agent.protocol.wire import HookRecord

from apps.checkpoints.models import InventoryScan, Placement, ScanDemand
from apps.checkpoints.scans import UNFINISHED, request_scan
from apps.core import cron
from apps.core.errors import ApplicationError
from apps.fleet import selectors as fleet
from apps.fleet.models import Agent
from apps.storage.models import StorageTier
from apps.storage.paths import contains, is_posix

log = logging.getLogger(__name__)

SAVE_FINISHED = "save_finished"
BY_SAVE, BY_SCHEDULE = "save", "schedule"
SETTLE = timedelta(seconds=2)
"""Ranks report the same save within moments of each other: one scan is enough for all of them."""
SPACING = timedelta(seconds=10)
"""Between two scans after saves: a job that saves every second does not keep its storage busy with listings."""
TRY_AGAIN = timedelta(seconds=30)
_AT_ONCE = 200


def note_saves(agent: Agent, saves: Sequence[HookRecord], run_ids: Sequence[str]) -> None:
    """Remember that the tiers of these new saves are to be listed, soon. A save that names no path means the tiers
    where copies of its run are known."""
    if not saves:
        return
    tiers = StorageTier.objects.filter(cluster=agent.node.cluster_id)
    paths = [path for save in saves if isinstance(path := save.data.get("path"), str)]
    wanted = {tier.pk for tier in tiers if any(contains(tier.uri, path) for path in paths)}
    if len(paths) < len(saves):
        known = Placement.objects.filter(checkpoint__run__in=run_ids).order_by()
        wanted |= {tier.pk for tier in tiers.filter(pk__in=known.values("tier")) if is_posix(tier.uri)}
    due_at = timezone.now() + SETTLE
    ScanDemand.objects.bulk_create(
        [ScanDemand(tier_id=pk, agent=agent, due_at=due_at, asked_at=due_at) for pk in sorted(wanted)],
        update_conflicts=True,
        unique_fields=["tier"],
        update_fields=["asked_at", "agent"],  # not due_at: saves in a row must not put the scan off for ever
    )


def fire_due(now: datetime | None = None) -> int:
    """Scan the tiers on which somebody saved and those whose scheduled time has come; gives how many scans were
    requested."""
    at = now or timezone.now()
    return fire_saves(at) + fire_scheduled(at)


def fire_scheduled(now: datetime) -> int:
    """Scan the tiers whose time has come. Times that were missed, or came while the tier was being scanned, are one
    scan together; while nobody reaches the tier it is tried again."""
    due = StorageTier.objects.filter(next_scan_at__lte=now).select_related("cluster").order_by("next_scan_at")
    return sum(_fire_scheduled(tier, now) for tier in due[:_AT_ONCE])


def _fire_scheduled(tier: StorageTier, now: datetime) -> int:
    planned_at = tier.next_scan_at
    try:
        following: datetime | None = cron.next_time(tier.scan_cron, tier.scan_time_zone, now)
    except cron.BadSchedule as problem:
        log.error("tier %s is not scanned on schedule any more: %s", tier.pk, problem.detail)
        following = None
    mine = StorageTier.objects.filter(pk=tier.pk, next_scan_at=planned_at).update(next_scan_at=following)
    if mine != 1 or following is None or _is_being_scanned(tier):
        return 0
    if _request(tier, _last_lister(tier), BY_SCHEDULE, planned_at):
        return 1
    again = min(following, now + TRY_AGAIN)
    StorageTier.objects.filter(pk=tier.pk, next_scan_at=following).update(next_scan_at=again)
    return 0


def _is_being_scanned(tier: StorageTier) -> bool:
    return InventoryScan.objects.filter(tier=tier, root=tier.uri, state__in=UNFINISHED).exists()


def fire_saves(at: datetime) -> int:
    """Scan the tiers on which somebody saved. One that is being scanned already stays due: that listing may have begun
    before the save ended."""
    due = ScanDemand.objects.filter(due_at__lte=at).select_related("tier__cluster", "agent").order_by("due_at")
    return sum(_fire(demand, at) for demand in due[:_AT_ONCE])


def _fire(demand: ScanDemand, now: datetime) -> int:
    recent = InventoryScan.objects.filter(tier=demand.tier, root=demand.tier.uri)
    newest = recent.aggregate(at=Max("finished_at"))["at"]
    if recent.filter(state__in=UNFINISHED).exists():
        return 0
    if newest is not None and now - newest < SPACING:
        return _put_off(demand, newest + SPACING)
    if not _request(demand.tier, demand.agent, BY_SAVE):
        return _put_off(demand, now + TRY_AGAIN)
    ScanDemand.objects.filter(pk=demand.pk, asked_at=demand.asked_at).delete()
    return 1


def _put_off(demand: ScanDemand, due_at: datetime) -> int:
    ScanDemand.objects.filter(pk=demand.pk).update(due_at=due_at)
    return 0


def request_overdue(now: datetime | None = None) -> int:
    """Scan every tier at a path without a schedule of its own that was last listed over `SCAN_SECONDS` ago and that
    somebody reaches; gives how many scans were requested. One that failed is tried again only after that time. Each
    listing of a bucket is paid for, so buckets are listed when somebody says so."""
    if not settings.SCAN_SECONDS:
        return 0
    since = (now or timezone.now()) - timedelta(seconds=settings.SCAN_SECONDS)
    looked_at = InventoryScan.objects.filter(root=F("tier__uri")).filter(
        Q(state__in=UNFINISHED) | Q(finished_at__gt=since) | Q(created_at__gt=since)
    )
    overdue = StorageTier.objects.filter(created_at__lte=since, scan_cron="").exclude(pk__in=looked_at.values("tier"))
    tiers = [tier for tier in overdue.select_related("cluster").order_by("pk") if is_posix(tier.uri)]
    return sum(_request(tier, _last_lister(tier), BY_SCHEDULE) for tier in tiers[:_AT_ONCE])


def _last_lister(tier: StorageTier) -> Agent | None:
    """Who listed it last: on storage of each node's own, another agent would see other files."""
    last = InventoryScan.objects.filter(tier=tier, root=tier.uri, state=InventoryScan.State.FINISHED)
    scan = last.select_related("agent").order_by("-finished_at").first()
    return scan.agent if scan else None


def _request(tier: StorageTier, preferred: Agent | None, why: str, planned_at: datetime | None = None) -> bool:
    """False where nobody reaches the tier now, or somebody was first."""
    agent: Agent | None = None
    if tier.scanned_by == StorageTier.ScannedBy.AGENTS:
        reaching = fleet.agents_reaching(tier.uri, tier.cluster)
        if not reaching:
            return False
        agent = next((one for one in reaching if preferred is not None and one.pk == preferred.pk), reaching[0])
    try:
        request_scan(tier=tier, agent=agent, actor=why, is_logged=False, planned_at=planned_at)
    except ApplicationError as error:
        log.info("no scan of %s now: %s", tier.uri, error.detail)
        return False
    return True
