"""Long work of every kind in one shape: what runs, how far it is, how it ended, and where to stop it.

An operation is no row of its own: its id is that of the drill, audit, transfer, repair, scan or measurement that it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Model, Q, QuerySet

from apps.audits.models import Audit, Repair
from apps.checkpoints.models import InventoryScan
from apps.checkpoints.scan_progress import progress_of
from apps.core.errors import NotFound
from apps.drills.models import Drill
from apps.fleet.access import scoped
from apps.storage.models import CeilingRun
from apps.transfers.models import Transfer

LISTED = 200
"""Of each kind at most; more than that at once is no list that anybody reads."""


@dataclass(frozen=True)
class Progress:
    """`total` is None where nobody knows it yet."""

    done: int
    total: int | None
    unit: str


@dataclass(frozen=True, kw_only=True)
class Operation:
    """`succeeded` is None until it has ended; `outcome` is the kind's own word, or its state where it has none."""

    id: str
    kind: str
    state: str
    done: bool
    succeeded: bool | None
    outcome: str
    error: str
    progress: Progress | None
    result_path: str
    cancel_path: str | None
    requested_by: str
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True)
class Kind:
    """How the rows of one kind are read. `cancel` is None where nothing stops it."""

    name: str
    prefix: str
    collection: str
    model: type[Model]
    cluster_path: str
    ended: frozenset[str]
    good: frozenset[str]
    progress: Callable[[Any], Progress | None]
    can_cancel: bool = True

    def rows(self) -> QuerySet[Any]:
        return self.model._default_manager.all()


def _copied(row: Transfer) -> Progress:
    return Progress(row.copied_bytes, row.total_bytes, "bytes")


def _written(row: Repair) -> Progress:
    return Progress(row.written_bytes, None, "bytes")


def _checked(row: Audit) -> Progress | None:
    return None if row.checked_bytes is None else Progress(row.checked_bytes, None, "bytes")


def _scanned(row: InventoryScan) -> Progress | None:
    told = progress_of(row)
    done, left = told.get("checkpoints"), told.get("checkpoints_left")
    if not isinstance(done, int):
        return None
    return Progress(done, done + left if isinstance(left, int) else None, "checkpoints")


def _unknown(_row: Any) -> None:
    return None


_FINISHED, _PASSED = frozenset({"finished"}), frozenset({"passed"})
_MEASURED = frozenset({"measured"})
_ENDED = frozenset({"done", "failed", "cancelled"})
KINDS = (
    Kind("drill", "drl", "drills", Drill, "cluster", _FINISHED, _PASSED, _unknown),
    Kind("audit", "aud", "audits", Audit, "placement__tier__cluster", _FINISHED, _PASSED, _checked),
    Kind("transfer", "trf", "transfers", Transfer, "cluster", _ENDED, frozenset({"done"}), _copied),
    Kind("repair", "rep", "repairs", Repair, "placement__tier__cluster", _ENDED, frozenset({"done"}), _written),
    Kind(
        "scan",
        "scn",
        "scans",
        InventoryScan,
        "tier__cluster",
        frozenset({"finished", "failed", "cancelled"}),
        _FINISHED,
        _scanned,
    ),
    Kind("measurement", "cel", "ceiling-runs", CeilingRun, "tier__cluster", _FINISHED, _MEASURED, _unknown, False),
)


def operation(request: Any, identifier: str) -> Operation:
    """One, by the id of what it is. Raises NotFound, also for what the caller cannot see."""
    kind = next((one for one in KINDS if identifier.startswith(f"{one.prefix}_")), None)
    row = scoped(request, kind.rows(), kind.cluster_path).filter(pk=identifier).first() if kind else None
    if kind is None or row is None:
        raise NotFound("There is no such operation that you may see.")
    return _of(kind, row)


def running(request: Any) -> list[Operation]:
    """What has not ended, of every kind that the caller may see, newest first; a query a kind."""
    found: list[Operation] = []
    for kind in KINDS:
        rows = scoped(request, kind.rows(), kind.cluster_path).filter(~Q(state__in=kind.ended))
        found.extend(_of(kind, row) for row in rows.order_by("-created_at", "-pk")[:LISTED])
    return sorted(found, key=lambda one: (one.created_at, one.id), reverse=True)[:LISTED]


def _of(kind: Kind, row: Any) -> Operation:
    done = row.state in kind.ended
    outcome = str(getattr(row, "outcome", "") or (row.state if done else ""))
    place = f"/api/v1/{kind.collection}/{row.pk}/"
    return Operation(
        id=row.pk,
        kind=kind.name,
        state=row.state,
        done=done,
        succeeded=outcome in kind.good if done else None,
        outcome=outcome,
        error=_error(row) if done and outcome not in kind.good else "",
        progress=kind.progress(row),
        result_path=place,
        cancel_path=f"{place}cancel/" if kind.can_cancel and not done else None,
        requested_by=row.requested_by,
        created_at=row.created_at,
        finished_at=row.finished_at,
    )


def _error(row: Any) -> str:
    return str(getattr(row, "reason", "") or getattr(row, "problem", "") or getattr(row, "error", ""))
