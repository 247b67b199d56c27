"""How long it takes, over time: phases stacked per drill against the objective, and the spread. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any
from urllib.parse import urlencode

from apps.core import units
from apps.core.phases import LABELS, Phase, ordered
from apps.dashboard.charts.figure import MARGIN, Chart, Figure, hatch, horizontal_line, layout
from apps.dashboard.palette import PHASE_INKS, variable
from apps.recovery import rto as statistics
from apps.recovery.trials import Summary

GREW_RATIO = 1.25
MIN_TO_COMPARE = 4


@dataclass(frozen=True)
class Point:
    """One drill that restored. `phases` are critical-path seconds; what they leave of `seconds` is not attributed.
    `of_week`: it stands for so many drills of its week, whose median it is; 0: for itself. `efficiency_ratio`: what it
    reached of the measured ceiling; `foretold_seconds`: what the predictor made of the drills before it; None where
    that is not known."""

    drill_id: str
    at: datetime
    seconds: float
    phases: Mapping[str, float]
    objective_seconds: float | None
    breached: bool
    of_week: int = 0
    efficiency_ratio: float | None = None
    foretold_seconds: float | None = None


def url_of(run_id: str, kind: str, name: str = "rto", **more: str) -> str:
    return f"/charts/{name}.json?{urlencode({'run': run_id, 'kind': kind, **more})}"


def measure_of(kind: str) -> str:
    """What the number is called: only a failover measures all of the way back."""
    return "Time to resume" if kind == "failover" else "Time to reload, storage part only"


def objective_of(points: Sequence[Point]) -> float | None:
    """The newest objective; each drill was judged by its own copy."""
    return next((point.objective_seconds for point in reversed(points) if point.objective_seconds), None)


# -- phases stacked per drill ------------------------------------------------------------------------------------------
def figure(points: Sequence[Point], kind: str) -> Figure:
    labels = _labels(points)
    traces = [_phase(phase, points, labels) for phase in LABELS if any(phase in point.phases for point in points)]
    rest = [max(0.0, point.seconds - sum(point.phases.values())) for point in points]
    if any(value > 0.01 * point.seconds for value, point in zip(rest, points, strict=True)):
        traces.append(_bars("Not attributed", labels, rest, {"color": "var(--none-bg)", "line": _EDGE}))
    late = [(label, point.seconds) for label, point in zip(labels, points, strict=True) if point.breached]
    if late:
        traces.append(_breaches(late))
    if any(point.foretold_seconds is not None for point in points):
        traces.append(_foretold(labels, points))
    frame = layout(
        x_title="",
        y_title="seconds",
        barmode="stack",
        bargap=max(0.4, 1 - 0.05 * len(points)),
        showlegend=False,
        **_objective(points),
    )
    frame["xaxis"] |= {"type": "category", "nticks": 12, "tickangle": 0, "gridcolor": "rgba(0,0,0,0)"}
    return {"data": traces, "layout": frame}


def _objective(points: Sequence[Point]) -> dict[str, Any]:
    seconds = objective_of(points)
    if seconds is None:
        return {}
    shape, note = horizontal_line(seconds, f"objective {units.duration(seconds)}")
    return {"shapes": [shape], "annotations": [note], "margin": {**MARGIN, "r": 88}}


def _labels(points: Sequence[Point]) -> list[str]:
    """One label for each bar; two within one minute are told apart by their seconds."""
    minutes = [_week(point) or f"{point.at:%d %b %H:%M}" for point in points]
    return [
        f"{point.at:%d %b %Y %H:%M:%S}" if minutes.count(text) > 1 else text
        for point, text in zip(points, minutes, strict=True)
    ]


def _week(point: Point) -> str:
    """Empty for a drill that stands for itself alone."""
    return f"week of<br>{point.at:%d %b %y}" if point.of_week else ""


def _phase(phase: Phase, points: Sequence[Point], labels: Sequence[str]) -> dict[str, Any]:
    values = [dict(ordered(point.phases))[phase] for point in points]
    ink = {"color": variable(phase), "pattern": hatch(PHASE_INKS[phase].hatch)}
    return _bars(LABELS[phase], labels, values, ink)


def _bars(name: str, x: Sequence[str], y: Sequence[float | None], ink: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": name,
        "x": list(x),
        "y": [None if value is None else round(value, 6) for value in y],
        "marker": ink,
        "hovertemplate": f"%{{x}}<br>{name} %{{y:.3f}} s<extra></extra>",
    }


def _breaches(late: Sequence[tuple[str, float]]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "breached",
        "x": [label for label, _seconds in late],
        "y": [round(seconds, 6) for _label, seconds in late],
        "marker": {
            "symbol": "triangle-up",
            "size": 11,
            "color": "var(--warn)",
            "line": {"color": "var(--card)", "width": 1},
        },
        "hovertemplate": "%{x}<br>breached: %{y:.3f} s<extra></extra>",
    }


def _foretold(labels: Sequence[str], points: Sequence[Point]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "predicted before it",
        "x": list(labels),
        "y": [None if point.foretold_seconds is None else round(point.foretold_seconds, 6) for point in points],
        "marker": {"symbol": "diamond-open", "size": 9, "color": "var(--ink)", "line": {"width": 1.5}},
        "hovertemplate": "%{x}<br>predicted before it: %{y:.3f} s<extra></extra>",
    }


def chart(points: Sequence[Point], kind: str, url: str, weeks: Sequence[Point] = ()) -> Chart:
    """`weeks`: drills that stand for the weeks before `points`."""
    phases = _seen([*weeks, *points])
    reads, guessed = kind != "failover", any(point.foretold_seconds is not None for point in points)
    older = sum(point.of_week for point in weeks)
    return Chart(
        name="rto",
        title=measure_of(kind),
        verdict=verdict(points, kind),
        url=url,
        headers=(
            "Drill",
            "In all",
            "Objective",
            *(("Predicted before",) if guessed else ()),
            *(("Of the ceiling",) if reads else ()),
            *(LABELS[phase] for phase in phases),
            "Not attributed",
        ),
        rows=tuple(_row(point, phases, reads=reads, guessed=guessed) for point in reversed([*weeks, *points])),
        note=_note(points, older, guessed=guessed),
    )


def _note(points: Sequence[Point], older: int, *, guessed: bool) -> str:
    parts = []
    if older:
        parts.append(
            f"The newest {len(points):,} of {len(points) + older:,} drills have a bar of their own; older ones stand "
            "as the median drill of their week. The sentence is about the newest."
        )
    marks = ["a triangle marks a breach"] if any(point.breached for point in points) else []
    marks += ["a hollow diamond what the predictor made of the drills before"] if guessed else []
    if marks:
        parts.append(f"{' and '.join(marks).capitalize()}.")
    return " ".join(parts)


def _seen(points: Sequence[Point]) -> list[Phase]:
    return [phase for phase in LABELS if any(phase in point.phases for point in points)]


def _row(point: Point, phases: Sequence[Phase], *, reads: bool, guessed: bool) -> tuple[str, ...]:
    """`reads`: with the share of the ceiling; `guessed`: with what was predicted."""
    share = units.NOT_MEASURED if point.efficiency_ratio is None else units.percent(point.efficiency_ratio)
    rest = max(0.0, point.seconds - sum(point.phases.values()))
    return (
        f"{point.at:%Y-%m-%d %H:%M:%S} UTC" + (f", median of {point.of_week:,}" if point.of_week else ""),
        units.duration(point.seconds) + (" (breached)" if point.breached else ""),
        units.duration(point.objective_seconds) if point.objective_seconds else "none",
        *((units.duration(point.foretold_seconds),) if guessed else ()),
        *((share,) if reads else ()),
        *(units.duration(point.phases.get(phase)) for phase in phases),
        units.duration(rest),
    )


# -- the sentence ------------------------------------------------------------------------------------------------------
def verdict(points: Sequence[Point], kind: str) -> str:
    if not points:
        return "No drill of this kind has restored yet."
    parts = [f"{_spread(points)}; {_against(points)}.", _regression(points), _growth(points)]
    return " ".join(filter(None, [*parts, "" if kind == "failover" else _efficiency(points)]))


def _spread(points: Sequence[Point]) -> str:
    seconds = [point.seconds for point in points]
    spread = statistics.spread(seconds)
    if spread is None or spread.count == 1:
        return f"{units.duration(seconds[0])} in the one drill so far"
    parts = [f"p50 {units.duration(spread.p50)}"]
    parts.append(f"p95 {units.duration(spread.p95)}" if spread.p95 is not None else f"max {units.duration(spread.max)}")
    return f"{', '.join(parts)} over {len(points)} drills"


def _against(points: Sequence[Point]) -> str:
    objective = objective_of(points)
    if objective is None:
        return "no objective is set"
    misses = sum(point.breached for point in points)
    how = "all in time" if not misses else f"{misses} of {len(points)} breached"
    return f"objective {units.duration(objective)}, {how}"


def _regression(points: Sequence[Point]) -> str:
    newest, *earlier = [point.seconds for point in reversed(points)]
    found = statistics.regression(newest, earlier)
    if found is None:
        return ""
    return f"The newest took {found.ratio:.2f} times the median of those before it."


def _efficiency(points: Sequence[Point]) -> str:
    """What the newest reading reached of the storage's own limit."""
    newest = points[-1].efficiency_ratio
    if newest is None:
        return "Efficiency against the measured ceiling: not measured."
    return f"The newest reached {units.percent(newest)} of the measured ceiling."


