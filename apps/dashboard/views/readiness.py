"""Readiness: if a run died now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from apps.dashboard import pages
from apps.dashboard.charts import rto
from apps.dashboard.selectors import analysis
from apps.dashboard.selectors import readiness as selectors
from apps.dashboard.selectors.readiness import Row

BUSY_SECONDS = 2
IDLE_SECONDS = 15


@pages.page
def readiness(request: HttpRequest) -> HttpResponse:
    context = _context(request)
    chosen = _chart_run(request, context["rows"])
    if chosen is not None:
        kind, points = analysis.telling(chosen.run)
        context |= {"chart_run": chosen.run, "chart": rto.chart(points, kind, rto.url_of(chosen.run.pk, kind))}
    context["has_live"] = True
    return pages.show(request, "dashboard/readiness.html", context, charts=chosen is not None)


@pages.page
def readiness_live(request: HttpRequest) -> HttpResponse:
    return render(request, "dashboard/parts/readiness_live.html", _context(request))


def _context(request: HttpRequest) -> dict[str, Any]:
    rows, total = selectors.rows(request)
    drilling = any(row.run.is_drilling for row in rows)
    return {
        "rows": rows,
        "run_total": total,
        "stats": stats(rows),
        "operable": pages.operable(request, {row.run.cluster_id for row in rows}),
        "live_seconds": BUSY_SECONDS if drilling else IDLE_SECONDS,
    }


def stats(rows: Sequence[Row]) -> dict[str, Any]:
    """The four figures on top; None where there is nothing to count."""
    ended = [
        (row.drill.finished_at, row) for row in rows if row.drill is not None and row.drill.finished_at is not None
    ]
    oldest = min(ended, key=lambda pair: pair[0])[1] if ended else None
    return {
        "ready": sum(row.standing.word == "ready" for row in rows),
        "with_objective": sum(row.run.rto_objective_seconds is not None for row in rows),
        "unproven": sum(row.standing.word in ("nothing", "damaged", "unproven") for row in rows),
        "undrilled": sum(row.drill is None for row in rows),
        "oldest": oldest,
    }


def _chart_run(request: HttpRequest, rows: Sequence[Row]) -> Row | None:
    """The run that the URL names; else the worst one with a drill to show."""
    wanted = request.GET.get("run", "")
    named = next((row for row in rows if row.run.pk == wanted), None)
    return named or next((row for row in rows if row.drill is not None and row.drill.seconds is not None), None)
