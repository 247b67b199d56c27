"""What each run would resume from if it died now, for `/metrics`: the Readiness page's rows as numbers."""

from __future__ import annotations

from collections.abc import Callable

from apps.core.metrics import Families, gauge
from apps.recovery.readiness import MAX_RUNS, ReadinessRow, rows_of, runs_to_judge

LABELS = ("cluster", "run")
_VALUES: tuple[tuple[str, str, Callable[[ReadinessRow], float | None]], ...] = (
    ("muster_run_resume_step", "The step that it would resume from.", lambda row: row.decision.step),
    ("muster_run_lost_work_seconds", "Work that would be lost.", lambda row: row.lost_seconds),
    ("muster_run_lost_steps", "Steps that would be lost.", lambda row: row.lost_steps),
    ("muster_run_objective_seconds", "Its objective for the time to resume.", lambda row: row.objective_seconds),
    ("muster_run_predicted_seconds", "Predicted time to resume.", lambda row: row.predicted_seconds),
    ("muster_run_restart_seconds", "Its newest measured time to resume.", lambda row: row.restart_seconds),
    (
        "muster_run_drill_seconds",
        "What its newest drill with a result took.",
        lambda row: row.drill.seconds if row.drill else None,
    ),
    (
        "muster_run_drill_timestamp_seconds",
        "When that drill ended.",
        lambda row: row.drill.finished_at.timestamp() if row.drill and row.drill.finished_at else None,
    ),
)


def families() -> Families:
    """Of the newest `MAX_RUNS` runs that are not archived."""
    runs = list(runs_to_judge().filter(archived_at=None).order_by("-created_at")[:MAX_RUNS])
    rows = rows_of(runs)
    names = {row.run.pk: (row.run.cluster.name, row.run.name) for row in rows}
    yield gauge(
        "muster_run_verdict", "1 for the verdict of the Readiness page.", (*LABELS, "verdict"),
        (((*names[row.run.pk], str(row.verdict)), 1.0) for row in rows),
    )  # fmt: skip
    yield gauge(
        "muster_run_resume_point_info", "1 with the outcome, trust and tier of what it would resume from.",
        (*LABELS, "outcome", "trust", "tier"),
        (((*names[row.run.pk], *_resume_point(row)), 1.0) for row in rows),
    )  # fmt: skip
    for name, told, value in _VALUES:
        yield gauge(name, told, LABELS, [(names[row.run.pk], value(row)) for row in rows])


def _resume_point(row: ReadinessRow) -> tuple[str, str, str]:
    decision = row.decision
    return str(decision.outcome), str(decision.trust or ""), str(decision.tier or "")
