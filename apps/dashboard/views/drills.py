"""Drills: the list, one drill live and afterwards, and starting or cancelling one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse

from apps.accounts.access import global_role, reaches
from apps.accounts.models import Role
from apps.checkpoints.models import TrainingRun
from apps.core.errors import Conflict, Forbidden, InvalidInput
from apps.core.models import Transition
from apps.core.phases import LABELS, not_measured
from apps.dashboard import pages
from apps.dashboard.bars import bar
from apps.dashboard.charts import herd, ranks
from apps.dashboard.forms import DrillForm
from apps.dashboard.lists.state import context_of
from apps.dashboard.lists.training import DRILLS
from apps.dashboard.selectors import drills as rows_of
from apps.drills import comparing, preview, safety, selectors, services
from apps.drills.models import Drill, DrillKind, RankResult
from apps.drills.progress import progress_of
from apps.drills.story import story_of
from apps.drills.titles import title_of
from apps.fleet.access import require_role, role_on, scoped
from apps.storage.models import StorageTier

LIVE_SECONDS = 2
PRINTED_CLIENTS = 64
FAR_RATIO = 5


@pages.page
def drill_list(request: HttpRequest) -> HttpResponse:
    context = context_of(DRILLS, request)
    for drill in context["page"].items:
        drill.bar = bar(drill.phases, drill.seconds, drill.objective_seconds)
    context |= {
        "stopped": selectors.stopped_reason(),
        "may_stop": reaches(global_role(request.user), Role.OPERATOR),
        "may_drill": pages.may_operate_somewhere(request),
        "compares": True,
    }
    return render(request, "dashboard/drills.html", context)


@pages.page
def drill_detail(request: HttpRequest, drill_id: str) -> HttpResponse:
    drill = _drill(request, drill_id)
    context = {
        **_live_context(drill),
        "can_operate": pages.operates(request, drill.cluster_id),
        "has_live": drill.state != Drill.State.FINISHED,
        "waits_for_approval": _waits_for(drill, request.user.get_username()),
    }
    return pages.show(request, "dashboard/drill.html", context, charts=True)


@pages.page
def drill_live(request: HttpRequest, drill_id: str) -> HttpResponse:
    """The very partial that the drill's page includes."""
    drill = _drill(request, drill_id)
    return render(request, "dashboard/parts/drill_live.html", _live_context(drill))


@pages.page
def drill_print(request: HttpRequest, drill_id: str) -> HttpResponse:
    """The drill on paper: its story and its figures, with bars in place of charts."""
    drill = _drill(request, drill_id)
    results = rows_of.results(drill)
    last = sorted((row for row in results if row.seconds is not None), key=_end)[-PRINTED_CLIENTS:]
    scale = max((row.seconds or 0.0 for row in last), default=0.0)
    context = {
        "drill": drill,
        "title": title_of(drill),
        "story": story_of(drill, results, comparing.last_comparable(drill)),
        "storage_only": drill.is_storage_only,
        "bar": bar(drill.phases, drill.seconds, None if _is_far(drill) else drill.objective_seconds),
        "bars": [(row, bar(row.phases, row.seconds, None, scale or None)) for row in last],
        "result_count": len(results),
        "events": rows_of.events(drill),
        "boundaries": boundaries_of(drill),
    }
    return render(request, "dashboard/drill_print.html", context)


def _end(row: RankResult) -> float:
    return (row.started_at.timestamp() if row.started_at else 0.0) + (row.seconds or 0.0)


def _drill(request: HttpRequest, drill_id: str) -> Drill:
    drill: Drill = pages.find(request, selectors.drills(), "cluster", drill_id)
    return drill


