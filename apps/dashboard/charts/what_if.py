"""The predictor: how honest it was, and where more readers stop helping. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Any
from urllib.parse import urlencode

from apps.core import units
from apps.dashboard.charts.figure import Chart, Figure, horizontal_line, layout
from apps.recovery.scaling import MIN_FOR_SHOWN_ERROR, SIZES, Checked, Error, Model

MAX_DOTS = 500
READER_STEPS = 12


def url_of(name: str, tier_id: str, objective: float | None = None) -> str:
    asked = {"tier": tier_id} | ({"objective_seconds": objective} if objective else {})
    return f"/charts/{name}.json?{urlencode(asked)}"


# -- predicted against measured ----------------------------------------------------------------------------------------
def honesty_figure(checked: Sequence[Checked]) -> Figure:
    shown = checked[-MAX_DOTS:]
    measured = [one.reading.seconds for one in shown]
    predicted = [one.predicted_seconds for one in shown]
    top = max([*measured, *predicted], default=1.0) * 1.05
    lines = [
        _line(name, [0, top], [0, top * ratio], colour, dash)
        for name, ratio, colour, dash in (
            ("exact", 1.0, "var(--mute)", "solid"),
            ("20 % more", 1.2, "var(--edge)", "dot"),
            ("20 % less", 0.8, "var(--edge)", "dot"),
        )
    ]
    dots = {
        "type": "scatter",
        "mode": "markers",
        "name": "drills",
        "x": [round(value, 6) for value in measured],
        "y": [round(value, 6) for value in predicted],
        "marker": {"size": 9, "color": "var(--accent)"},
        "hovertemplate": "measured %{x:.2f} s, predicted %{y:.2f} s<extra></extra>",
    }
    return {"data": [*lines, dots], "layout": layout(x_title="measured, seconds", y_title="predicted, seconds")}


def honesty_chart(checked: Sequence[Checked], error: Error | None, url: str) -> Chart:
    return Chart(
        name="honesty",
        title="Predicted and measured",
        verdict=error_words(error),
        url=url,
        headers=("Bytes", "Readers", "Measured", "Predicted before", "Off by"),
        rows=tuple(
            (
                units.size(one.reading.total_bytes),
                f"{one.reading.reader_count:,}",
                units.duration(one.reading.seconds),
                units.duration(one.predicted_seconds),
                f"{100 * (one.predicted_seconds / one.reading.seconds - 1):+.0f} %",
            )
            for one in reversed(checked[-MAX_DOTS:])
        ),
    )


def error_words(error: Error | None) -> str:
    """Its own error on past drills; below eight it is no calibration, and says so."""
    if error is None:
        return "Its error is not measured: it takes four drills of this tier, each predicted from those before it."
    side = "too long" if error.bias_ratio >= 0 else "too short"
    drills = "1 drill" if error.count == 1 else f"{error.count} drills"
    begin = (
        f"Off by {100 * error.mape_ratio:.0f} % on average over {drills}, "
        f"{100 * abs(error.bias_ratio):.0f} % {side} altogether"
    )
    few = f"; fewer than {MIN_FOR_SHOWN_ERROR} drills say little" if error.count < MIN_FOR_SHOWN_ERROR else ""
    return f"{begin}{few}."


# -- time over readers -------------------------------------------------------------------------------------------------
def reader_counts(model: Model) -> list[int]:
    """Powers of two up to four times what was measured, and the measured ones."""
    most = 4 * model.rates.measured_readers
    doubling = [1 << power for power in range(READER_STEPS) if 1 << power <= most]
    return sorted({*doubling, *(one.reader_count for one in model.rates.points)})


def readers_figure(model: Model, other_seconds: float | None, objective_seconds: float | None) -> Figure:
    counts = reader_counts(model)
    colours = ("var(--accent)", "var(--warn)", "var(--ok)", "var(--bad)")
    dashes = ("solid", "dash", "dot", "dashdot")
    traces = [
        _line(name, counts, [model.seconds(size, count) + (other_seconds or 0.0) for count in counts], colour, dash)
        for (name, size), colour, dash in zip(SIZES, colours, dashes, strict=True)
    ]
    frame = layout(x_title="nodes reading at once", y_title="seconds")
    if objective_seconds:
        shape, note = horizontal_line(objective_seconds, f"objective {units.duration(objective_seconds)}")
        frame |= {"shapes": [shape], "annotations": [{**note, "y": log10(objective_seconds)}]}
        frame["margin"] = {**frame["margin"], "r": 92}
    frame["xaxis"] |= {"type": "log", "tickvals": counts, "ticktext": [f"{count:,}" for count in counts]}
    frame["yaxis"] |= {"type": "log", "rangemode": "normal", "dtick": 1}
    return {"data": traces, "layout": frame}


def readers_chart(model: Model, other_seconds: float | None, url: str) -> Chart:
    counts = reader_counts(model)
    return Chart(
        name="readers",
        title="Time over readers",
        verdict=readers_words(model),
        url=url,
        headers=("Nodes reading", *(f"{name}, {units.size(size)}" for name, size in SIZES)),
        rows=tuple(
            (
                f"{count:,}",
                *(units.duration(model.seconds(size, count) + (other_seconds or 0.0)) for _name, size in SIZES),
            )
            for count in counts
        ),
    )


def readers_words(model: Model) -> str:
    limits = model.rates
    nodes = "1 node" if limits.measured_readers == 1 else f"{limits.measured_readers:,} nodes"
    best = f"{nodes} together were measured to read {units.rate(limits.together)}"
    if limits.has_knee:
        return f"{best}; more readers help no further."
    return (
        f"{best}, and it still scaled: a herd of more nodes would show where it stops. Until then no more is assumed."
    )


def _line(name: str, x: Sequence[float], y: Sequence[float], colour: str, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [round(value, 6) for value in x],
        "y": [round(value, 6) for value in y],
        "line": {"color": colour, "width": 2, "dash": dash},
        "hovertemplate": "%{x}: %{y:.1f} s<extra>" + name + "</extra>",
    }
