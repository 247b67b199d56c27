"""Drills side by side: every time of each run, tier, format or node group, with what they prove. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from apps.core import units
from apps.core.phases import LABELS, Phase
from apps.dashboard.charts.figure import Chart, Figure, layout, plain
from apps.recovery import rto as statistics
from apps.recovery.history import Group, GroupBy
from apps.recovery.trials import Slower

WORDS = {GroupBy.RUN: "run", GroupBy.TIER: "tier", GroupBy.FORMAT: "format", GroupBy.NODE_GROUP: "node group"}
MAX_GROUPS = 40
MAX_DOTS = 5000


@dataclass(frozen=True)
class Row:
    """One group in words. `tail` is a p95 only where enough drills stand behind it."""

    key: str
    name: str
    cluster_name: str
    count: int
    p50: str
    tail: str
    largest: str
    objective: str
    sureness: str
    budget: str
    is_over_budget: bool
    is_alarming: bool
    regression: str


def url_of(by: GroupBy, kind: str) -> str:
    return f"/charts/groups.json?{urlencode({'by': by.value, 'kind': kind})}"


def row(group: Group) -> Row:
    found = group.summary
    spread, budget = found.spread, found.budget
    short = f"needs {statistics.MIN_FOR_P95} drills"
    return Row(
        key=group.key,
        name=group.name,
        cluster_name=group.cluster_name,
        count=spread.count if spread else 0,
        p50=units.duration(spread.p50 if spread else None),
        tail=units.duration(spread.p95) if spread and spread.p95 is not None else short,
        largest=units.duration(spread.max if spread else None),
        objective=units.duration(group.objective_seconds) if group.objective_seconds else "none",
        sureness=_sureness(group),
        budget=f"{budget.used} of {budget.allowed}" if budget.trial_count else "no drill in 28 days",
        is_over_budget=budget.left < 0,
        is_alarming=budget.is_alarming,
        regression=regression_words(found.slower),
    )


def regression_words(slow: Slower | None) -> str:
    """Empty without a regression."""
    if slow is None:
        return ""
    found, blame = slow.found, slow.blame
    begin = f"newest {units.duration(found.newest_seconds)}, {found.ratio:.2f} times the median of its like"
    if blame is None:
        return f"{begin}; no phase of it was measured to have grown"
    before = f"{units.duration(blame.before_seconds)}" if blame.before_seconds is not None else "not measured before"
    return f"{begin}: {LABELS[Phase(blame.phase)].lower()} took {units.duration(blame.seconds)}, before {before}"


def _sureness(group: Group) -> str:
    found = group.summary
    if not found.judged_count:
        return "nothing judges it"
    if found.more_passes_needed == 0:
        return "95 % in time, at 95 % confidence"
    more = "pass" if found.more_passes_needed == 1 else "passes"
    return f"{found.met_count} of {found.judged_count} in time; {found.more_passes_needed} more {more} to claim 95/95"


def figure(groups: Sequence[Group]) -> Figure:
    """One box with its dots for each group; a box only from eight drills on. Slowest first, at most 40."""
    shown = _shown(groups)
    labels = _labels(shown)
    traces = [_box(group, label, few=len(shown) <= 12) for group, label in zip(shown, labels, strict=True)]
    frame = layout(x_title="", y_title="seconds", showlegend=False)
    frame["xaxis"] |= {"type": "category", "gridcolor": "rgba(0,0,0,0)"}
    return {"data": traces, "layout": frame}


def _shown(groups: Sequence[Group]) -> list[Group]:
    return [group for group in groups if group.summary.spread][:MAX_GROUPS]


def _labels(groups: Sequence[Group]) -> list[str]:
    names = [group.name for group in groups]
    return [
        plain(group.name if names.count(group.name) == 1 else f"{group.name} ({group.cluster_name})")
        for group in groups
    ]


def _box(group: Group, label: str, *, few: bool) -> dict[str, Any]:
    seconds = [round(one.seconds, 6) for one in group.trials if one.seconds is not None]
    dots: dict[str, Any] = {
        "name": label,
        "x": [label] * len(seconds),
        "y": seconds,
        "hovertemplate": "%{x}<br>%{y:.3f} s<extra></extra>",
    }
    if len(seconds) < 8:
        return {**dots, "type": "scatter", "mode": "markers", "marker": {"size": 9, "color": "var(--accent)"}}
    return {
        **dots,
        "type": "box",
        "boxpoints": "all" if few and len(seconds) <= MAX_DOTS // 12 else "outliers",
        "pointpos": 0,
        "jitter": 0.4,
        "fillcolor": "rgba(0,0,0,0)",
        "line": {"color": "var(--mute)", "width": 1.5},
        "marker": {"size": 6, "color": "var(--accent)"},
    }


def chart(groups: Sequence[Group], by: GroupBy, kind: str, url: str) -> Chart:
    measure = "Time to resume" if kind == "failover" else "Time to reload, storage part only"
    return Chart(
        name="groups",
        title=f"{measure}, by {WORDS[by]}",
        verdict=verdict(groups, by),
        url=url,
        headers=(WORDS[by].capitalize(), "Drills", "p50", "p95", "Largest", "Objective"),
        rows=tuple(
            (one.name, str(one.count), one.p50, one.tail, one.largest, one.objective) for one in map(row, groups)
        ),
        may_be_logarithmic=True,
        note=f"The slowest {MAX_GROUPS} of {len(groups)} are drawn." if len(groups) > MAX_GROUPS else "",
    )


def verdict(groups: Sequence[Group], by: GroupBy) -> str:
    word = WORDS[by]
    timed = [group for group in groups if group.summary.spread]
    medians = {group.name: group.summary.spread.p50 for group in timed if group.summary.spread}
    if not medians:
        return f"No drill of a {word} restored in the last 90 days."
    slowest, fastest = max(medians, key=lambda name: medians[name]), min(medians, key=lambda name: medians[name])
    if len(medians) == 1:
        count = sum(group.summary.spread.count for group in timed if group.summary.spread)
        drills = "one drill, which took" if count == 1 else f"half of its {count} drills within"
        begin = f"Only {slowest} was measured: {drills} {units.duration(medians[slowest])}."
    else:
        begin = (
            f"Half of {slowest}'s drills took {units.duration(medians[slowest])} or less, the slowest of "
            f"{len(medians)}; {fastest} is the fastest with {units.duration(medians[fastest])}."
        )
    over = [group.name for group in groups if group.summary.budget.left < 0]
    slow = [group.name for group in groups if group.summary.slower]
    more = f" Over the budget of misses: {_names(over)}." if over else ""
    return f"{begin}{more}" + (f" Slower than its like: {_names(slow)}." if slow else "")


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