def _live_context(drill: Drill) -> dict[str, Any]:
    rows = rows_of.results(drill)
    clients = rows_of.clients(rows)
    finished = drill.state == Drill.State.FINISHED
    steps = rows_of.ladder(drill) if drill.kind == DrillKind.HERD else []
    query = "?" + _query(drill=drill.pk)
    events = rows_of.events(drill)
    before, last_good = comparing.held_against(drill) if finished else (None, None)
    return {
        "drill": drill,
        "last_good": last_good,
        "run": drill.run,
        "finished": finished,
        "live_seconds": 0 if finished else LIVE_SECONDS,
        "title": title_of(drill),
        "storage_only": drill.is_storage_only,
        "story": story_of(drill, rows, before) if finished else None,
        "standby_steps": drill.steps.order_by("order") if drill.kind == DrillKind.STANDBY else [],
        "unmeasured": [LABELS[phase].lower() for phase in not_measured(drill.phases)] if drill.phases else [],
        "bar": bar(drill.phases, drill.seconds, None if _is_far(drill) else drill.objective_seconds),
        "far_objective": _is_far(drill),
        "late_by": _late_by(drill),
        "results": rows[:256],
        "result_count": len(rows),
        "ranks_chart": ranks.chart(clients, reverse("chart", args=["ranks"]) + query) if clients else None,
        "herd_chart": herd.chart(steps, reverse("chart", args=["herd"]) + query) if len(steps) > 1 else None,
        "events": events,
        "waiting_reason": _waiting_reason(events),
        "tasks": progress_of(drill),
        "boundaries": boundaries_of(drill),
        "states": _states(drill),
    }


def _waits_for(drill: Drill, actor: str) -> bool:
    """Whether this user could approve it: it waits, and somebody else asked for it."""
    is_open = drill.state in (Drill.State.SCHEDULED, Drill.State.WAITING) and drill.requested_by != actor
    return is_open and safety.waits_for_approval(drill)


def _waiting_reason(events: Sequence[Transition]) -> str:
    """What the engine last said that it waits for."""
    said = next((event.reason for event in events if event.new == Drill.State.WAITING), "")
    return said or "Waiting its turn."


def _query(**parameters: str) -> str:
    query = QueryDict(mutable=True)
    query.update(parameters)
    return query.urlencode()


def _is_far(drill: Drill) -> bool:
    """An objective so far away that the phases would vanish on its scale."""
    return bool(drill.seconds and drill.objective_seconds and drill.objective_seconds > FAR_RATIO * drill.seconds)


def _late_by(drill: Drill) -> float | None:
    if drill.objective_state != Drill.ObjectiveState.BREACHED or not drill.seconds or not drill.objective_seconds:
        return None
    return drill.seconds - drill.objective_seconds


def boundaries_of(drill: Drill) -> list[dict[str, Any]]:
    """The recorded edges of a failover, each with its seconds after the fault."""
    edges = drill.facts.get("boundaries") or []
    parsed = [(datetime.fromisoformat(edge["at"]), edge) for edge in edges]
    start = drill.fault_at or (parsed[0][0] if parsed else None)
    return [
        {"at": at, "after_seconds": (at - start).total_seconds() if start else None, "what": edge["what"]}
        for at, edge in parsed
    ]


def _states(drill: Drill) -> list[tuple[str, str]]:
    """The way through a drill: each state with done, now or empty."""
    order = [
        Drill.State.SCHEDULED,
        Drill.State.PREPARING,
        Drill.State.RUNNING,
        Drill.State.VALIDATING,
        Drill.State.FINISHED,
    ]
    current = Drill.State.PREPARING if drill.state == Drill.State.WAITING else Drill.State(drill.state)
    at = order.index(current)
    return [(str(state.label), "done" if i < at else "now" if i == at else "") for i, state in enumerate(order)]


# -- starting and cancelling -------------------------------------------------------------------------------------------
@pages.page
def drill_start(request: HttpRequest) -> HttpResponse:
    """The form; what it would do; and, once confirmed, the drill."""
    runs = runs_to_drill(request)
    form = DrillForm(
        request.POST or None,
        runs=[(run.pk, f"{run.name} ({run.cluster.name})") for run in runs],
        tiers=_tiers({run.cluster_id for run in runs}),
        initial=_initial(request, runs),
    )
    if request.method != "POST" or not form.is_valid():
        status = 422 if request.method == "POST" else 200
        return render(request, "dashboard/drill_start.html", {"form": form, "runs": runs}, status=status)
    run = next(run for run in runs if run.pk == form.cleaned_data["run"])
    actor = pages.authorize(request, Role.OPERATOR, run.cluster_id)
    spec = form.spec()
    if spec["kind"] in safety.DISRUPTIVE and not run.cluster.allows_disruption:
        raise Forbidden(f"Disruptive drills are off on {run.cluster.name}; an admin can allow them there.")
    if request.POST.get("preview"):
        told = preview.preview(run, spec)
        return render(request, "dashboard/drill_start.html", {"form": form, "runs": runs, "told": told})
    if spec["kind"] in safety.DISRUPTIVE and request.POST.get("confirmed") != "yes":
        return render(request, "dashboard/drill_confirm.html", _confirmation(run, spec, request.POST))
    try:
        drill = services.create_drill(run=run, spec=spec, actor=actor)
    except (InvalidInput, Conflict) as error:
        form.add_error(_field_of(error, form), error.detail)
        return render(request, "dashboard/drill_start.html", {"form": form, "runs": runs}, status=422)
    messages.success(request, f"{title_of(drill)} is on its way.")
    return redirect("drill", drill_id=drill.pk)


