"""Taking the result of a listing in: rows, what differs from before, and what is doubted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

import msgspec
from django.db.models import Count
from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.codes import finding
from muster_agent.protocol.wire import InventoryBody

from apps.checkpoints import vanished
from apps.checkpoints.findings import MAX_PER_PLACEMENT, SEVERITIES, as_json, storable
from apps.checkpoints.folders import folder_of
from apps.checkpoints.ingest import ingest
from apps.checkpoints.intake import Listing, sort_listing
from apps.checkpoints.missing import known_count, mark_missing, not_found
from apps.checkpoints.models import InventoryScan, ScanChange
from apps.checkpoints.pointer_rows import take_pointers
from apps.checkpoints.stepless import take_stepless
from apps.storage.paths import contains

_CURE = "Check that the storage is mounted there, then scan again: what returns unchanged keeps its trust."
_ACCEPT = "If these were removed on purpose, scan again with `accepts_loss` (on the tier's page: “They are gone”)."


def take_in(scan: InventoryScan, body: InventoryBody, listed_at: datetime) -> dict[str, Any]:
    """Record a listing that began at `listed_at`; gives the fields of the finished scan. Repeating it is harmless."""
    listing = sort_listing(body, scan.root)
    known = known_count(scan, listed_at)
    counts = ingest(scan, listing, listed_at)
    doubt = _doubt_all(scan, listing, known, listed_at, body)
    take_stepless(scan, listing, listed_at, forgets=not doubt)
    take_pointers(scan, listing, listed_at, counts.runs, forgets=not doubt)
    held = len(not_found(scan, listing.not_looked_at, listed_at)) if doubt else 0
    missing = [] if doubt else mark_missing(scan, listing.not_looked_at, listed_at)
    notes = [*_doubts(scan, listing, missing, doubt), *body.findings, *listing.left_out]
    notes.sort(key=lambda found: SEVERITIES.index(found.severity))
    return {
        "checkpoint_count": counts.checkpoints,
        "doubt": doubt,
        "held_count": held,
        "findings": [as_json(note) for note in notes[:MAX_PER_PLACEMENT]],
        "damage_count": sum(note.severity is Severity.DAMAGE for note in notes),
        "stepless_count": listing.stepless_count,
        **_change_counts(scan),
        **_facts(body),
    }


def _change_counts(scan: InventoryScan) -> dict[str, int]:
    """Counted from the rows, so that a worker that takes over from a dead one counts what that had written too."""
    rows = ScanChange.objects.filter(scan=scan).values("kind").annotate(rows=Count("pk")).order_by()
    by_kind = {row["kind"]: row["rows"] for row in rows}
    kinds = ScanChange.Kind
    return {
        "new_count": by_kind.get(kinds.APPEARED, 0),
        "changed_count": by_kind.get(kinds.CHANGED, 0),
        "missing_count": by_kind.get(kinds.VANISHED, 0),
    }


def _facts(body: InventoryBody) -> dict[str, Any]:
    mark = body.root_mark
    return {
        "entry_count": storable(body.entries),
        "unchanged_count": None if body.unchanged is None else min(max(body.unchanged, 0), 2**31 - 1),
        "seconds": body.seconds,
        "root_mark": None if mark is None else msgspec.to_builtins(mark),
    }


def _doubt_all(scan: InventoryScan, listing: Listing, known: int, listed_at: datetime, body: InventoryBody) -> str:
    if scan.accepts_loss:
        return ""
    return vanished.doubt(
        scan.root,
        known=known,
        vanished=len(not_found(scan, listing.not_looked_at, listed_at)),
        listed=len(listing.accepted),
        before=_last_mark(scan),
        now=None if body.root_mark is None else msgspec.to_builtins(body.root_mark),
    )


def _last_mark(scan: InventoryScan) -> dict[str, Any] | None:
    """What this root, or else a folder above it, was when the same lister last listed it without a doubt. (On another
    node it may be another.) The folder above tells the file system only."""
    above = [scan.root, *(str(parent) for parent in PurePosixPath(scan.root).parents)]
    believed = InventoryScan.objects.filter(tier=scan.tier, root__in=above, agent=scan.agent_id, doubt="")
    finished = believed.filter(state=InventoryScan.State.FINISHED, root_mark__isnull=False)
    marks = finished.order_by("-finished_at")
    own = marks.filter(root=scan.root).values_list("root_mark", flat=True).first()
    if own:
        return dict(own)
    upper = marks.values_list("root_mark", flat=True).first()
    return {name: value for name, value in upper.items() if name != "inode"} if upper else None


def _doubts(scan: InventoryScan, listing: Listing, missing: Sequence[str], doubt: str) -> list[Finding]:
    """A root, or a run's folder, of which nothing is left may be a mount point without its mount: say so."""
    if doubt:
        return [finding("listing_failed", path=scan.root, detail=doubt, cure=f"{_CURE} {_ACCEPT}")]
    if scan.accepts_loss:
        return []
    listed = {folder_of(item.path) for item in listing.accepted}
    lost = Counter(folder_of(path) for path in missing)
    places = {scan.root: len(missing)} if missing and not listed else lost
    return [
        finding("listing_failed", path=place, detail=_nothing_left(place, count), cure=_CURE)
        for place, count in sorted(places.items())
        if place not in listed and contains(scan.root, place)
    ]


def _nothing_left(place: str, count: int) -> str:
    copies = "a copy was" if count == 1 else f"{count} copies were"
    return f"nothing is left under {place}, where {copies}; an unmounted file system looks the same"
