"""What differs between two inventories of one tier: the changes that the scans in between found, summed up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.checkpoints.differences import fold
from apps.checkpoints.models import InventoryScan, Placement, ScanChange
from apps.core.errors import Conflict, InvalidInput

MAX_SHOWN = 1000
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
    copies = Placement.objects.filter(pk__in=_first(outcomes)).select_related("checkpoint__run")
    shown = [Difference(copy, **outcomes[copy.pk]) for copy in copies]
    shown.sort(key=lambda one: (_ORDER[one.kind], -one.placement.checkpoint.step, one.placement.path))
    return InventoryDiff(since, until, Counter(found["kind"] for found in outcomes.values()), tuple(shown))


def _first(outcomes: Mapping[str, dict[str, Any]]) -> list[str]:
    return sorted(outcomes, key=lambda pk: (_ORDER[outcomes[pk]["kind"]], pk))[:MAX_SHOWN]


def _check(since: InventoryScan, until: InventoryScan) -> None:
    if since.tier_id != until.tier_id:
        raise InvalidInput("Compare two scans of one tier.", pointer="/since")
    for scan in (since, until):
        if scan.state != InventoryScan.State.FINISHED:
            raise Conflict(f"The scan {scan.pk} did not finish ({scan.state}), so there is nothing to compare with.")
    assert since.finished_at is not None and until.finished_at is not None
    if since.finished_at > until.finished_at:
        raise InvalidInput("`since` is the earlier of the two scans.", pointer="/since")
