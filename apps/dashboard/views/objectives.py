"""`/objectives/`: every run against its objectives, the worst first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from apps.accounts.models import Role
from apps.checkpoints import runs as run_services
from apps.checkpoints.models import TrainingRun
from apps.core.errors import InvalidInput
from apps.core.pagination import Page
from apps.dashboard import pages
from apps.dashboard.charts import objectives as charts
from apps.dashboard.charts.figure import Chart
from apps.dashboard.forms import RunObjectivesForm
from apps.fleet.access import scoped
from apps.recovery import objectives, readiness
from apps.recovery.objectives import Objective

ORDER = "standing"


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
    context = pages.list_context(request, visible(request), order=ORDER, search_for="Run name")
    found = objectives.objectives_of(context["page"].items)
    may = pages.operable(request, {run.cluster_id for run in context["page"].items})
    drawn = drawable(request, found)
    context |= {"rows": [_row(one, one.run.cluster_id in may) for one in found], "charts": drawn}
    return pages.show(request, "dashboard/objectives.html", context, charts=bool(drawn))


def visible(request: HttpRequest) -> Any:
    """The runs in sight that are not archived, ranked."""
    runs = scoped(request, readiness.runs_to_judge().filter(archived_at=None), "cluster")
    search = request.GET.get("q", "")[:200]
    return objectives.ranked(runs.filter(name__icontains=search) if search else runs)


def shown(request: HttpRequest) -> list[Objective]:
    """What the page of this URL lists, for its charts."""
    page: Page = pages.listing(request, visible(request), order=ORDER, count=False)
    return objectives.objectives_of(page.items)


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
