"""What all figures share. Colours are CSS variables; the page's script puts the theme's values in. Pure.

A figure is a plain dict for plotly.js; `Chart` is what the page shows around it: one verdict sentence made from the
data, and the same numbers as a table for those who cannot use the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Figure = dict[str, Any]
MAX_BYTES = 1_000_000
MARGIN = {"l": 62, "r": 18, "t": 18, "b": 46}


@dataclass(frozen=True)
class Chart:
    """`name` is the last part of its JSON URL, `url` that URL with its parameters."""

    name: str
    title: str
    verdict: str
    url: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    height: int = 320
    note: str = ""
    live: bool = False
    may_be_logarithmic: bool = False
    """Whether the reader may switch its value axis to a logarithmic one."""

    @property
    def is_empty(self) -> bool:
        return not self.rows


def layout(*, x_title: str, y_title: str, height: int = 320, **more: Any) -> dict[str, Any]:
    """The common layout. `uirevision` is fixed, so that a refresh keeps the reader's zoom."""
    return {
        "height": height,
        "margin": dict(MARGIN),
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "var(--mute)"},
        "hoverlabel": {"bgcolor": "var(--card)", "bordercolor": "var(--edge)", "font": {"color": "var(--ink)"}},
        "legend": {"orientation": "h", "y": -0.22, "x": 0, "font": {"color": "var(--mute)"}},
        "xaxis": axis(x_title),
        "yaxis": {**axis(y_title), "rangemode": "tozero"},
        "uirevision": "fixed",
        "dragmode": "zoom",
        **more,
    }


def axis(title: str) -> dict[str, Any]:
    return {
        "title": {"text": title, "font": {"color": "var(--mute)"}, "standoff": 8},
        "gridcolor": "var(--line)",
        "linecolor": "var(--line)",
        "zerolinecolor": "var(--line)",
        "tickfont": {"color": "var(--mute)"},
        "automargin": True,
    }


def horizontal_line(y: float, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The objective's line and its label."""
    shape = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": _DASHED}
    words = text.replace(" ", "<br>", 1)
    note = {**_NOTE, "xref": "paper", "x": 1.006, "xanchor": "left", "align": "left", "y": y, "text": words}
    return shape, note


def vertical_line(x: float, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    shape = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": _DASHED}
    note = {**_NOTE, "yref": "paper", "y": 1, "yanchor": "bottom", "x": x, "xanchor": "right", "text": text}
    return shape, note


def hatch(shape: str) -> dict[str, Any]:
    """A phase's hatch over its own colour."""
    return {
        "shape": shape,
        "fillmode": "overlay",
        "fgcolor": "var(--card)",
        "fgopacity": 0.5,
        "size": 7,
        "solidity": 0.3,
    }


def plain(text: str) -> str:
    """Text that plotly shows as it is: it reads a few HTML tags and entities in labels."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def spread(items: Sequence[Any], count: int) -> list[Any]:
    """At most `count` of `items`, evenly spaced, first and last among them."""
    if len(items) <= count or count < 2:
        return list(items[:count]) if len(items) > count else list(items)
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]


_DASHED = {"color": "var(--ink)", "width": 1.5, "dash": "dash"}
_NOTE = {"showarrow": False, "font": {"color": "var(--ink)", "size": 12}}
