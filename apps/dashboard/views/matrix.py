"""`/analysis/tiers/`: tiers side by side; an empty cell offers the drill that fills it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.core import units
from apps.dashboard import pages
from apps.dashboard.charts import stored
from apps.dashboard.selectors import analysis
from apps.drills.models import DrillKind
from apps.fleet.access import scoped
from apps.recovery.matrix import MAX_TIERS, Column, columns
from apps.storage.models import StorageTier


@dataclass(frozen=True)
class Cell:
    """`text` empty: not measured, and `fill_url` leads to the drill that would (empty where this user may not)."""

    label: str
    text: str = ""
    detail: str = ""
    drill_id: str = ""
    fill_url: str = ""
    fill_word: str = ""


@dataclass(frozen=True)
class Row:
    tier: StorageTier
    cells: tuple[Cell, ...]


@pages.page
def matrix(request: HttpRequest) -> HttpResponse:
    rows = StorageTier.objects.select_related("cluster").order_by("cluster__name", "speed_order", "name")
    tiers = list(scoped(request, rows, "cluster")[:MAX_TIERS])
    found = columns(tiers)
    operable = pages.operable(request, {tier.cluster_id for tier in tiers})
    context: dict[str, Any] = {
        "rows": [_row(one, may_drill=one.tier.cluster_id in operable) for one in found],
        "verdict": verdict(found),
        "stored": stored.chart(analysis.stored(request), reverse("chart", args=["stored"])),
    }
    drawn = not context["stored"].is_empty
    return pages.show(request, "dashboard/analysis_tiers.html", context, charts=drawn)


def verdict(found: Sequence[Column]) -> str:
    measured = sorted((one for one in found if one.rate), key=lambda one: -(one.rate or 0.0))
    gaps = sum(len(one.missing) for one in found)
    cells = "1 cell is" if gaps == 1 else f"{gaps} cells are"
    rest = f" {cells} not measured." if gaps else ""
    if not measured:
        return f"No tier was measured by a drill in the last 90 days.{rest}"
    best = measured[0]
    begin = f"{best.tier.name} reads fastest, {units.rate(best.rate)} with {_nodes(best.rate_clients)}"
    if len(measured) > 1 and best.rate and measured[-1].rate:
        begin += f", {best.rate / measured[-1].rate:.1f} times {measured[-1].tier.name}"
    return f"{begin}.{rest}"


def _row(one: Column, *, may_drill: bool) -> Row:
    ladder = ""
    if one.ladder_clients:
        ladder = _nodes(one.knee_clients) if one.knee_clients else "none"
    cpu = "" if one.cpu_seconds_per_gb is None else f"{one.cpu_seconds_per_gb:.2f}"
    cells = (
        _cell(one, may_drill, "rate", "Best rate", _rate(one), f"with {_nodes(one.rate_clients)}", one.rate_drill),
        _cell(one, may_drill, "reload_seconds", "Time to reload", _seconds(one), _bytes(one), one.reload_drill),
        _cell(one, may_drill, "knee_clients", "Stops scaling at", ladder, _up_to(one), one.ladder_drill),
        _cell(one, may_drill, "cpu_seconds_per_gb", "CPU s/GB", cpu, "", None),
    )
    return Row(one.tier, cells)


def _cell(one: Column, may_drill: bool, figure: str, label: str, text: str, detail: str, drill_id: str | None) -> Cell:
    kind = one.missing.get(figure)
    if kind is None:
        return Cell(label, text, detail, drill_id or "")
    if not may_drill:
        return Cell(label)
    if one.run_id is None:
        return Cell(label, detail="no copy to drill")
    asked = {"run": one.run_id, "kind": kind, "tier": one.tier.pk}
    word = "drill a herd" if kind == DrillKind.HERD else "drill a reload"
    return Cell(label, fill_url=f"{reverse('drill-start')}?{urlencode(asked)}", fill_word=word)


def _nodes(count: int | None) -> str:
    return "1 node" if count == 1 else f"{count or 0:,} nodes"


def _rate(one: Column) -> str:
    return units.rate(one.rate) if one.rate is not None else ""


def _seconds(one: Column) -> str:
    return units.duration(one.reload_seconds) if one.reload_seconds is not None else ""


def _bytes(one: Column) -> str:
    return f"for {units.size(one.reload_bytes)}" if one.reload_bytes else ""


def _up_to(one: Column) -> str:
    return "" if one.knee_clients else f"up to {_nodes(one.ladder_clients)}"
