"""How much of the time trains, over the time between saves. Pure."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from apps.core import units
from apps.dashboard.charts.figure import Chart, Figure, layout, vertical_line
from apps.recovery.advice import Advice, Scenario
from apps.recovery.advisor import effective_training_ratio

POINTS = 41
REACH = 8.0
"""The curve goes from an eighth of the advised interval to eight times it."""


def url_of(run_id: str, asked: dict[str, Any]) -> str:
    return f"/charts/advice.json?{urlencode({'run': run_id, **asked})}"


def curve(advice: Advice, scenario: Scenario) -> list[tuple[float, float]]:
    """(seconds between saves, share that trains); empty where an input is missing."""
    advised, save = advice.interval.advised_seconds, advice.inputs.save_seconds.value
    mtbf, resume = advice.mtbf.value, scenario.resume_seconds
    if not advised or not save or not mtbf or resume is None:
        return []
    steps = [advised * REACH ** (2 * number / (POINTS - 1) - 1) for number in range(POINTS)]
    return [(every, effective_training_ratio(save, resume, mtbf, every)) for every in steps]


def figure(advice: Advice) -> Figure:
    lines = [
        _line("at today's time to resume", curve(advice, advice.today), "var(--warn)", "solid"),
        _line("at the objective", curve(advice, advice.objective), "var(--accent)", "dash"),
    ]
    marks = [
        vertical_line(seconds / 60, text)
        for seconds, text in (
            (advice.interval.advised_seconds, "advised"),
            (advice.inputs.interval_seconds.value, "today"),
        )
        if seconds
    ]
    frame = layout(
        x_title="minutes between saves",
        y_title="share of the time that trains",
        shapes=[shape for shape, _note in marks],
        annotations=[note for _shape, note in marks],
    )
    frame["yaxis"] |= {"tickformat": ".0%", "rangemode": "normal"}
    return {"data": [line for line in lines if line["x"]], "layout": frame}


def _line(name: str, points: list[tuple[float, float]], colour: str, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [round(every / 60, 4) for every, _ratio in points],
        "y": [round(ratio, 6) for _every, ratio in points],
        "line": {"color": colour, "width": 2, "dash": dash},
        "hovertemplate": "%{x:.1f} min: %{y:.1%}<extra></extra>",
    }


def chart(advice: Advice, url: str) -> Chart:
    today, objective = curve(advice, advice.today), curve(advice, advice.objective)
    shown = today or objective
    return Chart(
        name="advice",
        title="How often to save",
        verdict=verdict(advice),
        url=url,
        headers=("Between saves", "Trains, at today's time to resume", "Trains, at the objective"),
        rows=tuple(
            (
                units.duration(shown[number][0]),
                units.percent(today[number][1]) if today else units.NOT_MEASURED,
                units.percent(objective[number][1]) if objective else "no objective",
            )
            for number in range(0, len(shown), 5)
        ),
    )


def verdict(advice: Advice) -> str:
    interval, today = advice.interval, advice.inputs.interval_seconds.value
    if interval.advised_seconds is None:
        return "How often to save cannot be said: " + _lacks(advice) + "."
    why = ", as long as one whole save takes" if interval.is_held_by_save else ""
    begin = f"Save every {units.duration(interval.advised_seconds)}{why}"
    if today is None:
        return f"{begin}; how often it saves today is not measured."
    best, now = advice.today.best_training_ratio, advice.today.training_ratio
    gain = ""
    if best is not None and now is not None:
        gain = f": {units.percent(best)} of the time would train, {units.percent(now)} does at today's interval"
    return f"{begin}, not every {units.duration(today)}{gain}."


def _lacks(advice: Advice) -> str:
    lacks = []
    if not advice.inputs.save_seconds.value:
        lacks.append("how long a save takes is not known")
    if not advice.mtbf.value:
        lacks.append("how often it fails is not known")
    return " and ".join(lacks)
