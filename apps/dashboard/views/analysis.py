"""How long it takes to resume, over time: phases per drill, the objective, the spread."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from apps.checkpoints.models import TrainingRun
from apps.dashboard import pages
from apps.dashboard.charts import budget, groups, node_rates, rto, trend
from apps.dashboard.facets import facet
from apps.dashboard.selectors import analysis
from apps.drills.models import Drill, DrillKind
from apps.fleet.access import scoped
from apps.recovery import objectives
from apps.recovery.history import GroupBy
from apps.recovery.trials import summary


@pages.page
def rto_history(request: HttpRequest) -> HttpResponse:
    runs = _runs_with_drills(request)
    run = next((one for one in runs if one.pk == request.GET.get("run")), runs[0] if runs else None)
    kinds = analysis.kinds_of(run) if run else []
    kind = pages.chosen(request, "kind", kinds) or (kinds[0] if kinds else "")
    context: dict[str, Any] = {
        "runs": runs,
        "run": run,
        "kind": kind,
        "facet": facet(request, "kind", "Kind", [(value, DrillKind(value).label) for value in kinds]),
    }
    if run and kind:
        points = analysis.points(run, kind)
        dots, left_out = analysis.dots(run, kind)
        group = analysis.group_of_run(run, kind)
        trials = objectives.trials_of(run, kind, timezone.now())
        context |= {
            "chart": rto.chart(points, kind, rto.url_of(run.pk, kind, weeks="1"), analysis.older_weeks(points, dots)),
            "trend": trend.chart(dots, rto.url_of(run.pk, kind, "trend"), left_out),
            "budget": budget.chart(trials, timezone.now(), rto.url_of(run.pk, kind, "budget")),
            "coverage": sorted(analysis.coverage(run, kind).items()),
            "claim": rto.claim(summary(trials, timezone.now())),
            "proven": groups.row(group),
        }
    return pages.show(request, "dashboard/analysis.html", context, charts=bool(run and kind))


@pages.page
def rto_groups(request: HttpRequest) -> HttpResponse:
    """`/analysis/groups/`: drills of one kind by run, tier, format or node group."""
    by = GroupBy(pages.chosen(request, "by", list(GroupBy)) or GroupBy.RUN)
    kinds = analysis.kinds_in_sight(request)
    kind = pages.chosen(request, "kind", kinds) or (kinds[0] if kinds else "")
    context: dict[str, Any] = {
        "by": by.value,
        "by_word": groups.WORDS[by],
        "kind": kind,
        "by_facet": facet(request, "by", "By", [(one.value, groups.WORDS[one]) for one in GroupBy]),
        "kind_facet": facet(request, "kind", "Kind", [(value, DrillKind(value).label) for value in kinds]),
    }
    if kind:
        found = analysis.groups_in_sight(request, by, kind)
        context |= {
            "found": found,
            "rows": [groups.row(group) for group in found.items],
            "chart": groups.chart(found.items, by, kind, groups.url_of(by, kind)),
        }
    if kind and by == GroupBy.NODE_GROUP:
        grid = node_rates.grid(analysis.node_rates(request, kind))
        context["grid"] = node_rates.chart(grid, f"{reverse('chart', args=['node-rates'])}?{urlencode({'kind': kind})}")
    return pages.show(request, "dashboard/analysis_groups.html", context, charts=bool(kind))


def _runs_with_drills(request: HttpRequest) -> list[TrainingRun]:
    drilled = Drill.objects.filter(outcome=Drill.Outcome.PASSED, seconds__isnull=False).values("run")
    rows = TrainingRun.objects.filter(pk__in=drilled).select_related("cluster").order_by("name")
    return list(scoped(request, rows, "cluster")[:500])
