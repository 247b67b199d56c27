"""The herd ladder: where the storage stops scaling. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.core import units
from apps.dashboard.charts.figure import Chart, Figure, layout
from apps.drills import herd


@dataclass(frozen=True)
class Step:
    """One measured rung."""

    client_count: int
    bytes_per_second: float
    seconds: float | None
    jain_index: float | None


def figure(steps: Sequence[Step]) -> Figure:
    counts = [step.client_count for step in steps]
    measured = [step.bytes_per_second / 1e9 for step in steps]
    perfect = [measured[0] / counts[0] * count for count in counts] if steps else []
    frame = layout(x_title="clients reading at once", y_title="GB/s together")
    frame["xaxis"] |= {"tickvals": counts, "type": "log", "ticktext": [str(count) for count in counts]}
    return {
        "data": [
            _line("if it scaled perfectly", counts, perfect, "var(--edge)", "dot"),
            _line("measured", counts, measured, "var(--accent)", "solid"),
        ],
        "layout": frame,
    }


def _line(name: str, x: Sequence[int], y: Sequence[float], colour: str, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if dash == "solid" else "lines",
        "name": name,
        "x": list(x),
        "y": [round(value, 6) for value in y],
        "line": {"color": colour, "width": 2.5 if dash == "solid" else 1.5, "dash": dash},
        "marker": {"size": 9, "color": colour},
        "hovertemplate": "%{x} clients: %{y:.3f} GB/s<extra>" + name + "</extra>",
    }


def verdict(steps: Sequence[Step]) -> str:
    if not steps:
        return "No rung has finished yet."
    last = steps[-1]
    reached = f"{last.client_count} clients together read {units.rate(last.bytes_per_second)}"
    if len(steps) < 2:
        return f"{reached}; one rung alone says nothing about scaling."
    knee = herd.knee([herd.Rung(step.client_count, step.bytes_per_second) for step in steps])
    if knee is None:
        return f"{reached}; every doubling of clients still gained at least {herd.KNEE_GAIN_RATIO:.0%}."
    gain = f"{knee.gain_per_doubling_ratio:+.0%}".replace("%", " %")
    return (
        f"{reached}. It stops scaling at {knee.client_count} clients: {gain} per doubling "
        f"from {knee.previous_count} to {knee.client_count}."
    )


def chart(steps: Sequence[Step], url: str) -> Chart:
    return Chart(
        name="herd",
        title="Herd ladder",
        verdict=verdict(steps),
        url=url,
        headers=("Clients", "Together", "Per client", "Took", "Balance (Jain)"),
        rows=tuple(
            (
                str(step.client_count),
                units.rate(step.bytes_per_second),
                units.rate(step.bytes_per_second / step.client_count),
                units.duration(step.seconds),
                units.NOT_MEASURED if step.jain_index is None else f"{step.jain_index:.3f}",
            )
            for step in steps
        ),
        height=300,
    )
