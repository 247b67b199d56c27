"""When the clients of one round had finished: the share of them over time, and who came last. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import median
from typing import Any

from apps.core import units
from apps.core.phases import LABELS, Phase
from apps.dashboard.charts.figure import Chart, Figure, layout, spread, vertical_line
from apps.dashboard.charts.ranks import FAR_RATIO, Client, excess_of
from apps.recovery.rto import MIN_FOR_P95

MAX_RAW = 2000
QUANTILES = 512
LAST = 50
TABLE = 10


def curve(clients: Sequence[Client]) -> list[tuple[float, float]]:
    """(seconds, share finished by then) of each client; of very many 512 quantiles, each a client's own time, and the
    last 50."""
    ends = sorted(client.end_seconds for client in clients)
    steps = [(end, (number + 1) / len(ends)) for number, end in enumerate(ends)]
    return steps if len(steps) <= MAX_RAW else [*spread(steps[:-LAST], QUANTILES), *steps[-LAST:]]


def figure(clients: Sequence[Client], objective_seconds: float | None) -> Figure:
    steps = curve(clients)
    line = {
        "type": "scatter",
        "mode": "lines+markers" if len(steps) <= 64 else "lines",
        "name": "finished",
        "x": [0.0, *(round(seconds, 4) for seconds, _share in steps)],
        "y": [0.0, *(round(share, 6) for _seconds, share in steps)],
        "line": {"shape": "hv", "color": "var(--accent)", "width": 2},
        "marker": {"size": 6, "color": "var(--accent)"},
        "hovertemplate": "%{y:.1%} had finished after %{x:.3f} s<extra></extra>",
    }
    longest = steps[-1][0] if steps else 0.0
    more: dict[str, Any] = {}
    if objective_seconds is not None and objective_seconds <= FAR_RATIO * longest:
        shape, note = vertical_line(objective_seconds, f"objective {units.duration(objective_seconds)}")
        more = {"shapes": [shape], "annotations": [note]}
    frame = layout(x_title="seconds since the common start", y_title="share finished", showlegend=False, **more)
    frame["xaxis"]["rangemode"] = "tozero"
    frame["yaxis"] |= {"range": [0, 1.04], "tickformat": ".0%"}
    frame["margin"] |= {"t": 26}
    return {"data": [line], "layout": frame}


def verdict(clients: Sequence[Client]) -> str:
    if not clients:
        return "No client has finished yet."
    by_end = sorted(clients, key=lambda client: client.end_seconds)
    last = by_end[-1]
    if len(by_end) == 1:
        return f"The one client finished after {units.duration(last.end_seconds)}."
    half = units.duration(median(client.end_seconds for client in by_end))
    most = ""
    if len(by_end) >= MIN_FOR_P95:
        most = f", 95 % after {units.duration(by_end[ceil(0.95 * len(by_end)) - 1].end_seconds)}"
    where = f" on {last.node}" if last.node else ""
    end = f"the last, {last.name}{where}, after {units.duration(last.end_seconds)}"
    return f"Half of the {len(by_end):,} clients had finished after {half}{most}, {end}."


def chart(clients: Sequence[Client], url: str) -> Chart:
    """The table names the last ten, each with the phase that cost it most against the others' median."""
    by_end = sorted(clients, key=lambda client: -client.end_seconds)
    drawn = len(curve(clients))
    return Chart(
        name="finish",
        title="When they had finished",
        verdict=verdict(clients),
        url=url,
        headers=("The last to finish", "Node", "After", "Phase that cost most", "More than the median"),
        rows=tuple(_row(client, clients) for client in by_end[:TABLE]),
        note=f"{drawn:,} of {len(clients):,} clients are drawn: {QUANTILES} quantiles and the last {LAST}."
        if drawn < len(clients)
        else "",
    )


def _row(client: Client, clients: Sequence[Client]) -> tuple[str, ...]:
    blame = excess_of(client, clients)
    phase, seconds = (LABELS[Phase(blame[0])], units.duration(blame[1])) if blame else ("none grew", "0 s")
    return client.name, client.node or "gone", units.duration(client.end_seconds), phase, seconds
