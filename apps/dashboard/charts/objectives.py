"""Runs against their objectives: how sure "in time" is, and lost work against time to resume. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.core import units
from apps.dashboard.charts.figure import Chart, Figure, layout, plain
from apps.recovery.objectives import Objective

CLAIM_RATIO = 0.95


# -- how sure ----------------------------------------------------------------------------------------------------------
def judged(rows: Sequence[Objective]) -> list[Objective]:
    return [one for one in rows if one.summary.judged_count]


def sureness_figure(rows: Sequence[Objective]) -> Figure:
    """The share in time of each run with its Wilson 95 % interval; the line is what 95/95 claims."""
    shown = judged(rows)
    shares = [one.summary.met_count / one.summary.judged_count for one in shown]
    bounds = [one.summary.met_interval or (0.0, 1.0) for one in shown]
    proven = [one.summary.more_passes_needed == 0 for one in shown]
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": [round(share, 6) for share in shares],
        "y": _names(shown),
        "marker": {
            "size": 11,
            "symbol": ["circle" if sure else "diamond-open" for sure in proven],
            "color": ["var(--ok)" if sure else "var(--accent)" for sure in proven],
            "line": {"width": 2, "color": ["var(--ok)" if sure else "var(--accent)" for sure in proven]},
        },
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [round(high - share, 6) for share, (_low, high) in zip(shares, bounds, strict=True)],
            "arrayminus": [round(share - low, 6) for share, (low, _high) in zip(shares, bounds, strict=True)],
            "color": "var(--mute)",
            "thickness": 1.5,
            "width": 5,
        },
        "hovertemplate": "%{y}<br>%{x:.1%} in time<extra></extra>",
    }
    frame = layout(x_title="share in time, with its 95 % interval", y_title="", height=sureness_height(rows))
    frame["xaxis"] |= {"range": [-0.02, 1.02], "tickformat": ".0%"}
    frame["yaxis"] |= {"type": "category", "autorange": "reversed", "gridcolor": "var(--line)"}
    frame["shapes"] = [_line_at(CLAIM_RATIO)]
    frame["showlegend"] = False
    return {"data": [dots], "layout": frame}


def sureness_height(rows: Sequence[Objective]) -> int:
    return max(180, 90 + 26 * len(judged(rows)))


def _line_at(x: float) -> dict[str, Any]:
    line = {"color": "var(--ink)", "width": 1.5, "dash": "dash"}
    return {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": line}


def _names(rows: Sequence[Objective]) -> list[str]:
    names = [one.run.name for one in rows]
    return [
        plain(one.run.name if names.count(one.run.name) == 1 else f"{one.run.name} ({one.run.cluster.name})")
        for one in rows
    ]


def sureness_chart(rows: Sequence[Objective], url: str) -> Chart:
    return Chart(
        name="sureness",
        title="How sure is it",
        verdict=sureness_words(rows),
        url=url,
        headers=("Run", "In time", "95 % interval", "More passes to claim 95/95"),
        rows=tuple(
            (
                one.run.name,
                f"{one.summary.met_count} of {one.summary.judged_count}",
                interval_words(one),
                str(one.summary.more_passes_needed),
            )
            for one in judged(rows)
        ),
        height=sureness_height(rows),
        note="Filled: enough passes to claim 95 % in time, at 95 % confidence; hollow: not yet. Dashed: 95 %.",
    )


def interval_words(one: Objective) -> str:
    bounds = one.summary.met_interval
    return units.NOT_MEASURED if bounds is None else f"{100 * bounds[0]:.0f} to {100 * bounds[1]:.0f} %"


def sureness_words(rows: Sequence[Objective]) -> str:
    shown = judged(rows)
    if not shown:
        return "No drill of the last 90 days was judged by an objective, so nothing is sure."
    unsure = [one for one in shown if one.summary.more_passes_needed]
    nearest = min(unsure, key=lambda one: one.summary.more_passes_needed, default=None)
    runs = "1 run" if len(shown) == 1 else f"{len(shown)} runs"
    claim = "may claim that 95 % restore in time, at 95 % confidence"
    begin = f"Of {runs} with judged drills, {len(shown) - len(unsure) or 'none'} {claim}"
    if nearest is None:
        return f"{begin}."
    more = nearest.summary.more_passes_needed
    return f"{begin}; {nearest.run.name} is nearest, with {more} more pass{'' if more == 1 else 'es'} in a row."


def needs_words(one: Objective) -> str:
    """`41 more passes to claim 95/95`; the empty string where nothing judges it."""
    if not one.summary.judged_count:
        return ""
    more = one.summary.more_passes_needed
    if more == 0:
        return "enough to claim 95/95"
    return f"{more} more {'pass' if more == 1 else 'passes'} to claim 95/95"


# -- lost work against time to resume ----------------------------------------------------------------------------------
def placed(rows: Sequence[Objective]) -> list[Objective]:
    """Those of which both are measured."""
    return [one for one in rows if one.lost_seconds is not None and one.summary.spread is not None]


def in_shares(rows: Sequence[Objective]) -> bool:
    """Whether the axes are shares of each run's own objectives: where any run has both."""
    return any(_has_both(one) for one in placed(rows))


