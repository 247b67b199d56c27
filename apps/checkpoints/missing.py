"""Copies that a listing did not find: told from those that it could not know of, and marked missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import Max, Q, QuerySet
from django.utils import timezone
from muster_agent.formats.places import lies_in

from apps.checkpoints import intake
from apps.checkpoints.differences import difference, listed_facts
from apps.checkpoints.folders import hold_tier
from apps.checkpoints.models import Checkpoint, Finding, InventoryScan, Placement, PlacementHold, ScanChange
from apps.core.models import Transition

WENT_MISSING = "the copy is no longer there"
PROVEN = (Placement.Trust.VERIFIED, Placement.Trust.RELOADED, Placement.Trust.RESUMED)
"""Rungs that say that every byte was read and was right."""
_COMPLETE = Placement.Status.COMPLETE
_WRITE_ROWS = 2000


def known_count(scan: InventoryScan, listed_at: datetime) -> int:
    """Copies inside the scan's root that were there when the listing began, as far as was known then."""
    return sum(1 for row in _there(scan).filter(first_seen_at__lt=listed_at).only("path") if _is_inside(scan, row))


def not_found(scan: InventoryScan, not_looked_at: Iterable[str], listed_at: datetime) -> list[Placement]:
    """Copies inside the scan's root that this successful listing did not find. Those of which it could not know, and
    those that were seen since it began, are not among them."""
    places = list(not_looked_at)
    unseen = _there(scan).filter(last_seen_at__lt=listed_at)
    return [row for row in unseen if _is_inside(scan, row) and intake.was_looked_at(row.path, places)]


def _there(scan: InventoryScan) -> QuerySet[Placement]:
    # on SQLite without regard to case, so `_is_inside` checks again
    inside = Q(path=scan.root) | Q(path__startswith=scan.root.rstrip("/") + "/")
    return Placement.objects.filter(inside, tier=scan.tier).exclude(listed_status=Placement.Status.MISSING)


def _is_inside(scan: InventoryScan, row: Placement) -> bool:
    return lies_in(row.path, scan.root)


@transaction.atomic
def mark_missing(scan: InventoryScan, not_looked_at: Iterable[str], listed_at: datetime) -> list[str]:
    """Mark what `not_found` gives; gives the paths."""
    hold_tier(scan.tier_id)
    gone = not_found(scan, not_looked_at, listed_at)
    _judge_rotation(scan, gone)
    _write_missing(scan, gone)
    return [row.path for row in gone]


def is_rotated(step: int, newest_complete: int | None, verified: bool, newest_verified: int | None) -> bool:
    """Whether a missing copy is what a trainer's retention leaves: something newer is whole, and where its own bytes
    had been proven, so have been those of a newer one."""
    if newest_complete is None or step >= newest_complete:
        return False
    return not verified or (newest_verified is not None and step < newest_verified)


def _judge_rotation(scan: InventoryScan, gone: Sequence[Placement]) -> None:
    """Before what is gone loses its trust. What remains of each run on this tier is looked at in one query."""
    steps = dict(Checkpoint.objects.filter(pk__in={row.checkpoint_id for row in gone}).values_list("pk", "step"))
    runs = dict(Checkpoint.objects.filter(pk__in=steps).values_list("pk", "run"))
    left = Placement.objects.filter(tier=scan.tier, checkpoint__run__in=set(runs.values()), status=_COMPLETE)
    rows = left.exclude(pk__in=[row.pk for row in gone]).values("checkpoint__run").order_by()
    newest = {
        row["checkpoint__run"]: (row["whole"], row["proven"])
        for row in rows.annotate(
            whole=Max("checkpoint__step"), proven=Max("checkpoint__step", filter=Q(trust__in=PROVEN))
        )
    }
    held = set(PlacementHold.objects.filter(placement__in=gone, released_at=None).values_list("placement", flat=True))
    for row in gone:
        whole, proven = newest.get(runs[row.checkpoint_id], (None, None))
        step = steps[row.checkpoint_id]
        row.rotated_away = row.pk not in held and is_rotated(step, whole, row.trust in PROVEN, proven)


def _write_missing(scan: InventoryScan, gone: Sequence[Placement]) -> None:
    now = timezone.now()
    missing = Placement.Status.MISSING
    transitions, changes = [], []
    for row in gone:
        transitions.append(
            Transition(
                owner_kind="placement", owner_id=row.pk, old=row.status, new=missing,
                reason=f"not there when {scan.pk} listed {scan.root}", at=now,
            )
        )  # fmt: skip
        found = difference(listed_facts(row), None)
        if found is not None:
            changes.append(ScanChange(scan=scan, placement=row, **found))
        row.status = row.listed_status = missing
        row.trust, row.trust_at = Placement.Trust.LISTED, None
        row.resumable, row.not_resumable_reasons = False, ["not there when last listed"]
    Placement.objects.bulk_update(
        gone,
        ["status", "listed_status", "trust", "trust_at", "resumable", "not_resumable_reasons", "rotated_away"],
    )
    for begin in range(0, len(gone), _WRITE_ROWS):
        pks = [row.pk for row in gone[begin : begin + _WRITE_ROWS]]
        open_findings = Finding.objects.filter(placement__in=pks, resolved_at=None)
        open_findings.update(resolved_at=now, resolved_reason=WENT_MISSING)
    Transition.objects.bulk_create(transitions)
    ScanChange.objects.bulk_create(changes, ignore_conflicts=True)
