"""`/analysis/advice/`: how often to save, spares, and what failures cost, with the source of every input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse

from apps.checkpoints.models import TrainingRun
from apps.core import units
from apps.dashboard import pages
from apps.dashboard.charts import advice as charts
from apps.dashboard.forms import AdviceForm
from apps.fleet.access import scoped
from apps.recovery.advice import Advice, Input, Source, advise
from apps.recovery.advice_inputs import inputs_of

TONES = {Source.MEASURED: "ok", Source.GIVEN: "info", Source.ASSUMED: "warn", Source.MISSING: "none"}
UNKNOWN = "not known"


@dataclass(frozen=True)
class InputRow:
    label: str
    value: str
    source: str
    tone: str
    how: str


@pages.page
def advice(request: HttpRequest) -> HttpResponse:
    rows = TrainingRun.objects.filter(archived_at=None).select_related("cluster").order_by("name")
    runs = list(scoped(request, rows, "cluster")[:500])
    wanted = request.GET.get("run", "")
    run: TrainingRun | None = pages.find(request, rows, "cluster", wanted) if wanted else next(iter(runs), None)
    context: dict[str, Any] = {"runs": runs, "run": run}
    if run:
        context |= _context(request, run)
    return pages.show(request, "dashboard/analysis_advice.html", context, charts=bool(run))


def advice_of(request: HttpRequest, run: TrainingRun) -> tuple[AdviceForm, dict[str, float], Advice]:
    """The advice with what the URL gives; a value that is no number counts as not given, and the form says so."""
    form = AdviceForm(request.GET)
    form.is_valid()
    asked = {name: value for name, value in form.cleaned_data.items() if value is not None}
    return form, asked, advise(inputs_of(run, asked))


def _context(request: HttpRequest, run: TrainingRun) -> dict[str, Any]:
    form, asked, found = advice_of(request, run)
    return {
        "form": form,
        "asked": asked,
        "chart": charts.chart(found, charts.url_of(run.pk, asked)),
        "cost_verdict": cost_verdict(found),
        "cost_rows": list(_cost_rows(found)),
        "interval_rows": _interval_rows(found),
        "interval_is_advised": found.inputs.interval_seconds.value is None and found.interval.advised_seconds,
        "input_rows": [_input_row(label, one) for label, one in _inputs(found)],
    }


def cost_verdict(found: Advice) -> str:
    now, then = found.today.gpu_hours_per_month, found.objective.gpu_hours_per_month
    if now is None:
        return f"What failures cost is {UNKNOWN} yet; the table of inputs says what is missing."
    cost = f", {found.today.cost_per_month:,.0f} in money" if found.today.cost_per_month is not None else ""
    begin = f"A month's failures take {now:,.0f} GPU-hours{cost}"
    if then is None:
        return f"{begin}; there is no objective to compare with."
    if then >= now:
        return f"{begin}; the time to resume is within the objective already."
    saved = now - then
    money = ""
    if found.today.cost_per_month is not None and found.objective.cost_per_month is not None:
        money = f", {found.today.cost_per_month - found.objective.cost_per_month:,.0f} in money"
    return f"{begin}; at the objective it would be {saved:,.0f} GPU-hours less{money}."


def _cost_rows(found: Advice) -> Any:
    both = (found.today, found.objective)
    yield "Time to resume", *(_seconds(one.resume_seconds) for one in both)
    yield "Trains, at today's interval", *(_ratio(one.training_ratio) for one in both)
    yield "Trains, at the advised interval", *(_ratio(one.best_training_ratio) for one in both)
    yield "GPU-hours per failure", *(_count(one.gpu_hours_per_failure) for one in both)
    yield "GPU-hours per month", *(_count(one.gpu_hours_per_month) for one in both)
    yield "Money per failure", *(_count(one.cost_per_failure) for one in both)
    yield "Money per month", *(_count(one.cost_per_month) for one in both)


def _interval_rows(found: Advice) -> list[tuple[str, str]]:
    interval, monthly = found.interval, found.failures_per_month
    return [
        ("Advised between saves", _seconds(interval.advised_seconds)),
        ("Young's formula", _seconds(interval.young_seconds)),
        ("Daly's formula", _seconds(interval.daly_seconds)),
        ("Between saves today", _seconds(found.inputs.interval_seconds.value)),
        ("Failures per month", UNKNOWN if monthly is None else f"{monthly:,.1f}"),
        ("Spare nodes (99 % sure)", UNKNOWN if found.spare_node_count is None else f"{found.spare_node_count:,}"),
    ]


def _inputs(found: Advice) -> list[tuple[str, tuple[Input, str]]]:
    given = found.inputs
    return [
        ("GPUs", (given.gpu_count, _number(given.gpu_count))),
        ("GPUs per node", (given.gpus_per_node, _number(given.gpus_per_node))),
        ("Cost of a GPU-hour", (given.gpu_hour_cost, _number(given.gpu_hour_cost))),
        ("Failures per node and day", (given.failures_per_node_day, _number(given.failures_per_node_day))),
        ("Time between failures", (found.mtbf, _seconds(found.mtbf.value))),
        ("A save holds training up", (given.save_seconds, _seconds(given.save_seconds.value))),
        ("A whole save takes", (given.whole_save_seconds, _seconds(given.whole_save_seconds.value))),
        ("Between saves today", (given.interval_seconds, _seconds(given.interval_seconds.value))),
        ("Time to resume today", (given.resume_seconds, _seconds(given.resume_seconds.value))),
        ("Objective", (given.objective_seconds, _seconds(given.objective_seconds.value))),
        ("Repair of a node, hours", (given.repair_hours, _number(given.repair_hours))),
    ]


def _input_row(label: str, one: tuple[Input, str]) -> InputRow:
    found, value = one
    return InputRow(label, value, found.source.value, TONES[found.source], found.how)


def _seconds(value: float | None) -> str:
    return UNKNOWN if value is None else units.duration(value)


def _ratio(value: float | None) -> str:
    return UNKNOWN if value is None else units.percent(value)


def _count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def _number(one: Input) -> str:
    return UNKNOWN if one.value is None else f"{one.value:,g}"
