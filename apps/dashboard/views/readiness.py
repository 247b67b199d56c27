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
from apps.recovery.verdict import Verdict

BUSY_SECONDS = 2
IDLE_SECONDS = 15
UNPROVEN = (Verdict.NOTHING_RESUMABLE, Verdict.NOT_PROVEN)


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
        "live_seconds": BUSY_SECONDS if drilling else IDLE_SECONDS,
    }


def stats(rows: Sequence[Row]) -> dict[str, Any]:
    """The four figures on top; `oldest` is None where no drill has ended with a result."""
    verdicts = [row.judged.verdict for row in rows]
    ended = [(row.judged.drill.finished_at, row) for row in rows if row.judged.drill and row.judged.drill.finished_at]
    return {
        "ready": verdicts.count(Verdict.READY),
        "unproven": sum(row.skipped_step is not None or row.judged.verdict in UNPROVEN for row in rows),
        "undrilled": sum(row.judged.drill is None for row in rows),
        "oldest": min(ended, key=lambda pair: pair[0])[1] if ended else None,
    }


def _chart_run(request: HttpRequest, rows: Sequence[Row]) -> Row | None:
    """The run that the URL names; else the worst one with a drill to show."""
    wanted = request.GET.get("run", "")
    named = next((row for row in rows if row.run.pk == wanted), None)
    measured = (row for row in rows if row.judged.drill and row.judged.drill.seconds is not None)
    return named or next(measured, None)
