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
from apps.dashboard.views import first_steps
from apps.drills.models import Drill
from apps.fleet.models import Cluster
from apps.recovery.readiness import ReadinessRow, gpus_of, summary
from apps.recovery.verdict import Verdict

BUSY_SECONDS = 2
IDLE_SECONDS = 15
UNPROVEN = (Verdict.NOTHING_RESUMABLE, Verdict.NOT_PROVEN)
PAGE_RUNS = 60
YOUNG_RUNS = 10
"""With more runs than that an installation is past its first steps."""
WALL_RUNS = 12
"""As many as a screen holds in letters that are read across a room; the others show as chips."""


@pages.page
def readiness(request: HttpRequest) -> HttpResponse:
    context = {**_context(request), "has_live": True}
    if _on_wall(request):
        return render(request, "dashboard/readiness_wall.html", context)
    context |= _first_steps(request, context["rows"])
    chosen = _chart_run(request, context["rows"])
    if chosen is not None:
        kind, points = analysis.telling(chosen.run)
        context |= {"chart_run": chosen.run, "chart": rto.chart(points, kind, rto.url_of(chosen.run.pk, kind))}
    return pages.show(request, "dashboard/readiness.html", context, charts=chosen is not None)


@pages.page
def readiness_live(request: HttpRequest) -> HttpResponse:
    part = "readiness_wall" if _on_wall(request) else "readiness_live"
    return render(request, f"dashboard/parts/{part}.html", _context(request))


def _proves_every_step(row: ReadinessRow) -> bool:
    """Who has drilled a proven copy has been through all of the first steps; then nothing needs to be read for them."""
    return row.drill is not None and row.drill.outcome == Drill.Outcome.PASSED and row.is_proven


def _first_steps(request: HttpRequest, rows: Sequence[Row]) -> dict[str, Any]:
    """In full while no run is known, then as one line until all are done."""
    if not rows:
        return first_steps.context_of(request)
    if len(rows) > YOUNG_RUNS or any(_proves_every_step(row.judged) for row in rows):
        return {}
    return first_steps.line_of(request)


def _on_wall(request: HttpRequest) -> bool:
    return request.GET.get("wall") == "1"


def _context(request: HttpRequest) -> dict[str, Any]:
    rows, total = selectors.rows(request)
    drilling = any(row.run.is_drilling for row in rows)
    return {
        "rows": rows,
        "wall_rows": rows[:WALL_RUNS],
        "rest": rows[WALL_RUNS:],
        **_page_of(request, rows),
        "run_total": total,
        "unproven": sum(row.skipped_step is not None or row.judged.verdict in UNPROVEN for row in rows),
        "oldest": _oldest_drilled(rows),
        "unpriced": _unpriced(rows),
        "may_drill": any(row.can_drill for row in rows),
        "drill_days": settings.DRILL_DAYS,
        "live_seconds": BUSY_SECONDS if drilling else IDLE_SECONDS,
        **summary([row.judged for row in rows]),
    }


def _page_of(request: HttpRequest, rows: Sequence[Row]) -> dict[str, Any]:
    """The rows of the page that the URL names; the last page for a number beyond it, the first for what is none."""
    wanted = request.GET.get("page", "")
    count = max(1, -(-len(rows) // PAGE_RUNS))
    number = min(max(1, int(wanted)), count) if wanted.isascii() and wanted.isdigit() and len(wanted) < 6 else 1
    first = PAGE_RUNS * (number - 1)
    return {
        "shown": rows[first : first + PAGE_RUNS],
        "first_row": first + 1,
        "last_row": min(first + PAGE_RUNS, len(rows)),
        "page_number": number,
        "page_count": count,
        "previous_page": number - 1,
        "next_page": number + 1,
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
