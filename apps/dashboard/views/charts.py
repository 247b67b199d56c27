"""Figures as JSON, each with an ETag. A figure holds no colours of a theme, so both themes share one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.cache import get_conditional_response

from apps.checkpoints.models import TrainingRun
from apps.dashboard import pages
from apps.dashboard.charts import (
    advice,
    budget,
    finish,
    groups,
    herd,
    node_rates,
    objectives,
    phase_map,
    ranks,
    rto,
    stored,
    throughput,
    trend,
    what_if,
)
from apps.dashboard.charts.figure import MAX_BYTES, Figure
from apps.dashboard.forms import WhatIfForm
from apps.dashboard.selectors import analysis, inside
from apps.dashboard.selectors import drills as drill_rows
from apps.dashboard.views.advice import advice_of
from apps.dashboard.views.objectives import shown as objective_rows
from apps.dashboard.views.what_if import asked_about, base_of
from apps.drills.models import Drill, DrillKind
from apps.recovery import objectives as run_objectives
from apps.recovery.history import GroupBy
from apps.recovery.what_if import TierModel, tier_model
from apps.storage.models import StorageTier


@pages.page
def chart(request: HttpRequest, name: str) -> HttpResponse:
    """`/charts/<name>.json`."""
    if name not in MAKERS:
        raise Http404(f"There is no chart {name}.")
    body = json.dumps(MAKERS[name](request), separators=(",", ":"), allow_nan=False).encode()
    if len(body) > MAX_BYTES:
        raise Http404("This chart has grown too large to draw; its table has the numbers.")
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    answer = HttpResponse(body, content_type="application/json", headers={"ETag": etag})
    return get_conditional_response(request, etag=etag, response=answer) or answer


def _run_and_kind(request: HttpRequest) -> tuple[TrainingRun, str]:
    run: TrainingRun = pages.find(request, TrainingRun.objects.all(), "cluster", request.GET.get("run", ""))
    return run, pages.chosen(request, "kind", DrillKind.values) or analysis.telling(run)[0]


def _rto(request: HttpRequest) -> Figure:
    run, kind = _run_and_kind(request)
    points = analysis.points(run, kind)
    weeks = analysis.older_weeks(points, analysis.dots(run, kind)[0]) if request.GET.get("weeks") else []
    return rto.figure([*weeks, *points], kind)


def _trend(request: HttpRequest) -> Figure:
    run, kind = _run_and_kind(request)
    return trend.figure(analysis.dots(run, kind)[0])


def _budget(request: HttpRequest) -> Figure:
    run, kind = _run_and_kind(request)
    return budget.figure(run_objectives.trials_of(run, kind, timezone.now()), timezone.now())


def _groups(request: HttpRequest) -> Figure:
    by = GroupBy(pages.chosen(request, "by", list(GroupBy)) or GroupBy.RUN)
    kind = pages.chosen(request, "kind", DrillKind.values) or DrillKind.FAILOVER.value
    return groups.figure(analysis.groups_in_sight(request, by, kind).items)


def _advice(request: HttpRequest) -> Figure:
    rows = TrainingRun.objects.select_related("cluster")
    run: TrainingRun = pages.find(request, rows, "cluster", request.GET.get("run", ""))
    return advice.figure(advice_of(request, run)[2])


def _tier(request: HttpRequest) -> TierModel:
    rows = StorageTier.objects.select_related("cluster")
    return tier_model(pages.find(request, rows, "cluster", request.GET.get("tier", "")))


def _honesty(request: HttpRequest) -> Figure:
    return what_if.honesty_figure(_tier(request).checked)


def _readers(request: HttpRequest) -> Figure:
    known, form = _tier(request), WhatIfForm(request.GET)
    form.is_valid()
    if known.model is None:
        raise Http404("Nothing was measured on this tier.")
    return what_if.readers_figure(known.model, known.other_seconds, form.cleaned_data.get("objective_seconds"))


def _levers(request: HttpRequest) -> Figure:
    known, form = _tier(request), WhatIfForm(request.GET)
    form.is_valid()
    if known.model is None:
        raise Http404("Nothing was measured on this tier.")
    about = asked_about(form.cleaned_data)
    found = what_if.levers(known.model, known.other_phases, about)
    return what_if.levers_figure(found, base_of(known, about))


def _stored(request: HttpRequest) -> Figure:
    return stored.figure(stored.tiers(analysis.stored(request)))


def _node_rates(request: HttpRequest) -> Figure:
    kind = pages.chosen(request, "kind", DrillKind.values) or DrillKind.RELOAD.value
    return node_rates.figure(node_rates.grid(analysis.node_rates(request, kind)))


def _corner(request: HttpRequest) -> Figure:
    return objectives.corner_figure(objective_rows(request))


def _sureness(request: HttpRequest) -> Figure:
    return objectives.sureness_figure(objective_rows(request))


def _drill(request: HttpRequest) -> Drill:
    drill: Drill = pages.find(request, Drill.objects.all(), "cluster", request.GET.get("drill", ""))
    return drill


def _ranks(request: HttpRequest) -> Figure:
    drill = _drill(request)
    return ranks.figure(drill_rows.clients(drill_rows.results(drill)), drill.objective_seconds)


def _finish(request: HttpRequest) -> Figure:
    drill = _drill(request)
    return finish.figure(drill_rows.clients(drill_rows.results(drill)), drill.objective_seconds)


def _throughput(request: HttpRequest) -> Figure:
    return throughput.figure(throughput.bins(inside.tracks(drill_rows.results(_drill(request)))))


def _phase_map(request: HttpRequest) -> Figure:
    return phase_map.figure(drill_rows.clients(drill_rows.results(_drill(request))))


def _herd(request: HttpRequest) -> Figure:
    return herd.figure(drill_rows.ladder(_drill(request)))


MAKERS: dict[str, Callable[[HttpRequest], Figure]] = {
    "rto": _rto,
    "trend": _trend,
    "budget": _budget,
    "ranks": _ranks,
    "herd": _herd,
    "finish": _finish,
    "throughput": _throughput,
    "phase-map": _phase_map,
    "groups": _groups,
    "advice": _advice,
    "honesty": _honesty,
    "readers": _readers,
    "levers": _levers,
    "node-rates": _node_rates,
    "stored": _stored,
    "corner": _corner,
    "sureness": _sureness,
}
