"""How fast all clients read together over time, and how many were reading, from their own reports of progress. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from math import ceil, floor

from apps.core import units
from apps.dashboard.charts.figure import Chart, Figure, axis, layout

MAX_BINS = 600
BIN_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
FEWEST_BINS = 20
TAIL_SHARE = 0.5
TABLE = 60


@dataclass(frozen=True)
class Track:
    """One client's reading: (seconds since the first client began, bytes done), ascending, from its begin to its end.
    `report_count` of the points are what it told on the way."""

    points: tuple[tuple[float, int], ...]
    report_count: int


@dataclass(frozen=True)
class Bin:
    """`seconds` from `begin_seconds` on, the last one only to the end of reading; `active_count` clients read some of
    it."""

    begin_seconds: float
    seconds: float
    bytes_per_second: float
    active_count: int


def bin_seconds(longest: float) -> float:
    """The widest of up to a second that still gives 20 bins; wider ones only where there would be more than 600."""
    fits = [width for width in BIN_SECONDS if longest / width <= MAX_BINS]
    if not fits:
        return longest / MAX_BINS
    return next((width for width in reversed(fits) if longest / width >= FEWEST_BINS and width <= 1.0), fits[0])


def bins(tracks: Sequence[Track]) -> list[Bin]:
    """Bytes between two reports are taken as read evenly; no byte is counted twice or lost."""
    spans = [span for track in tracks for span in pairwise(track.points) if span[1][0] > span[0][0]]
    if not spans:
        return []
    longest = max(end[0] for _begin, end in spans)
    width = bin_seconds(longest)
    count = max(1, ceil(longest / width - 1e-9))
    volume, active = [0.0] * count, [0] * count
    for track in tracks:
        seen: set[int] = set()
        for begin, end in pairwise(track.points):
            seen |= _pour(volume, begin, end, width)
        for number in seen:
            active[number] += 1
    widths = [min(width, longest - number * width) or width for number in range(count)]
    return [
        Bin(number * width, widths[number], volume[number] / widths[number], active[number]) for number in range(count)
    ]


def _pour(volume: list[float], begin: tuple[float, int], end: tuple[float, int], width: float) -> set[int]:
    """Spread one span's bytes over the bins that it crosses; the numbers of those."""
    (start, before), (stop, after) = begin, end
    if stop <= start or after <= before:
        return set()
    rate = (after - before) / (stop - start)
    first, last = floor(start / width), min(len(volume) - 1, floor((stop - 1e-12) / width))
    for number in range(first, last + 1):
        overlap = min(stop, (number + 1) * width) - max(start, number * width)
        volume[number] += rate * max(0.0, overlap)
    return set(range(first, last + 1))


def figure(found: Sequence[Bin]) -> Figure:
    ends = found[-1:]  # a step holds until the next point, so the last one is drawn to its own end
    x = [round(one.begin_seconds, 3) for one in found] + [round(one.begin_seconds + one.seconds, 3) for one in ends]
    area = {
        "type": "scatter",
        "mode": "lines",
        "name": "together",
        "x": x,
        "y": [round(one.bytes_per_second / 1e9, 4) for one in (*found, *ends)],
        "fill": "tozeroy",
        "fillcolor": "var(--band)",
        "line": {"shape": "hv", "color": "var(--accent)", "width": 2},
        "hovertemplate": "%{x} s: %{y:.3f} GB/s<extra></extra>",
    }
    active = {
        "type": "scatter",
        "mode": "lines",
        "name": "clients reading",
        "x": x,
        "y": [one.active_count for one in (*found, *ends)],
        "yaxis": "y2",
        "line": {"shape": "hv", "color": "var(--warn)", "width": 2, "dash": "dot"},
        "hovertemplate": "%{x} s: %{y} clients<extra></extra>",
    }
    frame = layout(x_title="seconds since the first client began to read", y_title="GB/s together")
    most = max((one.active_count for one in found), default=1)
    frame["yaxis2"] = {
        **axis("clients reading"),
        "overlaying": "y",
        "side": "right",
        "showgrid": False,
        "range": [0, 1.15 * most],
        "dtick": max(1, ceil(most / 6)),
    }
    frame["margin"] |= {"r": 60}
    return {"data": [area, active], "layout": frame}


def verdict(found: Sequence[Bin]) -> str:
    if not found:
        return "No client has reported how far it read."
    peak = max(found, key=lambda one: one.bytes_per_second)
    tail = _tail_seconds(found)
    begin = f"At most {units.rate(peak.bytes_per_second)} together, with {_clients(peak.active_count)} reading"
    most = max(one.active_count for one in found)
    if tail <= 0 or most < 2:
        return f"{begin}; no tail in which few clients read alone."
    return f"{begin}; for the last {units.duration(tail)} fewer than half of the {most} clients were still reading."


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count:,} clients"


def _tail_seconds(found: Sequence[Bin]) -> float:
    """How long at the end fewer than half of the most clients read."""
    most = max(one.active_count for one in found)
    tail = takewhile(lambda one: one.active_count < TAIL_SHARE * most, reversed(found))
    return sum(one.seconds for one in tail)


def chart(tracks: Sequence[Track], url: str) -> Chart:
    found = bins(tracks)
    reports = sum(track.report_count for track in tracks)
    step = max(1, ceil(len(found) / TABLE))
    return Chart(
        name="throughput",
        title="Throughput over time",
        verdict=verdict(found),
        url=url,
        headers=("From", "To", "GB/s together", "Clients reading, at most"),
        rows=tuple(_row(found[at : at + step]) for at in range(0, len(found), step)),
        note=f"From {reports:,} reports of {_clients(len(tracks))}. Between two reports of one client its bytes are "
        "taken as read evenly.",
    )


def _row(part: Sequence[Bin]) -> tuple[str, ...]:
    seconds = sum(one.seconds for one in part)
    mean = sum(one.bytes_per_second * one.seconds for one in part) / seconds
    return (
        f"{part[0].begin_seconds:.2f} s",
        f"{part[0].begin_seconds + seconds:.2f} s",
        f"{mean / 1e9:.3f}",
        str(max(one.active_count for one in part)),
    )
