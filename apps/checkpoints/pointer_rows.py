"""The frameworks' own notes of a run's latest checkpoint, as the last listing saw them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.db import transaction

from apps.checkpoints import intake
from apps.checkpoints.findings import clean, storable
from apps.checkpoints.folders import folder_of
from apps.checkpoints.intake import Listing
from apps.checkpoints.models import InventoryScan, RunPointer


@transaction.atomic
def take_pointers(
    scan: InventoryScan, listing: Listing, listed_at: datetime, runs: Mapping[str, str], *, forgets: bool
) -> None:
    """Pointers that lie in the folder of a run's checkpoints (`runs`: folder -> run id). Those under the root that are
    gone are forgotten, where `forgets`."""
    rows = [
        RunPointer(
            run_id=runs[folder],
            tier=scan.tier,
            path=pointer.path,
            step=storable(pointer.step),
            binding=pointer.binding,
            target=_bounded(pointer.target, 1024),
            problem=_bounded(pointer.problem, 500),
            seen_at=listed_at,
        )
        for pointer in {pointer.path: pointer for pointer in listing.pointers}.values()
        if (folder := folder_of(pointer.path)) in runs
    ]
    RunPointer.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["tier", "path"],
        update_fields=["run", "step", "binding", "target", "problem", "seen_at"],
    )
    if forgets:
        _forget_gone(scan, listing, listed_at)


def _bounded(text: str | None, limit: int) -> str | None:
    return None if text is None else clean(text, limit)


def _forget_gone(scan: InventoryScan, listing: Listing, listed_at: datetime) -> None:
    prefix = scan.root.rstrip("/") + "/"
    gone = [
        row.pk
        for row in RunPointer.objects.filter(tier=scan.tier, seen_at__lt=listed_at)
        if row.path.startswith(prefix) and intake.was_looked_at(row.path, listing.not_looked_at)
    ]
    RunPointer.objects.filter(pk__in=gone).delete()