def _growth(points: Sequence[Point]) -> str:
    """The phase that grew most between the first and the last half, if any grew by a quarter or more."""
    if len(points) < MIN_TO_COMPARE:
        return ""
    half = len(points) // 2
    grown = []
    for phase in _seen(points):
        before = [point.phases[phase] for point in points[:half] if phase in point.phases]
        after = [point.phases[phase] for point in points[-half:] if phase in point.phases]
        if before and after and median(before) > 0 and median(after) / median(before) >= GREW_RATIO:
            grown.append((median(after) - median(before), median(after) / median(before) - 1, phase))
    if not grown:
        return ""
    _seconds, ratio, phase = max(grown)
    return f"{LABELS[phase]} grew {100 * ratio:.0f} % since {points[0].at:%-d %b}."


def claim(found: Summary) -> str:
    """What so many drills prove: the claim "95 % within the objective" at 95 % confidence, or how far it is away."""
    if not found.judged_count:
        return "Without an objective there is nothing to claim. Set one on the run's page."
    misses = found.breached_count + found.failed_count
    drills = "1 judged drill" if found.judged_count == 1 else f"{found.judged_count:,} judged drills"
    had = f"{drills} in 90 days, {misses or 'none'} of them missed"
    low, high = found.met_interval or (0.0, 1.0)
    sure = f"The true share in time lies between {100 * low:.0f} and {100 * high:.0f} %, at 95 % confidence"
    if found.more_passes_needed == 0:
        return f"{had}: enough to claim that 95 % restore within it, at 95 % confidence. {sure}."
    more = f"{found.more_passes_needed} more in time are needed to claim that 95 % restore within it"
    return f"{had}: {more}, at 95 % confidence. {sure}."


_EDGE = {"color": "var(--edge)", "width": 1}
