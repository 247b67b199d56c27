"""Runs: the list, and one run with its objectives, launches, checkpoints and drills."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.models import Role
from apps.checkpoints import runs as run_services
from apps.checkpoints.models import RunAttempt, TrainingRun
from apps.core.errors import InvalidInput
from apps.dashboard import pages
from apps.dashboard.bars import Bar, bar
from apps.dashboard.charts import rto
from apps.dashboard.forms import ObjectivesForm
from apps.dashboard.lists.state import context_of
from apps.dashboard.lists.training import RUNS
from apps.dashboard.selectors import analysis, readiness
from apps.dashboard.selectors import checkpoints as checkpoint_rows
from apps.dashboard.selectors import drills as drill_rows
from apps.dashboard.selectors import runs as run_rows
from apps.recovery.models import Recovery

RECENT = 10


@pages.page
def run_list(request: HttpRequest) -> HttpResponse:
    context = context_of(RUNS, request)
    drills = run_rows.last_drills(context["page"].items)
    for run in context["page"].items:
        run.last_drill = drills.get(run.pk)
        run.bar = drill_bar(run.last_drill)
    return render(request, "dashboard/runs.html", context)


def drill_bar(drill: Any) -> Any:
    return bar(drill.phases, drill.seconds, drill.objective_seconds) if drill else None


@pages.page
def run_detail(request: HttpRequest, run_id: str) -> HttpResponse:
    run = readiness.runs(request).filter(pk=run_id).first()
    if run is None:
        raise Http404(f"There is no training run {run_id} here.")
    drills = drill_rows.recent(run, analysis.MAX_POINTS)
    copies = checkpoint_rows.newest_copies(run.pk, 4 * RECENT)
    newest = copies[: 4 * RECENT]
    attempts = list(_attempts(run))
    kind, points = analysis.telling_of(drills)
    standing = readiness.of_run(request, run, drills, newest)
    context = {
        "run": run,
        "standing": standing,
        "lags": checkpoint_rows.lags(copies),
        "can_operate": standing.can_drill,
        "form": ObjectivesForm.of(run),
        "drills": [(drill, drill_bar(drill)) for drill in drills[:RECENT]],
        "checkpoints": checkpoint_rows.by_checkpoint(newest)[:RECENT],
        "attempts": attempts,
        "recoveries": [(row, recovery_bar(row, run)) for row in recoveries_of(attempts)],
        "chart": rto.chart(points, kind, rto.url_of(run.pk, kind)) if kind else None,
    }
    return pages.show(request, "dashboard/run.html", context, charts=True)


def _attempts(run: TrainingRun) -> QuerySet[RunAttempt]:
    """The newest launches, each with the recovery that its end led to."""
    rows = RunAttempt.objects.filter(run=run).select_related("agent__node", "incident__recovery")
    return rows.order_by("-started_at")[:RECENT]


def recoveries_of(attempts: Iterable[RunAttempt]) -> list[Recovery]:
    incidents = [attempt.incident for attempt in attempts if hasattr(attempt, "incident")]
    return [incident.recovery for incident in incidents if hasattr(incident, "recovery")]


def recovery_bar(recovery: Recovery, run: TrainingRun) -> Bar | None:
    return bar(recovery.phases, recovery.time_to_resume_seconds, run.rto_objective_seconds)


@pages.action
def run_objectives(request: HttpRequest, run_id: str) -> HttpResponse:
    run: TrainingRun = pages.find(request, TrainingRun.objects.all(), "cluster", run_id)
    actor = pages.authorize(request, Role.OPERATOR, run.cluster_id)
    form = ObjectivesForm(request.POST)
    if not form.is_valid():
        raise InvalidInput("; ".join(f"{name}: {errors[0]}" for name, errors in form.errors.items()))
    run_services.update_run(run=run, actor=actor, **form.changes)
    messages.success(request, f"Objectives of {run.name} are saved. They count from the next drill on.")
    return redirect("run", run_id=run.pk)
