"""Old scans, and what they found different, go: the sweeper calls this. What the copies are is in their own rows."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from apps.checkpoints.models import InventoryScan, ScanChange
from apps.checkpoints.scans import UNFINISHED
from apps.checkpoints.standing import newest_looks

_AT_ONCE = 50
_CHANGES_AT_ONCE = 20_000


def prune(now: datetime | None = None) -> int:
    """Remove scans that were asked for over `SCAN_KEEP_DAYS` ago, with their changes; gives how many went. Of each tier
    the newest two that finished stay, so that they can be compared, and the newest that looked at all of it.
    One call removes a bounded number, so that a sweep stays short."""
    if not settings.SCAN_KEEP_DAYS:
        return 0
    before = (now or timezone.now()) - timedelta(days=settings.SCAN_KEEP_DAYS)
    old = _prunable(before).order_by("created_at", "pk").values_list("pk", flat=True)
    return sum(_remove(pk) for pk in list(old[:_AT_ONCE]))


def _prunable(before: datetime) -> QuerySet[InventoryScan]:
    done = InventoryScan.objects.filter(tier=OuterRef("tier"), state=InventoryScan.State.FINISHED)
    second = done.order_by("-finished_at", "-pk").values("finished_at")[1:2]
    ended = InventoryScan.objects.filter(created_at__lt=before).exclude(state__in=UNFINISHED)
    kept = ended.annotate(second_at=Subquery(second)).filter(
        ~Q(state=InventoryScan.State.FINISHED) | Q(finished_at__lt=F("second_at"))
    )
    return kept.exclude(pk__in=newest_looks().values("pk"))


def _remove(scan_id: str) -> int:
    """Its changes in pieces first; a scan of which some are left is finished by the next call."""
    changes = ScanChange.objects.filter(scan=scan_id)
    pks = list(changes.order_by("pk").values_list("pk", flat=True)[:_CHANGES_AT_ONCE])
    for begin in range(0, len(pks), 2000):
        ScanChange.objects.filter(pk__in=pks[begin : begin + 2000]).delete()
    bare = InventoryScan.objects.filter(~Exists(ScanChange.objects.filter(scan=OuterRef("pk"))), pk=scan_id)
    return bare.delete()[0]
