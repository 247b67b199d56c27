"""Readiness: if a run died now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from apps.dashboard import pages
from apps.dashboard.charts import rto
from apps.dashboard.selectors import analysis
from apps.dashboard.selectors import readiness as selectors
from apps.dashboard.selectors.readiness import Row
from apps.fleet.models import Cluster
from apps.recovery.readiness import gpus_of, summary
from apps.recovery.verdict import Verdict

BUSY_SECONDS = 2
IDLE_SECONDS = 15
UNPROVEN = (Verdict.NOTHING_RESUMABLE, Verdict.NOT_PROVEN)
WALL_RUNS = 12
"""As many as a screen holds in letters that are read across a room; the others show as chips."""


@pages.page
def readiness(request: HttpRequest) -> HttpResponse:
    context = {**_context(request), "has_live": True}
    if _on_wall(request):
        return render(request, "dashboard/readiness_wall.html", context)
    chosen = _chart_run(request, context["rows"])
    if chosen is not None:
        kind, points = analysis.telling(chosen.run)
        context |= {"chart_run": chosen.run, "chart": rto.chart(points, kind, rto.url_of(chosen.run.pk, kind))}
    return pages.show(request, "dashboard/readiness.html", context, charts=chosen is not None)


@pages.page
def readiness_live(request: HttpRequest) -> HttpResponse:
    part = "readiness_wall" if _on_wall(request) else "readiness_live"
    return render(request, f"dashboard/parts/{part}.html", _context(request))


def _on_wall(request: HttpRequest) -> bool:
    return request.GET.get("wall") == "1"


def _context(request: HttpRequest) -> dict[str, Any]:
    rows, total = selectors.rows(request)
    drilling = any(row.run.is_drilling for row in rows)
    return {
        "rows": rows,
        "shown": rows[:WALL_RUNS],
        "rest": rows[WALL_RUNS:],
        "run_total": total,
        "unproven": sum(row.skipped_step is not None or row.judged.verdict in UNPROVEN for row in rows),
        "oldest": _oldest_drilled(rows),
        "unpriced": _unpriced(rows),
        "may_drill": any(row.can_drill for row in rows),
        "drill_days": settings.DRILL_DAYS,
        "live_seconds": BUSY_SECONDS if drilling else IDLE_SECONDS,
        **summary([row.judged for row in rows]),
    }


def _oldest_drilled(rows: Sequence[Row]) -> Row | None:
    """None where no drill has ended with a result."""
    ended = [(row.judged.drill.finished_at, row) for row in rows if row.judged.drill and row.judged.drill.finished_at]
    return min(ended, key=lambda pair: pair[0])[1] if ended else None


def _unpriced(rows: Sequence[Row]) -> list[Cluster]:
    """Clusters whose runs would lose work that nobody can put a price on, by name."""
    lacking = [row.run for row in rows if row.judged.lost_seconds is not None and row.judged.lost_cost is None]
    clusters = {run.cluster_id: run.cluster for run in lacking if run.cluster.gpu_hour_cost is None or not gpus_of(run)}
    return sorted(clusters.values(), key=lambda cluster: cluster.name)


def _chart_run(request: HttpRequest, rows: Sequence[Row]) -> Row | None:
    """The run that the URL names; else the worst one with a drill to show."""
    wanted = request.GET.get("run", "")
    named = next((row for row in rows if row.run.pk == wanted), None)
    measured = (row for row in rows if row.judged.drill and row.judged.drill.seconds is not None)
    return named or next(measured, None)
