"""How the tiers' inventories stand: which could not be looked at, or looked so strange that nothing was believed."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import F, OuterRef, Q, QuerySet, Subquery

from apps.checkpoints.models import InventoryScan
from apps.storage.models import StorageTier

ROOT_UNREADABLE = "root_unreadable"
"""The error code of a listing whose root is not there or cannot be read."""
_LOOKED = Q(state=InventoryScan.State.FINISHED) | Q(error_code=ROOT_UNREADABLE)


def newest_looks(tiers: Iterable[StorageTier] | None = None) -> QuerySet[InventoryScan]:
    """Of each tier the newest scan of its whole root that ended with a look at it. (One whose agent was lost, or that
    was cancelled, tells nothing about the storage.)"""
    newest = InventoryScan.objects.filter(_LOOKED, tier=OuterRef("pk"), root=OuterRef("uri")).order_by("-finished_at")
    rows = StorageTier.objects.all() if tiers is None else StorageTier.objects.filter(pk__in=[one.pk for one in tiers])
    ids = rows.annotate(look=Subquery(newest.values("pk")[:1])).exclude(look=None).values("look")
    return InventoryScan.objects.filter(pk__in=ids).select_related("tier", "agent__node")


def unreadable_tiers(limit: int) -> list[InventoryScan]:
    """The scans that say so, by tier."""
    wrong = newest_looks().filter(~Q(doubt="") | Q(state=InventoryScan.State.FAILED), root=F("tier__uri"))
    return list(wrong.order_by("tier")[:limit])
