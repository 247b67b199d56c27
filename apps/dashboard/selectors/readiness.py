"""The rows of the Readiness page: every visible run with its standing, in a constant number of queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.urls import reverse
from django.utils import timezone
from muster_agent.decide.model import ResumeDecision

from apps.checkpoints import resume
from apps.checkpoints.models import Checkpoint, StepReport, TrainingRun
from apps.dashboard import standing
from apps.dashboard.bars import Bar, bar
from apps.dashboard.selectors import runs as run_rows
from apps.drills.models import Drill
from apps.fleet.access import scoped

MAX_RUNS = 200


@dataclass(frozen=True)
class Row:
    """One run on the page; `drill` is its newest drill with a result."""

    run: Any
    standing: standing.Standing
    drill: Drill | None
    bar: Bar | None


def rows(request: Any) -> tuple[list[Row], int]:
    """The worst first, and how many runs there are in all; at most 200 are judged, the newest ones."""
    visible = scoped(request, run_rows.runs().filter(archived_at=None), "cluster")
    found = list(visible.order_by("-created_at")[: MAX_RUNS + 1])
    total = len(found) if len(found) <= MAX_RUNS else visible.count()
    return standing.worst_first(_judged(found[:MAX_RUNS])), total


def of_run(run: Any) -> Row:
    """The same for one run, as `selectors.runs.runs()` gives it."""
    return _judged([run])[0]


def _judged(runs: Sequence[Any]) -> list[Row]:
    now = timezone.now()
    decisions = decisions_of(runs)
    drills = run_rows.last_drills(runs)
    checkpoints = _checkpoints(decisions)
    done = _step_times(decisions)
    judged = []
    for run in runs:
        decision, drill = decisions[run.pk], drills.get(run.pk)
        own = {step: row for (run_id, step), row in checkpoints.items() if run_id == run.pk}
        known = _known(run, decision, drill, own, done.get(run.pk), now)
        shown = bar(drill.phases, drill.seconds, drill.objective_seconds) if drill else None
        judged.append(Row(run, standing.standing(decision, known), drill, shown))
    return judged


def decisions_of(runs: Sequence[TrainingRun]) -> dict[str, ResumeDecision]:
    return resume.decisions_for(runs)


def _known(
    run: Any,
    decision: ResumeDecision,
    drill: Drill | None,
    checkpoints: dict[int, Checkpoint],
    step_done_at: datetime | None,
    now: datetime,
) -> standing.Known:
    chosen = checkpoints.get(decision.step) if decision.step is not None else None
    lost = None
    if step_done_at is not None and run.last_report_at is not None:
        lost = max(0.0, (run.last_report_at - step_done_at).total_seconds())
    cost = run.cluster.gpu_hour_cost
    return standing.Known(
        now=now,
        rto_objective_seconds=run.rto_objective_seconds,
        drill=drill,
        drill_url=reverse("drill", args=[drill.pk]) if drill else "",
        last_step=run.last_step,
        lost_seconds=lost,
        saved_at=chosen.saved_at if chosen else None,
        checkpoint_urls={step: reverse("checkpoint", args=[row.pk]) for step, row in checkpoints.items()},
        gpu_count=run.gpu_count,
        gpu_hour_cost=float(cost) if cost is not None else None,
    )


def _checkpoints(decisions: dict[str, ResumeDecision]) -> dict[tuple[str, int], Checkpoint]:
    """The checkpoints that sentences speak of: the answer, and the newest one passed over."""
    wanted = Q(pk="")
    for run_id, decision in decisions.items():
        skipped = standing.newer_skipped(decision)
        steps = {step for step in (decision.step, skipped.step if skipped else None) if step is not None}
        if steps:
            wanted |= Q(run_id=run_id, step__in=steps)
    return {(row.run_id, row.step): row for row in Checkpoint.objects.filter(wanted)}


def _step_times(decisions: dict[str, ResumeDecision]) -> dict[str, datetime]:
    """When each answer's step was done, by the training hook: the latest time, where it was done more than once."""
    wanted = Q(pk=0)
    for run_id, decision in decisions.items():
        if decision.step is not None:
            wanted |= Q(attempt__run_id=run_id, step=decision.step)
    found = StepReport.objects.filter(wanted).order_by("at").values_list("attempt__run_id", "at")
    return dict(found)
