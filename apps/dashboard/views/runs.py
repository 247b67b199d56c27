"""Runs: the list, and one run with its objectives, launches, checkpoints and drills."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.models import Role
from apps.checkpoints import runs as run_services
from apps.checkpoints.models import Checkpoint, RunAttempt, TrainingRun
from apps.core.errors import InvalidInput
from apps.dashboard import pages
from apps.dashboard.bars import Bar, bar
from apps.dashboard.charts import rto
from apps.dashboard.forms import ObjectivesForm
from apps.dashboard.selectors import analysis, readiness
from apps.dashboard.selectors import checkpoints as checkpoint_rows
from apps.dashboard.selectors import drills as drill_rows
from apps.dashboard.selectors import runs as run_rows
from apps.drills.models import DrillPlan
from apps.fleet.access import scoped
from apps.recovery.models import Recovery

RECENT = 10


@pages.page
def run_list(request: HttpRequest) -> HttpResponse:
    rows = scoped(request, run_rows.runs(request.GET.get("q", "")[:200]), "cluster")
    context = pages.list_context(request, rows, order="-created_at", search_for="Run name")
    drills = run_rows.last_drills(context["page"].items)
    for run in context["page"].items:
        run.last_drill = drills.get(run.pk)
        run.bar = drill_bar(run.last_drill)
    return render(request, "dashboard/runs.html", context)


def drill_bar(drill: Any) -> Any:
    return bar(drill.phases, drill.seconds, drill.objective_seconds) if drill else None


@pages.page
def run_detail(request: HttpRequest, run_id: str) -> HttpResponse:
    run: TrainingRun = pages.find(request, run_rows.runs(), "cluster", run_id)
    kind, points = analysis.telling(run)
    context = {
        "run": run,
        "standing": readiness.of_run(run).standing,
        "can_operate": pages.operates(request, run.cluster_id),
        "form": ObjectivesForm.of(run),
        "drills": [(drill, drill_bar(drill)) for drill in drill_rows.recent(run, RECENT)],
        "checkpoints": _recent_checkpoints(run),
        "attempts": list(
            RunAttempt.objects.filter(run=run).select_related("agent__node").order_by("-started_at")[:RECENT]
        ),
        "recoveries": _recoveries(run),
        "plans": list(DrillPlan.objects.filter(run=run).order_by("name")[:RECENT]),
        "chart": rto.chart(points, kind, rto.url_of(run.pk, kind)) if kind else None,
    }
    return pages.show(request, "dashboard/run.html", context, charts=True)


def _recent_checkpoints(run: TrainingRun) -> list[Checkpoint]:
    return list(checkpoint_rows.checkpoints(run_id=run.pk).order_by("-step")[:RECENT])


def _recoveries(run: TrainingRun) -> list[tuple[Recovery, Bar | None]]:
    rows = Recovery.objects.filter(incident__run=run).select_related("incident").order_by("-created_at")[:RECENT]
    return [
        (recovery, bar(recovery.phases, recovery.time_to_resume_seconds, run.rto_objective_seconds))
        for recovery in rows
    ]


@pages.action
def run_objectives(request: HttpRequest, run_id: str) -> HttpResponse:
    run: TrainingRun = pages.find(request, TrainingRun.objects.all(), "cluster", run_id)
    actor = pages.authorize(request, Role.OPERATOR, run.cluster_id)
    form = ObjectivesForm(request.POST)
    if not form.is_valid():
        raise InvalidInput("; ".join(f"{name}: {errors[0]}" for name, errors in form.errors.items()))
    run_services.update_run(run=run, actor=actor, **form.cleaned_data)
    messages.success(request, f"Objectives of {run.name} are saved. They count from the next drill on.")
    return redirect("run", run_id=run.pk)
