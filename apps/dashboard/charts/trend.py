"""The spread over time: a dot for each drill, and from 20 drills on the rolling p50 with the band up to p95. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from statistics import median
from typing import Any

from apps.core import units
from apps.dashboard.charts.decimate import extremes
from apps.dashboard.charts.figure import MARGIN, Chart, Figure, horizontal_line, layout
from apps.recovery import rto as statistics

WINDOW = statistics.MIN_FOR_P95
MAX_DOTS = 2000
MAX_LINE = 800
MAX_ROWS = 200
SHORTEST_AXIS = timedelta(hours=1)
CLOCK_AXIS = timedelta(days=2)


@dataclass(frozen=True)
class Dot:
    """One drill that restored."""

    drill_id: str
    at: datetime
    seconds: float
    objective_seconds: float | None
    breached: bool


@dataclass(frozen=True)
class Level:
    """Half and 95 % of the 20 drills up to this one were within these."""

    at: datetime
    p50: float
    p95: float


def rolling(dots: Sequence[Dot]) -> list[Level]:
    """Oldest first; empty below 20 drills."""
    found = []
    for end in range(WINDOW, len(dots) + 1):
        ascending = sorted(dot.seconds for dot in dots[end - WINDOW : end])
        found.append(Level(dots[end - 1].at, median(ascending), ascending[ceil(0.95 * WINDOW) - 1]))
    return found


def figure(dots: Sequence[Dot]) -> Figure:
    levels = rolling(dots)
    traces = [
        _dots("in time", [dot for dot in dots if not dot.breached], "var(--accent)", "circle"),
        _dots("breached", [dot for dot in dots if dot.breached], "var(--warn)", "triangle-up"),
        _line("rolling p50", levels, "p50", fill=False),
        _line("up to p95", levels, "p95", fill=True),
    ]
    frame = layout(x_title="", y_title="seconds", **_objective(dots))
    frame["xaxis"] |= time_axis([dot.at for dot in dots])
    return {"data": [trace for trace in traces if trace["x"]], "layout": frame}


def drawn_count(dots: Sequence[Dot]) -> int:
    """How many of them the figure has."""
    halves = ([dot for dot in dots if dot.breached is late] for late in (False, True))
    return sum(len(extremes(half, MAX_DOTS, lambda dot: dot.seconds)) for half in halves)


def _line(name: str, levels: Sequence[Level], field: str, *, fill: bool) -> dict[str, Any]:
    kept = extremes(levels, MAX_LINE, lambda level: getattr(level, field))
    trace = {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [moment(level.at) for level in kept],
        "y": [round(getattr(level, field), 3) for level in kept],
        "line": {"color": "var(--ink)", "width": 1.5, "dash": "dot" if fill else "solid"},
        "hovertemplate": "%{x}<br>" + name + " %{y:.3f} s<extra></extra>",
    }
    return trace | ({"fill": "tonexty", "fillcolor": "var(--band)"} if fill else {})


def _dots(name: str, dots: Sequence[Dot], colour: str, symbol: str) -> dict[str, Any]:
    kept = extremes(dots, MAX_DOTS, lambda dot: dot.seconds)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [moment(dot.at) for dot in kept],
        "y": [round(dot.seconds, 3) for dot in kept],
        "marker": {"size": 9 if len(dots) <= MAX_ROWS else 5, "color": colour, "symbol": symbol},
        "hovertemplate": "%{x}<br>%{y:.3f} s<extra>" + name + "</extra>",
    }


def moment(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _objective(dots: Sequence[Dot]) -> dict[str, Any]:
    seconds = next((dot.objective_seconds for dot in reversed(dots) if dot.objective_seconds), None)
    if seconds is None:
        return {}
    shape, note = horizontal_line(seconds, f"objective {units.duration(seconds)}")
    return {"shapes": [shape], "annotations": [note], "margin": {**MARGIN, "r": 88}}


def time_axis(times: Sequence[datetime]) -> dict[str, Any]:
    """At least an hour, so that one drill, or a few within seconds, get ticks of whole minutes."""
    if not times:
        return {}
    first, last = min(times), max(times)
    margin = max((SHORTEST_AXIS - (last - first)) / 2, (last - first) / 20)
    axis: dict[str, Any] = {"type": "date", "range": [(first - margin).isoformat(), (last + margin).isoformat()]}
    if last - first < CLOCK_AXIS:
        axis |= {"tickformat": "%H:%M<br>%d %b", "nticks": 6}
    return axis


def chart(dots: Sequence[Dot], url: str, left_out: int = 0) -> Chart:
    """`left_out` older drills are beyond those at hand."""
    headers, rows = _each(dots) if len(dots) <= MAX_ROWS else _weeks(dots)
    return Chart(
        name="trend",
        title="Trend and spread",
        verdict=verdict(dots),
        url=url,
        headers=headers,
        rows=rows,
        note=_note(dots, left_out),
        may_be_logarithmic=True,
    )


def _note(dots: Sequence[Dot], left_out: int) -> str:
    shown = drawn_count(dots)
    parts = []
    if shown < len(dots):
        parts.append(
            f"{shown:,} of {len(dots):,} dots are drawn: of each stretch of time the fastest and the slowest. "
            "Lines and numbers are from all of them."
        )
    if left_out:
        parts.append(f"{left_out:,} older drills are left out.")
    return " ".join(parts)


def _each(dots: Sequence[Dot]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    rows = tuple(
        (
            f"{dot.at:%Y-%m-%d %H:%M:%S} UTC",
            f"{dot.seconds:.3f}",
            "none" if not dot.objective_seconds else "breached" if dot.breached else "in time",
        )
        for dot in reversed(dots)
    )
    return ("Drill", "Seconds", "Objective"), rows


def _weeks(dots: Sequence[Dot]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    weeks: dict[str, list[Dot]] = defaultdict(list)
    for dot in dots:
        weeks[f"{dot.at - timedelta(days=dot.at.weekday()):%Y-%m-%d}"].append(dot)
    rows = []
    for week, found in sorted(weeks.items(), reverse=True)[:MAX_ROWS]:
        spread = statistics.spread([dot.seconds for dot in found])
        if spread is None:
            continue
        p95 = units.duration(spread.p95) if spread.p95 is not None else f"needs {statistics.MIN_FOR_P95} drills"
        late = str(sum(dot.breached for dot in found))
        rows.append((week, f"{spread.count:,}", units.duration(spread.p50), p95, units.duration(spread.max), late))
    return ("Week from", "Drills", "p50", "p95", "Largest", "Breached"), tuple(rows)


def verdict(dots: Sequence[Dot]) -> str:
    count = len(dots)
    spread = statistics.spread([dot.seconds for dot in dots])
    if spread is None or spread.p95 is None:
        return f"n = {count}: dots only, since a p95 needs {statistics.MIN_FOR_P95} drills."
    words = f"n = {count:,}: half within {units.duration(spread.p50)}, 95 % within {units.duration(spread.p95)}."
    return f"{words} {_moved(dots)}".strip()


def _moved(dots: Sequence[Dot]) -> str:
    """How the newest 20 stand to the first 20, where none is in both."""
    if len(dots) < 2 * WINDOW:
        return ""
    first = median(dot.seconds for dot in dots[:WINDOW])
    newest = median(dot.seconds for dot in dots[-WINDOW:])
    if first <= 0:
        return ""
    ratio = newest / first
    if 0.9 <= ratio <= 1.1:
        return f"The newest {WINDOW} are as fast as the first {WINDOW}."
    now, then = units.duration(newest), units.duration(first)
    return f"Half of the newest {WINDOW} took {now} or less, of the first {WINDOW} {then}."