def _tiers(cluster_ids: set[str]) -> list[tuple[str, str]]:
    rows = StorageTier.objects.filter(cluster__in=cluster_ids).select_related("cluster")
    return [(tier.pk, f"{tier.name} ({tier.cluster.name})") for tier in rows.order_by("cluster__name", "speed_order")]


def _field_of(error: InvalidInput | Conflict, form: DrillForm) -> str | None:
    name = (error.pointer or "").strip("/")
    return name if name in form.fields else None


def runs_to_drill(request: HttpRequest) -> list[TrainingRun]:
    """Runs that this user may drill. Raises Forbidden for somebody who may drill none."""
    rows = scoped(request, TrainingRun.objects.filter(archived_at=None).select_related("cluster"), "cluster")
    runs = list(rows.order_by("name")[:500])
    allowed = pages.operable(request, {run.cluster_id for run in runs})
    if runs and not allowed:
        raise Forbidden(f"Starting drills needs the role operator; yours is {role_on(request, runs[0].cluster)}.")
    return [run for run in runs if run.cluster_id in allowed]


def _initial(request: HttpRequest, runs: list[TrainingRun]) -> dict[str, Any]:
    wanted = request.GET.get("run", "")
    initial = {name: request.GET[name] for name in ("kind", "choice", "step", "ladder", "tier") if name in request.GET}
    if wanted in {run.pk for run in runs}:
        initial["run"] = wanted
    return initial


def _confirmation(run: TrainingRun, spec: dict[str, Any], posted: QueryDict) -> dict[str, Any]:
    """What a disruptive drill would touch, and the form once more."""
    repeated = [(name, value) for name in posted for value in posted.getlist(name) if name != "csrfmiddlewaretoken"]
    return {"run": run, "spec": spec, "told": preview.preview(run, spec), "repeated": repeated}


@pages.page
def drill_cancel(request: HttpRequest, drill_id: str) -> HttpResponse:
    drill = _drill(request, drill_id)
    actor = pages.authorize(request, Role.OPERATOR, drill.cluster_id)
    if request.method != "POST":
        return render(request, "dashboard/drill_cancel.html", {"drill": drill, "title": title_of(drill)})
    return _cancelled(request, drill, actor)


def _cancelled(request: HttpRequest, drill: Drill, actor: str) -> HttpResponse:
    try:
        services.cancel_drill(drill=drill, actor=actor)
        messages.success(request, "The drill is being cancelled; agents stop within a few seconds.")
    except Conflict as error:
        messages.error(request, error.detail)
    return redirect("drill", drill_id=drill.pk)


# -- the switch for all ------------------------------------------------------------------------------------------------
@pages.page
def stop_all(request: HttpRequest) -> HttpResponse:
    """Ask, then cancel everything at work and let nothing start."""
    require_role(request, Role.OPERATOR)
    if request.method != "POST":
        unfinished = Drill.objects.exclude(state=Drill.State.FINISHED).count()
        return render(request, "dashboard/drills_stop.html", {"unfinished": unfinished})
    count = services.stop_all_drills(actor=request.user.get_username(), reason=request.POST.get("reason", "")[:500])
    messages.success(request, f"All drills are stopped; {count} at work are being cancelled.")
    return redirect("drills")


@pages.action
def allow_all(request: HttpRequest) -> HttpResponse:
    require_role(request, Role.OPERATOR)
    services.allow_drills(actor=request.user.get_username())
    messages.success(request, "Drills may run again. What was cancelled does not start by itself.")
    return redirect("drills")
