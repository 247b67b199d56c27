"""Plans: drills on a schedule."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.access import global_role, reaches
from apps.accounts.models import Role
from apps.core.errors import ApplicationError, Conflict, InvalidInput
from apps.dashboard import pages
from apps.dashboard.forms import PlanForm
from apps.dashboard.lists.state import context_of
from apps.dashboard.lists.training import PLANS
from apps.dashboard.selectors import grid
from apps.dashboard.views.drills import runs_to_drill
from apps.drills import selectors, services
from apps.drills.coming import coming
from apps.drills.models import Drill, DrillPlan, PlanOccurrence
from apps.fleet.access import require_role, scoped

MAX_SHOWN = 300
GRID_ROWS = 25


@pages.page
def plan_list(request: HttpRequest) -> HttpResponse:
    context = context_of(PLANS, request)
    context["paused"] = selectors.paused_reason()
    context["may_pause"] = reaches(global_role(request.user), Role.OPERATOR)
    context["can_operate_some"] = pages.may_operate_somewhere(request)
    return render(request, "dashboard/plans.html", context)


@pages.page
def plan_grid(request: HttpRequest) -> HttpResponse:
    """Plans by their last due times."""
    context = context_of(PLANS, request, size=GRID_ROWS)
    context |= {"lines": grid.rows_of(context["page"].items), "shown": grid.SHOWN, "sizes": None}
    return render(request, "dashboard/plan_grid.html", context)


@pages.page
def plan_calendar(request: HttpRequest) -> HttpResponse:
    """The next seven days, with what meets on one cluster."""
    found = coming(scoped(request, selectors.plans(), "run__cluster"))
    context = {"items": found[:MAX_SHOWN], "item_count": len(found), "paused": selectors.paused_reason()}
    return render(request, "dashboard/plan_calendar.html", context)


@pages.action
def plans_pause(request: HttpRequest, verb: str) -> HttpResponse:
    """Pause or resume all plans."""
    require_role(request, Role.OPERATOR)
    actor = request.user.get_username()
    if verb == "pause":
        services.pause_plans(actor=actor)
        messages.success(request, "All plans are paused; what comes due is skipped.")
    else:
        services.resume_plans(actor=actor)
        messages.success(request, "Plans start drills again.")
    return redirect("plans")


@pages.page
def plan_create(request: HttpRequest) -> HttpResponse:
    runs = runs_to_drill(request)
    names = [(run.pk, f"{run.name} ({run.cluster.name})") for run in runs]
    form = PlanForm(request.POST or None, runs=names, initial={"run": request.GET.get("run", "")})
    if request.method == "POST" and form.is_valid():
        run = next(run for run in runs if run.pk == form.cleaned_data["run"])
        actor = pages.authorize(request, Role.OPERATOR, run.cluster_id)
        try:
            plan = services.create_plan(run=run, spec={**form.spec(), **form.schedule()}, actor=actor)
        except (InvalidInput, Conflict) as error:
            return _refused(request, form, error, {"runs": runs})
        messages.success(request, _saved(plan))
        return redirect("plan", plan_id=plan.pk)
    status = 422 if request.method == "POST" else 200
    return render(request, "dashboard/plan_form.html", {"form": form, "runs": runs}, status=status)


@pages.page
def plan_detail(request: HttpRequest, plan_id: str) -> HttpResponse:
    """One plan with its next times and past occurrences; for operators also its form."""
    plan: DrillPlan = pages.find(request, selectors.plans(), "run__cluster", plan_id)
    can_operate = pages.operates(request, plan.run.cluster_id)
    form = PlanForm(request.POST or None, initial=PlanForm.initial_of(plan))
    context = {"plan": plan, "run": plan.run, "form": form, "can_operate": can_operate, **_times(plan)}
    if request.method != "POST":
        return render(request, "dashboard/plan.html", context)
    actor = pages.authorize(request, Role.OPERATOR, plan.run.cluster_id)
    if not form.is_valid():
        return render(request, "dashboard/plan.html", context, status=422)
    try:
        plan = services.update_plan(plan=plan, changes={**form.spec(), **form.schedule()}, actor=actor)
    except (InvalidInput, Conflict) as error:
        form.add_error(_field_of(error, form), error.detail)
        return render(request, "dashboard/plan.html", context, status=422)
    messages.success(request, _saved(plan))
    return redirect("plan", plan_id=plan.pk)


def _times(plan: DrillPlan) -> dict[str, Any]:
    occurrences = PlanOccurrence.objects.filter(plan=plan).select_related("drill").order_by("-planned_at")[:20]
    drills = Drill.objects.filter(plan=plan).order_by("-created_at")[:20]
    return {"next_times": selectors.next_times(plan), "occurrences": list(occurrences), "drills": list(drills)}


def _saved(plan: DrillPlan) -> str:
    times = selectors.next_times(plan)
    if not times:
        return f"Plan {plan.name} is saved. It starts only by hand."
    return f"Plan {plan.name} is saved. It fires next at {times[0]:%Y-%m-%d %H:%M} UTC."


def _refused(request: HttpRequest, form: PlanForm, error: ApplicationError, context: dict[str, Any]) -> HttpResponse:
    form.add_error(_field_of(error, form), error.detail)
    return render(request, "dashboard/plan_form.html", {"form": form, **context}, status=422)


def _field_of(error: ApplicationError, form: PlanForm) -> str | None:
    name = (error.pointer or "").strip("/")
    return name if name in form.fields else None


@pages.page
def plan_delete(request: HttpRequest, plan_id: str) -> HttpResponse:
    plan: DrillPlan = pages.find(request, selectors.plans(), "run__cluster", plan_id)
    actor = pages.authorize(request, Role.OPERATOR, plan.run.cluster_id)
    if request.method != "POST":
        return render(request, "dashboard/plan_delete.html", {"plan": plan})
    name = plan.name
    services.delete_plan(plan=plan, actor=actor)
    messages.success(request, f"Plan {name} is deleted. Its drills stay.")
    return redirect("plans")


@pages.action
def plan_start(request: HttpRequest, plan_id: str) -> HttpResponse:
    plan: DrillPlan = pages.find(request, selectors.plans(), "run__cluster", plan_id)
    actor = pages.authorize(request, Role.OPERATOR, plan.run.cluster_id)
    drill = services.start_plan(plan=plan, actor=actor)
    messages.success(request, f"Plan {plan.name} has started a drill beside its schedule.")
    return redirect("drill", drill_id=drill.pk)
