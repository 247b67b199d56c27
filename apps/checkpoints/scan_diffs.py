"""What differs between two inventories of one tier: the changes that the scans in between found, summed up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from apps.checkpoints.differences import fold
from apps.checkpoints.models import InventoryScan, Placement, ScanChange
from apps.core.errors import Conflict, InvalidInput
from apps.core.units import seconds_of

MAX_SHOWN = 1000
_READ_ROWS = 2000
_SCAN_ID = re.compile(r"scn_[a-z0-9_]{1,36}")
_ORDER = {"vanished": 0, "changed": 1, "appeared": 2}


@dataclass(frozen=True)
class Difference:
    """One copy that is not as it was."""

    placement: Placement
    kind: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


@dataclass(frozen=True)
class InventoryDiff:
    """`shown` are the first `MAX_SHOWN`: what vanished, then what changed, then what appeared; newest step first."""

    since: InventoryScan
    until: InventoryScan
    counts: Mapping[str, int]
    shown: tuple[Difference, ...]

    @property
    def left_out(self) -> int:
        return sum(self.counts.values()) - len(self.shown)


def diff(since: InventoryScan, until: InventoryScan) -> InventoryDiff:
    """Raises InvalidInput for scans of two tiers, or in the wrong order, Conflict for one that did not finish."""
    _check(since, until)
    rows = ScanChange.objects.filter(
        scan__tier=until.tier_id,
        scan__state=InventoryScan.State.FINISHED,
        scan__finished_at__gt=since.finished_at,
        scan__finished_at__lte=until.finished_at,
    )
    outcomes = fold(rows.order_by("scan__finished_at", "scan", "pk").iterator())
    copies = Placement.objects.filter(pk__in=_first(outcomes)).select_related("checkpoint__run", "tier")
    shown = [Difference(copy, **outcomes[copy.pk]) for copy in copies]
    shown.sort(key=lambda one: (_ORDER[one.kind], -one.placement.checkpoint.step, one.placement.path))
    return InventoryDiff(since, until, Counter(found["kind"] for found in outcomes.values()), tuple(shown))


def moment(text: str, until: InventoryScan) -> datetime | None:
    """The time that `since` means: an ISO time (UTC where it names no zone), or an age such as 24h, counted back from
    the end of `until`. None for a scan's id; raises InvalidInput for anything else."""
    if _SCAN_ID.fullmatch(text):
        return None
    age_seconds = seconds_of(text)
    try:
        if age_seconds is not None and until.finished_at is not None:
            return until.finished_at - timedelta(seconds=age_seconds)
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise InvalidInput(
            "Give a scan's id, a time such as 2026-01-31T08:00:00Z, or an age such as 24h.", pointer="/since"
        ) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def newest_before(at: datetime, until: InventoryScan) -> InventoryScan:
    """The last scan of the same tier that had finished at that time; raises InvalidInput where there is none."""
    done = InventoryScan.objects.filter(tier=until.tier_id, state=InventoryScan.State.FINISHED).select_related("tier")
    scan = done.filter(finished_at__lte=at).order_by("-finished_at", "-pk").first()
    if scan is None:
        oldest = done.order_by("finished_at").values_list("finished_at", flat=True).first()
        known = f"the oldest that is kept ended at {oldest:%Y-%m-%d %H:%M:%S} UTC" if oldest else "none is kept"
        raise InvalidInput(
            f"No scan of this tier had finished at {at:%Y-%m-%d %H:%M:%S %Z}; {known}.", pointer="/since"
        )
    return scan


def _first(outcomes: Mapping[str, dict[str, Any]]) -> list[str]:
    if len(outcomes) <= MAX_SHOWN:
        return list(outcomes)
    steps: dict[str, tuple[int, str]] = {}
    pks = list(outcomes)
    for begin in range(0, len(pks), _READ_ROWS):
        rows = Placement.objects.filter(pk__in=pks[begin : begin + _READ_ROWS]).values_list(
            "pk", "checkpoint__step", "path"
        )
        steps.update((pk, (-step, path)) for pk, step, path in rows)
    return sorted(steps, key=lambda pk: (_ORDER[outcomes[pk]["kind"]], steps[pk]))[:MAX_SHOWN]


def _check(since: InventoryScan, until: InventoryScan) -> None:
    if since.tier_id != until.tier_id:
        raise InvalidInput("Compare two scans of one tier.", pointer="/since")
    for scan in (since, until):
        if scan.state != InventoryScan.State.FINISHED:
            raise Conflict(f"The scan {scan.pk} did not finish ({scan.state}), so there is nothing to compare with.")
    assert since.finished_at is not None and until.finished_at is not None
    if since.finished_at > until.finished_at:
        raise InvalidInput("`since` is the earlier of the two scans.", pointer="/since")
