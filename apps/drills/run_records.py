"""From the rows that hooks left to the pure timeline of a way back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from apps.checkpoints.models import RunAttempt, RunEvent, StepReport
from apps.drills.failover import CLOCK_TOLERANCE_SECONDS, Record, Step, Timeline, lost_work, timeline
from apps.drills.rescheduling import Piece, pieces

MAX_STEPS_READ = 5000
MAX_RECORDS_READ = 50_000


@dataclass(frozen=True)
class WayBack:
    """A timeline with the work that was lost before it, and the attempt that came back."""

    timeline: Timeline
    lost_steps: int | None
    lost_seconds: float | None
    attempt: RunAttempt | None
    rescheduling: tuple[Piece, ...] = ()


def way_back(*, failed: RunAttempt, fault_at: datetime, fault_is_exact: bool) -> WayBack:
    """What is known now of the way back from the end of `failed`. Late records change it: ask again."""
    launch_ids = dict(RunAttempt.objects.filter(run_id=failed.run_id).values_list("pk", "launch_id"))
    records = _records(failed.run_id, fault_at, launch_ids)
    after = _steps(failed.run_id, launch_ids, at__gte=fault_at)
    line = timeline(
        fault_at=fault_at.timestamp(),
        records=records,
        steps=after,
        failed_attempt=failed.launch_id,
        fault_is_exact=fault_is_exact,
    )
    before = _steps_before(failed, fault_at, launch_ids, line.resumed_from_step)
    lost_steps, lost_seconds = lost_work(
        fault_at=fault_at.timestamp(), steps=before, resumed_from_step=line.resumed_from_step
    )
    back = RunAttempt.objects.filter(run_id=failed.run_id, launch_id=line.attempt).first() if line.attempt else None
    return WayBack(line, lost_steps, lost_seconds, back, tuple(pieces(records)))


def boundary_facts(line: Timeline) -> list[dict[str, str]]:
    """The recorded edges for pages and the API: ISO times in UTC."""
    return [
        {"at": datetime.fromtimestamp(edge.at, UTC).isoformat(), "what": edge.what, "attempt": edge.attempt}
        for edge in line.boundaries
    ]


def _records(run_id: str, fault_at: datetime, launch_ids: dict[str, str]) -> list[Record]:
    since = fault_at - timedelta(seconds=CLOCK_TOLERANCE_SECONDS)
    rows = RunEvent.objects.filter(run_id=run_id, at__gte=since).order_by("at")[:MAX_RECORDS_READ]
    return [
        Record(
            kind=row.kind,
            at=row.at.timestamp(),
            attempt=launch_ids[row.attempt_id],
            rank=row.rank,
            step=row.step,
            phase=row.phase,
            edge=row.edge,
        )
        for row in rows
        if row.attempt_id in launch_ids
    ]


def _steps(run_id: str, launch_ids: dict[str, str], **when: datetime) -> list[Step]:
    rows = StepReport.objects.filter(attempt__run_id=run_id, **when).order_by("at", "step")[:MAX_STEPS_READ]
    return _as_steps(rows, launch_ids)


def _steps_before(
    failed: RunAttempt, fault_at: datetime, launch_ids: dict[str, str], resumed_from_step: int | None
) -> list[Step]:
    """The last step before the fault, and every time before it that the checkpoint's step was done."""
    before = StepReport.objects.filter(attempt__run_id=failed.run_id, at__lte=fault_at)
    last = list(before.filter(attempt=failed).order_by("-at", "-step")[:1])
    if resumed_from_step is None:
        return _as_steps(last, launch_ids)
    return _as_steps([*before.filter(step=resumed_from_step)[:100], *last], launch_ids)


def _as_steps(rows: Iterable[StepReport], launch_ids: dict[str, str]) -> list[Step]:
    return [
        Step(attempt=launch_ids[row.attempt_id], step=row.step, at=row.at.timestamp())
        for row in rows
        if row.attempt_id in launch_ids
    ]
