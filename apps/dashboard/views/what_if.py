"""`/analysis/what-if/`: the predictor for sizes and reader counts that were never drilled, and backwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse

from apps.core import units
from apps.dashboard import pages
from apps.dashboard.charts import what_if as charts
from apps.dashboard.forms import WhatIfForm
from apps.fleet.access import scoped
from apps.recovery.what_if import Answer, Question, TierModel, answers, question, standard_questions, tier_model
from apps.storage.models import StorageTier

TYPICAL = (912_000_000_000, 64)
"""70B with optimizer state on 8 nodes."""


@dataclass(frozen=True)
class Row:
    name: str
    size: str
    ranks: int
    readers: int
    seconds: str
    storage: str
    rate: str
    needed: str
    is_late: bool
    is_beyond_measured: bool


@pages.page
def what_if(request: HttpRequest) -> HttpResponse:
    rows = StorageTier.objects.select_related("cluster").order_by("cluster__name", "speed_order", "name")
    tiers = list(scoped(request, rows, "cluster")[:500])
    wanted = request.GET.get("tier", "")
    tier: StorageTier | None = pages.find(request, rows, "cluster", wanted) if wanted else next(iter(tiers), None)
    context: dict[str, Any] = {"tiers": tiers, "tier": tier}
    if tier:
        context |= _context(request, tier)
    return pages.show(request, "dashboard/analysis_what_if.html", context, charts=bool(tier))


def _context(request: HttpRequest, tier: StorageTier) -> dict[str, Any]:
    form = WhatIfForm(request.GET)
    form.is_valid()
    asked = form.cleaned_data
    objective = asked.get("objective_seconds")
    known = tier_model(tier)
    questions = [*_own(asked), *standard_questions()]
    context: dict[str, Any] = {
        "form": form,
        "asked": any(value is not None for value in asked.values()),
        "known": known,
        "objective": objective,
        "rows": [_row(one, objective) for one in answers(known, questions, objective)],
        "basis": basis(known),
        "can_operate": pages.operates(request, tier.cluster_id),
    }
    if known.model is not None:
        url = charts.url_of("honesty", tier.pk)
        context["honesty"] = charts.honesty_chart(known.checked, known.error, url)
        url = charts.url_of("readers", tier.pk, objective_seconds=objective)
        context["readers"] = charts.readers_chart(known.model, known.other_seconds, url)
        told = asked_about(asked)
        url = charts.url_of("levers", tier.pk, **{name: asked.get(name) for name in ("gigabytes", "ranks", "readers")})
        found = charts.levers(known.model, known.other_phases, told)
        context["levers"] = charts.levers_chart(found, base_of(known, told), told, url)
    return context


def asked_about(asked: dict[str, Any]) -> Question:
    """The question of one's own, else the middle of the standard ones."""
    return next(iter(_own(asked)), question(*TYPICAL))


def base_of(known: TierModel, about: Question) -> float:
    return answers(known, [about], None)[0].seconds


def _own(asked: dict[str, Any]) -> list[Question]:
    if not asked.get("gigabytes") or not asked.get("ranks"):
        return []
    total_bytes = int(asked["gigabytes"] * 1e9)
    return [question(total_bytes, asked["ranks"], reader_count=asked.get("readers"), name="yours")]


def _row(one: Answer, objective: float | None) -> Row:
    need = one.need
    return Row(
        name=one.question.name,
        size=units.size(one.question.total_bytes),
        ranks=one.question.rank_count,
        readers=one.question.reader_count,
        seconds=units.duration(one.seconds),
        storage=units.duration(one.storage_seconds),
        rate=units.rate(one.question.total_bytes / one.storage_seconds),
        needed="" if need is None else need_words(need.bytes_per_second, need.reader_count),
        is_late=objective is not None and one.seconds > objective,
        is_beyond_measured=one.is_beyond_measured,
    )


def need_words(bytes_per_second: float | None, reader_count: int | None) -> str:
    if bytes_per_second is None:
        return "the other phases alone take longer"
    if reader_count is None:
        return f"{units.rate(bytes_per_second)}, more than was measured here"
    return f"{units.rate(bytes_per_second)}, {reader_count:,} reader{'' if reader_count == 1 else 's'}"


def basis(known: TierModel) -> str:
    """What stands behind the numbers, in one sentence."""
    model = known.model
    if model is None:
        return "Nothing was ever read from this tier by a drill or a ceiling measurement, so nothing is predicted."
    if model.reading_count:
        rounds = "1 round" if model.reading_count == 1 else f"{model.reading_count} rounds"
        begin = f"From {rounds} of drills here: {units.percent(model.efficiency_ratio)} of the ceiling"
        if model.fixed_seconds:
            begin += f" and {units.duration(model.fixed_seconds)} that no byte explains"
    else:
        begin = "No drill read this tier: the read floor alone, which no restore beats"
    if known.other_seconds is None:
        return f"{begin}. Storage part only: no restart was ever timed on {known.tier.cluster.name}."
    restarts = "1 restart" if known.restart_count == 1 else f"{known.restart_count} restarts"
    return f"{begin}; the other phases add {units.duration(known.other_seconds)}, the median of {restarts}."
