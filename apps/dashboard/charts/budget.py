"""The budget of misses over 28 days: what is left of it after each judged drill. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from apps.core import units
from apps.dashboard.charts.figure import Chart, Figure, horizontal_line, layout
from apps.dashboard.charts.trend import moment
from apps.recovery import trials
from apps.recovery.trials import BUDGET_WINDOW, Budget, Trial

MANY = 200


def in_window(newest_first: Sequence[Trial], now: datetime) -> list[Trial]:
    """The judged trials of the last 28 days, oldest first."""
    judged = (one for one in newest_first if one.is_met is not None or one.is_miss)
    return [one for one in judged if one.at >= now - BUDGET_WINDOW][::-1]


def left_after(found: Sequence[Trial], allowed: int) -> list[int]:
    """What is left after each, of today's allowance."""
    left, steps = allowed, []
    for one in found:
        left -= one.is_miss
        steps.append(left)
    return steps


def figure(newest_first: Sequence[Trial], now: datetime) -> Figure:
    found, budget = in_window(newest_first, now), trials.budget(newest_first, now)
    steps = left_after(found, budget.allowed)
    begin = now - BUDGET_WINDOW
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "left",
        "x": [moment(begin), *(moment(one.at) for one in found), moment(now)],
        "y": [budget.allowed, *steps, steps[-1] if steps else budget.allowed],
        "line": {"shape": "hv", "color": "var(--accent)", "width": 2},
        "hoverinfo": "skip",
    }
    pairs = list(zip(found, steps, strict=True))
    marks = [
        _marks("in time", [pair for pair in pairs if not pair[0].is_miss], "circle", "var(--ok)"),
        _marks("late", [pair for pair in pairs if pair[0].is_met is False], "triangle-up", "var(--warn)"),
        _marks("not restored", [pair for pair in pairs if pair[0].seconds is None], "x", "var(--bad)"),
    ]
    shape, note = horizontal_line(0, "used up")
    frame = layout(x_title="", y_title="misses left", shapes=[shape], annotations=[note])
    frame["margin"] = {**frame["margin"], "r": 64}
    frame["xaxis"] |= {"type": "date", "range": [moment(begin), moment(now)]}
    frame["yaxis"] |= {"range": [min([0, *steps]) - 0.5, budget.allowed + 0.5], "dtick": _tick(budget, steps)}
    return {"data": [line, *(one for one in marks if one["x"])], "layout": frame}


def _tick(budget: Budget, steps: Sequence[int]) -> int:
    return max(1, (budget.allowed - min([0, *steps])) // 6)


def _marks(name: str, pairs: Sequence[tuple[Trial, int]], symbol: str, colour: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [moment(one.at) for one, _left in pairs],
        "y": [left for _one, left in pairs],
        "marker": {"size": 9 if len(pairs) <= MANY else 5, "symbol": symbol, "color": colour},
        "hovertemplate": "%{x}<br>" + name + ", %{y} left<extra></extra>",
    }


def verdict(budget: Budget) -> str:
    if not budget.trial_count:
        return "No drill of the last 28 days was judged by an objective, so there is no budget to use up."
    drills = "1 judged drill" if budget.trial_count == 1 else f"{budget.trial_count:,} judged drills"
    used = "None is used" if not budget.used else f"{budget.used} {'is' if budget.used == 1 else 'are'} used"
    misses = "miss" if budget.allowed == 1 else "misses"
    begin = f"{drills} in 28 days may have {budget.allowed} {misses}. {used}"
    if budget.left < 0:
        return f"{begin}, {-budget.left} more than that."
    warned = " Two misses among the newest five, or one that did not restore: look at it." if budget.is_alarming else ""
    return f"{begin}, {budget.left} left.{warned}"


def chart(newest_first: Sequence[Trial], now: datetime, url: str) -> Chart:
    found, budget = in_window(newest_first, now), trials.budget(newest_first, now)
    steps = left_after(found, budget.allowed)
    pairs = list(zip(found, steps, strict=True))[::-1]
    return Chart(
        name="budget",
        title="Budget of misses, 28 days",
        verdict=verdict(budget),
        url=url,
        headers=("Drill", "Took", "Judged", "Left after it"),
        rows=tuple(
            (
                f"{one.at:%Y-%m-%d %H:%M:%S} UTC",
                units.duration(one.seconds) if one.seconds is not None else "did not restore",
                "in time" if one.is_met else "miss",
                str(left),
            )
            for one, left in pairs[:MANY]
        ),
        note=f"The table has the newest {MANY} of {len(pairs):,} drills." if len(pairs) > MANY else "",
    )