def _has_both(one: Objective) -> bool:
    return bool(one.run.rto_objective_seconds and one.run.rpo_objective_seconds)


def corner_rows(rows: Sequence[Objective]) -> list[Objective]:
    shown = placed(rows)
    return [one for one in shown if _has_both(one)] if in_shares(rows) else shown


def corner_figure(rows: Sequence[Objective]) -> Figure:
    """One dot for each run: work lost now over half of its drills' time. Inside the rectangle both objectives hold."""
    shown, shares = corner_rows(rows), in_shares(rows)
    lost = [_lost(one, shares) for one in shown]
    times = [_time(one, shares) for one in shown]
    dots = {
        "type": "scatter",
        "mode": "markers+text" if len(shown) <= 12 else "markers",
        "x": [round(value, 6) for value in lost],
        "y": [round(value, 6) for value in times],
        "text": _names(shown),
        "textposition": "top center",
        "textfont": {"color": "var(--mute)", "size": 12},
        "cliponaxis": False,
        "marker": {
            "size": 11,
            "symbol": ["diamond-open" if one.is_storage_only else "circle" for one in shown],
            "color": ["var(--ok)" if _fits(one) else "var(--warn)" for one in shown],
            "line": {"width": 2, "color": ["var(--ok)" if _fits(one) else "var(--warn)" for one in shown]},
        },
        "hovertemplate": "%{text}<br>loses %{x:.2f}, back in %{y:.2f}<extra></extra>",
    }
    unit = ", share of its objective" if shares else ", seconds"
    frame = layout(x_title=f"work lost now{unit}", y_title=f"time to resume{unit}", showlegend=False)
    frame["xaxis"] |= {"range": [0, 1.15 * max([*lost, 1.1 if shares else 1.0])]}
    frame["yaxis"] |= {"range": [0, 1.15 * max([*times, 1.1 if shares else 1.0])]}
    if shares:
        frame["shapes"] = [_RECTANGLE]
    return {"data": [dots], "layout": frame}


_RECTANGLE = {
    "type": "rect",
    "x0": 0,
    "x1": 1,
    "y0": 0,
    "y1": 1,
    "layer": "below",
    "fillcolor": "var(--ok-bg)",
    "line": {"color": "var(--ok)", "width": 1.5, "dash": "dash"},
}


def _lost(one: Objective, shares: bool) -> float:
    return (one.lost_seconds or 0.0) / ((one.run.rpo_objective_seconds or 1.0) if shares else 1.0)


def _time(one: Objective, shares: bool) -> float:
    spread = one.summary.spread
    return (spread.p50 if spread else 0.0) / ((one.run.rto_objective_seconds or 1.0) if shares else 1.0)


def _fits(one: Objective) -> bool:
    """Neither objective is exceeded by what is measured; one that is not set is not exceeded."""
    late = one.run.rto_objective_seconds is not None and _time(one, False) > one.run.rto_objective_seconds
    return not late and one.rpo_is_met is not False


def corner_chart(rows: Sequence[Objective], url: str) -> Chart:
    shown = corner_rows(rows)
    left_out = len(rows) - len(shown)
    return Chart(
        name="corner",
        title="Lost work and time to resume",
        verdict=corner_words(rows),
        url=url,
        headers=("Run", "Loses now", "Objective", "Half of its drills within", "Objective"),
        rows=tuple(
            (
                one.run.name,
                units.duration(one.lost_seconds),
                _objective(one.run.rpo_objective_seconds),
                units.duration(_time(one, False)) + (" (storage part only)" if one.is_storage_only else ""),
                _objective(one.run.rto_objective_seconds),
            )
            for one in shown
        ),
        note=f"{len(shown)} of {len(rows)} runs: the others lack a measurement or an objective. "
        "Hollow: the storage part only."
        if left_out
        else "",
    )


def _objective(seconds: float | None) -> str:
    return units.duration(seconds) if seconds else "none"


def corner_words(rows: Sequence[Objective]) -> str:
    shown = corner_rows(rows)
    if not shown:
        return "Of no run both the work that it would lose now and a time to resume are measured."
    out = [one for one in shown if not _fits(one)]
    runs = "The run shown" if len(shown) == 1 else f"All {len(shown)} runs shown"
    if not out:
        keeps = "keeps" if len(shown) == 1 else "keep"
        return f"{runs} {keeps} within the objectives that are set."
    names = ", ".join(one.run.name for one in out[:3]) + (f" and {len(out) - 3} more" if len(out) > 3 else "")
    return f"Outside of the objectives: {names}, {len(out)} of {len(shown)}."


# -- the budget of misses ----------------------------------------------------------------------------------------------
def left_words(one: Objective) -> str:
    budget = one.summary.budget
    if not budget.trial_count:
        return "no judged drill in 28 days"
    left = f"{budget.left} left" if budget.left >= 0 else f"{-budget.left} over"
    return f"{budget.used} of {budget.allowed} used, {left}"
