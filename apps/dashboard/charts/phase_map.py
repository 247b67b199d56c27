"""Where the time of very many clients went: a line for each, its phases over time, the last to finish on top. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from apps.core import units
from apps.core.phases import LABELS, PHASES, Phase, ordered
from apps.dashboard.charts.figure import Chart, Figure, layout, spread
from apps.dashboard.charts.ranks import LAST, OTHERS, Client
from apps.dashboard.palette import variable

FEWEST = LAST + OTHERS
"""Up to so many the waterfall shows each client."""
MAX_LINES = 512
BINS = 120


def shown(clients: Sequence[Client]) -> list[Client]:
    """The last to finish first; of very many 512 spread evenly over the order of finishing."""
    return spread(sorted(clients, key=lambda client: -client.end_seconds), MAX_LINES)


def cells(client: Client, width: float, count: int) -> list[int | None]:
    """The phase (its number in the one order) that the client was in at the middle of each bin; None outside of any."""
    edges: list[tuple[float, int]] = []
    end = client.start_seconds or 0.0
    for phase, seconds in ordered(client.phases):
        if seconds:
            end += seconds
            edges.append((end, PHASES.index(phase)))
    found: list[int | None] = []
    for number in range(count):
        middle = (number + 0.5) * width
        inside = middle >= (client.start_seconds or 0.0)
        found.append(next((at for edge, at in edges if inside and middle < edge), None))
    return found


def figure(clients: Sequence[Client]) -> Figure:
    lines = shown(clients)
    longest = max((client.end_seconds for client in lines), default=1.0) or 1.0
    width = longest / BINS
    heat = {
        "type": "heatmap",
        "x": [round((number + 0.5) * width, 3) for number in range(BINS)],
        "y": list(range(1, len(lines) + 1)),
        "z": [cells(client, width, BINS) for client in lines],
        "zmin": -0.5,
        "zmax": len(PHASES) - 0.5,
        "colorscale": _scale(),
        "showscale": False,
        "hoverongaps": False,
        "hovertemplate": "client %{y}, %{x} s<extra></extra>",
    }
    frame = layout(x_title="seconds since the common start", y_title="clients, the last to finish first", height=420)
    frame["yaxis"] |= {"autorange": "reversed", "rangemode": "normal", "gridcolor": "rgba(0,0,0,0)"}
    return {"data": [heat], "layout": frame}


def _scale() -> list[list[Any]]:
    """Each phase's own colour, in steps."""
    steps: list[list[Any]] = []
    for number, phase in enumerate(PHASES):
        steps += [[number / len(PHASES), variable(phase)], [(number + 1) / len(PHASES), variable(phase)]]
    return steps


def chart(clients: Sequence[Client], url: str) -> Chart:
    lines = shown(clients)
    return Chart(
        name="phase-map",
        title="Where the time of each went",
        verdict=verdict(clients),
        url=url,
        headers=("Phase", "Clients that measured it", "Longest", "All together"),
        rows=tuple(_row(phase, clients) for phase in PHASES if any(phase in client.phases for client in clients)),
        height=420,
        note=f"{len(lines):,} of {len(clients):,} clients, spread evenly over the order in which they finished."
        if len(lines) < len(clients)
        else "",
    )


def _row(phase: Phase, clients: Sequence[Client]) -> tuple[str, ...]:
    seconds = [client.phases[phase] for client in clients if phase in client.phases]
    return LABELS[phase], f"{len(seconds):,}", units.duration(max(seconds)), units.duration(sum(seconds))


def verdict(clients: Sequence[Client]) -> str:
    """The phase in which most clients spent most of their time."""
    longest = Counter(max(client.phases, key=lambda phase: client.phases[phase]) for client in clients if client.phases)
    if not longest:
        return "No client measured its phases."
    [(phase, count)] = longest.most_common(1)
    return f"{LABELS[Phase(phase)]} took the longest in {count:,} of {len(clients):,} clients."
