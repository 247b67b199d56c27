"""What happened inside one round: every client's phases over time, slowest last. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from apps.core import units
from apps.core.phases import LABELS, Phase, ordered
from apps.dashboard.charts.figure import Chart, Figure, hatch, layout, plain, spread, vertical_line
from apps.dashboard.palette import PHASE_INKS, variable

LAST = 48
OTHERS = 16
FAR_RATIO = 1.6
"""An objective beyond this would squeeze the bars into a corner; the page says it in words."""


@dataclass(frozen=True)
class Client:
    """One client's result. `start_seconds` counts from the earliest client of the round; None where unknown."""

    name: str
    node: str
    start_seconds: float | None
    seconds: float
    phases: Mapping[str, float]
    bytes_per_second: float | None

    @property
    def end_seconds(self) -> float:
        return (self.start_seconds or 0.0) + self.seconds


def shown(clients: Sequence[Client]) -> list[Client]:
    """The last 48 to finish and 16 spread over the rest, in order of finishing."""
    by_end = sorted(clients, key=lambda client: client.end_seconds)
    return [*spread(by_end[:-LAST], OTHERS), *by_end[-LAST:]]


def height(clients: Sequence[Client]) -> int:
    return max(200, 96 + 22 * len(shown(clients)))


def figure(clients: Sequence[Client], objective_seconds: float | None) -> Figure:
    rows = shown(clients)
    names = [plain(f"{client.name} · {client.node}" if client.node else client.name) for client in rows]
    more: dict[str, Any] = {"barmode": "overlay", "bargap": 0.28, "showlegend": False}
    longest = max((client.end_seconds for client in rows), default=0.0)
    if objective_seconds is not None and objective_seconds <= FAR_RATIO * longest:
        shape, note = vertical_line(objective_seconds, f"objective {units.duration(objective_seconds)}")
        more |= {"shapes": [shape], "annotations": [note]}
    frame = layout(x_title="seconds since the common start", y_title="", height=height(clients), **more)
    frame["xaxis"]["rangemode"] = "tozero"
    frame["yaxis"] |= {"type": "category", "autorange": "reversed", "gridcolor": "rgba(0,0,0,0)"}
    frame["margin"] |= {"t": 26}
    return {"data": [trace for trace in _traces(rows, names)], "layout": frame}


def _traces(rows: Sequence[Client], names: Sequence[str]) -> list[dict[str, Any]]:
    begins = [client.start_seconds or 0.0 for client in rows]
    traces = []
    for phase in LABELS:
        values = [dict(ordered(client.phases))[phase] for client in rows]
        if any(value is not None for value in values):
            ink = {"color": variable(phase), "pattern": hatch(PHASE_INKS[phase].hatch)}
            traces.append(_trace(LABELS[phase], names, begins, values, ink))
            begins = [begin + (value or 0.0) for begin, value in zip(begins, values, strict=True)]
    rest = [max(0.0, client.end_seconds - begin) for client, begin in zip(rows, begins, strict=True)]
    if any(value > 0.01 * client.seconds for value, client in zip(rest, rows, strict=True)):
        ink = {"color": "var(--none-bg)", "line": {"color": "var(--edge)", "width": 1}}
        traces.append(_trace("Not attributed", names, begins, rest, ink))
    return traces


def _trace(
    name: str, names: Sequence[str], base: Sequence[float], values: Sequence[float | None], ink: dict[str, Any]
) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": list(names),
        "x": [None if value is None else round(value, 6) for value in values],
        "base": [round(value, 6) for value in base],
        "marker": ink,
        "hovertemplate": f"%{{y}}<br>{name} %{{x:.3f}} s<extra></extra>",
    }


def verdict(clients: Sequence[Client]) -> str:
    if len(clients) < 2:
        return "One client read everything." if clients else "No client has finished yet."
    by_end = sorted(clients, key=lambda client: client.end_seconds)
    last, middle = by_end[-1], median(client.end_seconds for client in by_end)
    behind = last.end_seconds - middle
    where = f" on {last.node}" if last.node else ""
    if behind <= 0.05 * middle:
        return f"All {len(clients)} clients finished within {units.duration(behind)} of the median: no straggler."
    blame = _blame(last, by_end)
    return f"{last.name.capitalize()}{where} finished {units.duration(behind)} after the median{blame}."


def _blame(last: Client, clients: Sequence[Client]) -> str:
    worst = excess_of(last, clients)
    return "" if worst is None else f"; {units.duration(worst[1])} of it in {LABELS[Phase(worst[0])].lower()}"


def excess_of(one: Client, clients: Sequence[Client]) -> tuple[str, float] | None:
    """The phase in which `one` lost most against the others' median, and how many seconds; None where in none."""
    excess = {}
    for phase, value in ordered(one.phases):
        others = [client.phases.get(phase) for client in clients if client is not one]
        known = [other for other in others if other is not None]
        if value is not None and known:
            excess[phase.value] = value - median(known)
    worst = max(excess, key=lambda phase: excess[phase], default=None)
    return None if worst is None or excess[worst] <= 0 else (worst, excess[worst])


def chart(clients: Sequence[Client], url: str) -> Chart:
    rows = shown(clients)
    note = (
        ""
        if len(rows) == len(clients)
        else f"{len(rows)} of {len(clients)} clients: the last {LAST} and {OTHERS} spread over the rest."
    )
    return Chart(
        name="ranks",
        title="Clients, slowest last",
        verdict=verdict(clients),
        url=url,
        headers=("Client", "Node", "Finished after", "Took", "Rate"),
        rows=tuple(
            (
                client.name,
                client.node or "gone",
                units.duration(client.end_seconds),
                units.duration(client.seconds),
                units.rate(client.bytes_per_second),
            )
            for client in rows
        ),
        height=height(clients),
        note=note,
    )
