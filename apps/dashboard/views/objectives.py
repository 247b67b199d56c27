"""`/objectives/`: every run against its objectives, the worst first."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from apps.accounts.models import Role
from apps.checkpoints import runs as run_services
from apps.checkpoints.models import TrainingRun
from apps.core.errors import InvalidInput
from apps.dashboard import pages
from apps.dashboard.charts import objectives as charts
from apps.dashboard.charts.figure import Chart
from apps.dashboard.forms import RunObjectivesForm
from apps.dashboard.lists.state import context_of, matching, page_of, size_of
from apps.dashboard.lists.training import OBJECTIVES
from apps.recovery import objectives
from apps.recovery.objectives import Objective


@dataclass(frozen=True)
class Row:
    """One run on the page; `form` only for somebody who may save it."""

    judged: Objective
    needs: str
    interval: str
    left: str
    form: RunObjectivesForm | None


@pages.page
def objective_list(request: HttpRequest) -> HttpResponse:
    context = context_of(OBJECTIVES, request)
    found = objectives.objectives_of(context["page"].items)
    may = pages.operable(request, {run.cluster_id for run in context["page"].items})
    drawn = drawable(request, found)
    context |= {"rows": [_row(one, one.run.cluster_id in may) for one in found], "charts": drawn}
    return pages.show(request, "dashboard/objectives.html", context, charts=bool(drawn))


def shown(request: HttpRequest) -> list[Objective]:
    """What the page of this URL lists, for its charts."""
    rows = matching(OBJECTIVES, request, request.GET)
    return objectives.objectives_of(page_of(OBJECTIVES, rows, request.GET, size_of(OBJECTIVES, request.GET)).items)


def drawable(request: HttpRequest, found: list[Objective]) -> list[Chart]:
    query = request.GET.urlencode()
    tail = f"?{query}" if query else ""
    drawn = [
        charts.corner_chart(found, reverse("chart", args=["corner"]) + tail),
        charts.sureness_chart(found, reverse("chart", args=["sureness"]) + tail),
    ]
    return [one for one in drawn if not one.is_empty]


def _row(one: Objective, may_save: bool) -> Row:
    form = RunObjectivesForm.of(one.run) if may_save else None
    interval = charts.interval_words(one) if one.summary.judged_count else ""
    return Row(one, charts.needs_words(one), interval, charts.left_words(one), form)


@pages.page
def objective_save(request: HttpRequest, run_id: str) -> HttpResponse:
    """POST saves a run's two objectives and returns to the list; whatever is wrong is said beside the field."""
    run: TrainingRun = pages.find(request, TrainingRun.objects.select_related("cluster"), "cluster", run_id)
    actor = pages.authorize(request, Role.OPERATOR, run.cluster_id)
    form = RunObjectivesForm(request.POST) if request.method == "POST" else RunObjectivesForm.of(run)
    if request.method == "POST" and form.is_valid():
        try:
            run_services.update_run(run=run, actor=actor, **form.cleaned_data)
        except InvalidInput as error:
            name = (error.pointer or "").strip("/")
            form.add_error(name if name in form.fields else None, error.detail)
        else:
            messages.success(request, f"Objectives of {run.name} are saved. They count from the next drill on.")
            return redirect(pages.back(request, reverse("objectives")))
    status = 422 if request.method == "POST" else 200
    return render(request, "dashboard/objective_form.html", {"run": run, "form": form}, status=status)
