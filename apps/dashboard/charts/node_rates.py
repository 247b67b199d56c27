"""Which nodes read slowly: every node's rate in every drill, as a share of that drill's median. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from apps.dashboard.charts.figure import Chart, Figure, layout, plain

MAX_NODES = 200
MAX_CELLS_WITH_TEXT = 240
SLOW_RATIO = 0.8
MIN_DRILLS = 3
MIN_CLIENTS = 2


@dataclass(frozen=True)
class Cell:
    """What one node's client read in one drill."""

    node: str
    drill_id: str
    at: datetime
    bytes_per_second: float


@dataclass(frozen=True)
class Line:
    """One node; `shares` by drill id, of the drill's median rate. `last_count`: in how many drills it read slowest."""

    node: str
    shares: dict[str, float]
    last_count: int

    @property
    def middle(self) -> float:
        return median(self.shares.values())


@dataclass(frozen=True)
class Grid:
    """`drills` are (id, time), oldest first; `lines` worst first."""

    drills: list[tuple[str, datetime]]
    lines: list[Line]


def grid(cells: Sequence[Cell]) -> Grid:
    """A drill of a single client has nothing to be compared with, and is left out."""
    by_drill: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        by_drill[cell.drill_id].append(cell)
    shares: dict[str, dict[str, float]] = defaultdict(dict)
    last: dict[str, int] = defaultdict(int)
    drills = []
    for drill_id, found in by_drill.items():
        middle = median(cell.bytes_per_second for cell in found)
        if len({cell.node for cell in found}) < MIN_CLIENTS or middle <= 0:
            continue
        drills.append((drill_id, found[0].at))
        last[min(found, key=lambda cell: cell.bytes_per_second).node] += 1
        for cell in found:
            share = cell.bytes_per_second / middle
            shares[cell.node][drill_id] = min(share, shares[cell.node].get(drill_id, share))
    lines = [Line(node, row, last[node]) for node, row in shares.items()]
    return Grid(sorted(drills, key=lambda pair: pair[1]), sorted(lines, key=lambda line: (line.middle, line.node)))


def shown(found: Grid) -> list[Line]:
    return found.lines[:MAX_NODES]


def height(found: Grid) -> int:
    return min(900, max(220, 110 + 22 * len(shown(found))))


def figure(found: Grid) -> Figure:
    """The worst node on top. Colour says slower or faster than the drill's median, and a small grid says it in
    numbers too."""
    lines = shown(found)
    cells = [[line.shares.get(drill_id) for drill_id, _at in found.drills] for line in lines]
    labels = _labels([at for _id, at in found.drills])
    heat = {
        "type": "heatmap",
        "x": labels,
        "y": [plain(line.node) for line in lines],
        "z": [[None if value is None else round(value, 3) for value in row] for row in cells],
        "zmin": 0.5,
        "zmid": 1,
        "zmax": 1.5,
        "xgap": 1,
        "ygap": 1,
        "colorscale": [[0, "var(--heat-slow)"], [0.5, "var(--heat-middle)"], [1, "var(--heat-fast)"]],
        "colorbar": {"title": {"text": "of the median"}, "thickness": 12, "tickfont": {"color": "var(--mute)"}},
        "hovertemplate": "%{y}, %{x}<br>%{z:.2f} of the drill's median rate<extra></extra>",
        "hoverongaps": False,
    }
    if len(lines) * len(found.drills) <= MAX_CELLS_WITH_TEXT:
        heat |= {"texttemplate": "%{z:.2f}", "textfont": {"color": "var(--ink)", "size": 11}}
    frame = layout(x_title="", y_title="", height=height(found))
    frame["xaxis"] |= {"type": "category", "nticks": 10, "tickangle": 0, "gridcolor": "rgba(0,0,0,0)"}
    frame["yaxis"] |= {"type": "category", "autorange": "reversed", "gridcolor": "rgba(0,0,0,0)"}
    return {"data": [heat], "layout": frame}


def _labels(times: Sequence[datetime]) -> list[str]:
    """Two drills of one minute are told apart by their seconds, of one second by their number."""
    minutes = [f"{at:%d %b %H:%M}" for at in times]
    pairs = zip(times, minutes, strict=True)
    names = [f"{at:%d %b %H:%M:%S}" if minutes.count(text) > 1 else text for at, text in pairs]
    return [f"{name} #{number}" if names.count(name) > 1 else name for number, name in enumerate(names, 1)]


def chart(found: Grid, url: str) -> Chart:
    lines = shown(found)
    return Chart(
        name="node-rates",
        title="Nodes against their drill's median",
        verdict=verdict(found),
        url=url,
        headers=("Node", "Drills", "Half of them below", "Slowest in one", "Read last in"),
        rows=tuple(
            (
                line.node,
                str(len(line.shares)),
                f"{line.middle:.2f} of the median",
                f"{min(line.shares.values()):.2f}",
                f"{line.last_count} of {len(line.shares)}",
            )
            for line in lines
        ),
        height=height(found),
        note=f"The {MAX_NODES} slowest of {len(found.lines):,} nodes." if len(found.lines) > MAX_NODES else "",
    )


def verdict(found: Grid) -> str:
    drills = "1 drill" if len(found.drills) == 1 else f"{len(found.drills)} drills"
    if not found.lines:
        return "No drill with two or more clients measured the rates of nodes."
    slow = [line for line in found.lines if line.middle < SLOW_RATIO and len(line.shares) >= MIN_DRILLS]
    worst = found.lines[0]
    if slow:
        worst = slow[0]
        more = f", and {len(slow) - 1} more nodes are below {100 * SLOW_RATIO:.0f} % too" if slow[1:] else ""
        below = f"half of its {len(worst.shares)} drills below {worst.middle:.2f} of the median"
        return f"{worst.node} reads slowest: {below}, last in {worst.last_count}{more}."
    few = f"; fewer than {MIN_DRILLS} drills say little" if len(worst.shares) < MIN_DRILLS else ""
    slowest = f"the slowest, {worst.node}, is at {worst.middle:.2f} of the median"
    return f"No node is clearly slow over {drills}: {slowest}{few}."
