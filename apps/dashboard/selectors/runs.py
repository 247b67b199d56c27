"""Reading training runs with what each last did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet, Subquery

from apps.checkpoints.models import Checkpoint, RunAttempt, TrainingRun
from apps.drills.models import Drill

WITH_RESULT = ("passed", "failed", "lost")
"""Outcomes that say something about the run; a cancelled or skipped drill does not."""


def with_newest(rows: QuerySet[TrainingRun]) -> QuerySet[Any]:
    """Runs with what their newest launch reported, their newest checkpoint, and their newest drill with a result."""
    launches = RunAttempt.objects.filter(run=OuterRef("pk")).order_by("-started_at")
    checkpoints = Checkpoint.objects.filter(run=OuterRef("pk")).order_by("-step")
    judged = Drill.objects.filter(run=OuterRef("pk"), outcome__in=WITH_RESULT).order_by("-created_at", "-pk")
    at_work = Drill.objects.filter(run=OuterRef("pk")).exclude(state=Drill.State.FINISHED)
    return rows.annotate(
        last_step=Subquery(launches.values("last_step")[:1]),
        last_report_at=Subquery(launches.values("last_report_at")[:1]),
        ended_at=Subquery(launches.values("ended_at")[:1]),
        newest_step=Subquery(checkpoints.values("step")[:1]),
        last_drill_id=Subquery(judged.values("pk")[:1]),
        is_drilling=Exists(at_work),
        newest_checkpoint_id=Subquery(checkpoints.values("pk")[:1]),
    )


def last_drills(runs_shown: Sequence[Any]) -> dict[str, Drill]:
    """The newest drill with a result of each run (as `with_newest` gives them), by run id, in one query."""
    drills = Drill.objects.in_bulk([run.last_drill_id for run in runs_shown if run.last_drill_id])
    return {run.pk: drills[run.last_drill_id] for run in runs_shown if run.last_drill_id in drills}
