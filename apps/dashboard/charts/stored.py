"""Where the bytes are: every tier with its largest runs. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.core import units
from apps.dashboard.charts.figure import Chart, Figure, hatch, layout, plain

MAX_TIERS = 40
MAX_RUNS = 8
_HATCHES = ("", "/", "\\", "x")
OTHERS = "other runs"
TB = 10**12


@dataclass(frozen=True)
class Part:
    """What one run has on one tier. `capacity_bytes` is the tier's, None where nobody said."""

    tier: str
    run: str
    total_bytes: int
    copy_count: int
    capacity_bytes: int | None = None


@dataclass(frozen=True)
class Tier:
    """`parts` are the eight largest runs, and the rest together; largest first."""

    name: str
    total_bytes: int
    capacity_bytes: int | None
    parts: tuple[Part, ...]

    @property
    def used_ratio(self) -> float | None:
        return self.total_bytes / self.capacity_bytes if self.capacity_bytes else None


def tiers(parts: Sequence[Part]) -> list[Tier]:
    """The fullest first."""
    by_tier: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        by_tier[part.tier].append(part)
    found = []
    for name, own in by_tier.items():
        ordered = sorted(own, key=lambda part: (-part.total_bytes, part.run))
        rest = ordered[MAX_RUNS:]
        shown = ordered[:MAX_RUNS]
        if rest:
            shown.append(Part(name, OTHERS, _sum(rest), sum(part.copy_count for part in rest)))
        found.append(Tier(name, _sum(ordered), own[0].capacity_bytes, tuple(shown)))
    return sorted(found, key=lambda tier: (-tier.total_bytes, tier.name))


def _sum(parts: Sequence[Part]) -> int:
    return sum(part.total_bytes for part in parts)


def figure(found: Sequence[Tier]) -> Figure:
    """A bar for each tier, its runs end to end; neighbours differ by tone and hatch, and their names stand inside."""
    shown = found[:MAX_TIERS]
    names = [plain(tier.name) for tier in shown]
    unit_bytes = TB if any(tier.total_bytes >= TB for tier in shown) else TB // 1000
    traces = []
    for place in range(max((len(tier.parts) for tier in shown), default=0)):
        own = [tier.parts[place] if place < len(tier.parts) else None for tier in shown]
        traces.append(_trace(place, names, own, unit_bytes))
    unit = "TB" if unit_bytes == TB else "GB"
    frame = layout(x_title=unit, y_title="", height=height(found), barmode="stack", bargap=0.3, showlegend=False)
    frame["uniformtext"] = {"mode": "hide", "minsize": 11}  # a name that does not fit its bar is in the table
    frame["yaxis"] |= {"type": "category", "autorange": "reversed", "gridcolor": "rgba(0,0,0,0)"}
    return {"data": traces, "layout": frame}


def _trace(place: int, names: Sequence[str], parts: Sequence[Part | None], unit_bytes: int) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "y": list(names),
        "x": [None if part is None else round(part.total_bytes / unit_bytes, 6) for part in parts],
        "text": ["" if part is None else plain(part.run) for part in parts],
        "textposition": "inside",
        "insidetextanchor": "start",
        "textfont": {"color": "var(--ink)", "size": 12},
        "textangle": 0,
        "marker": {
            "color": "var(--info-bg)" if place % 2 == 0 else "var(--none-bg)",
            "line": {"color": "var(--edge)", "width": 1},
            "pattern": {**hatch(_HATCHES[place % len(_HATCHES)]), "fgcolor": "var(--edge)", "fgopacity": 0.25},
        },
        "hovertemplate": "%{y}<br>%{text}: %{x:.3f} " + ("TB" if unit_bytes == TB else "GB") + "<extra></extra>",
    }


def height(found: Sequence[Tier]) -> int:
    return max(190, 90 + 40 * len(found[:MAX_TIERS]))


def chart(parts: Sequence[Part], url: str) -> Chart:
    found = tiers(parts)
    rows = [
        (tier.name, part.run, units.size(part.total_bytes), f"{part.copy_count:,}", _share(part, tier))
        for tier in found[:MAX_TIERS]
        for part in tier.parts
    ]
    return Chart(
        name="stored",
        title="Where the bytes are",
        verdict=verdict(found),
        url=url,
        headers=("Tier", "Run", "Bytes", "Copies", "Of the tier's"),
        rows=tuple(rows),
        height=height(found),
        note=f"The {MAX_TIERS} fullest of {len(found):,} tiers." if len(found) > MAX_TIERS else "",
    )


def _share(part: Part, tier: Tier) -> str:
    return units.percent(part.total_bytes / tier.total_bytes if tier.total_bytes else None)


def verdict(found: Sequence[Tier]) -> str:
    if not found:
        return "No scan has found a copy yet."
    whole = sum(tier.total_bytes for tier in found)
    first = found[0]
    largest = first.parts[0]
    where = "one tier" if len(found) == 1 else f"{len(found)} tiers"
    begin = f"{units.size(whole)} on {where}; {first.name} holds {units.size(first.total_bytes)}"
    full = f", {units.percent(first.used_ratio)} of its capacity" if first.used_ratio is not None else ""
    if largest.run == OTHERS or len(first.parts) == 1:
        return f"{begin}{full}."
    return f"{begin}{full}, most of it of {largest.run} ({_share(largest, first)})."
