"""The predictor: how honest it was, and where more readers stop helping. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import Any
from urllib.parse import urlencode

from apps.core import units
from apps.core.phases import LABELS, Phase
from apps.dashboard.charts.figure import Chart, Figure, hatch, horizontal_line, layout
from apps.recovery.scaling import MIN_FOR_SHOWN_ERROR, SIZES, Checked, Error, Model
from apps.recovery.what_if import Question

MAX_DOTS = 500
READER_STEPS = 12


def url_of(name: str, tier_id: str, **asked: float | None) -> str:
    """`asked`: what the form has, as far as it was given."""
    given = {key: str(value) for key, value in asked.items() if value is not None}
    return f"/charts/{name}.json?{urlencode({'tier': tier_id, **given})}"


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


# -- what moves it most ------------------------------------------------------------------------------------------------
VARIED = 0.2


def levers(model: Model, other_phases: Mapping[str, float], asked: Question) -> list[tuple[str, float, float]]:
    """(name, seconds with it a fifth better, with it a fifth worse) of everything that the prediction is made of, the
    one that moves it most first. Better is more bandwidth, and less time of a phase."""

    def storage(rate: float = 1.0, fixed: float = 1.0) -> float:
        reading = asked.total_bytes / (model.rates.of(asked.reader_count) * model.efficiency_ratio * rate)
        return model.fixed_seconds * fixed + reading

    others = sum(other_phases.values())
    less, more = 1 - VARIED, 1 + VARIED
    found = [
        ("Bandwidth that is reached", storage(rate=more) + others, storage(rate=less) + others),
        ("Storage time that no byte explains", storage(fixed=less) + others, storage(fixed=more) + others),
    ]
    base = storage() + others
    found += [
        (LABELS[Phase(name)], base - VARIED * seconds, base + VARIED * seconds)
        for name, seconds in other_phases.items()
    ]
    moving = [lever for lever in found if lever[2] - lever[1] > 0.001 * base]
    return sorted(moving, key=lambda lever: lever[1] - lever[2])


def levers_figure(found: Sequence[tuple[str, float, float]], base: float) -> Figure:
    """A bar for each lever from its better to its worse side, around the prediction."""
    names = [name for name, _low, _high in found]
    sides = (
        ("a fifth better", [low for _name, low, _high in found], "var(--accent)", ""),
        ("a fifth worse", [high for _name, _low, high in found], "var(--warn)", "/"),
    )
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": side,
            "y": names,
            "x": [round(value - base, 6) for value in values],
            "base": [round(base, 6)] * len(found),
            "marker": {"color": colour, "pattern": hatch(shape)},
            "customdata": [round(value, 3) for value in values],
            "hovertemplate": "%{y}, " + side + ": %{customdata:.1f} s<extra></extra>",
        }
        for side, values, colour, shape in sides
    ]
    frame = layout(x_title="predicted seconds", y_title="", height=levers_height(found), barmode="overlay", bargap=0.35)
    frame["xaxis"]["rangemode"] = "normal"
    frame["yaxis"] |= {"type": "category", "autorange": "reversed", "gridcolor": "rgba(0,0,0,0)"}
    frame["legend"] |= {"y": -0.32}
    return {"data": traces, "layout": frame}


def levers_height(found: Sequence[tuple[str, float, float]]) -> int:
    return max(240, 130 + 28 * len(found))


def levers_chart(found: Sequence[tuple[str, float, float]], base: float, asked: Question, url: str) -> Chart:
    return Chart(
        name="levers",
        title="What moves it most",
        verdict=levers_words(found, base, asked),
        url=url,
        headers=("A fifth of", "Better", "Worse", "Saves"),
        rows=tuple(
            (name, units.duration(low), units.duration(high), units.duration(base - low)) for name, low, high in found
        ),
        height=levers_height(found),
    )


def levers_words(found: Sequence[tuple[str, float, float]], base: float, asked: Question) -> str:
    if not found:
        return "Nothing that was measured moves the prediction."
    name, low, _high = found[0]
    readers = "1 node" if asked.reader_count == 1 else f"{asked.reader_count:,} nodes"
    what = f"{units.size(asked.total_bytes)} to {readers}, {units.duration(base)}"
    return f"For {what}: {name.lower()} moves it most; a fifth better saves {units.duration(base - low)}."
