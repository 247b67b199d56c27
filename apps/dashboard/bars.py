"""Phase bars as the pages draw them: percent of one scale, so that bars under each other compare. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from apps.core import units
from apps.core.phases import LABELS, ordered
from apps.dashboard.palette import css_name


@dataclass(frozen=True)
class Bar:
    """`pieces` are (CSS class, percent of the scale, tooltip). `label` says all of it for those who cannot see it."""

    pieces: tuple[tuple[str, str, str], ...]
    objective_percent: str | None
    objective: str
    label: str


def scale_of(seconds: float | None, objective_seconds: float | None) -> float:
    """The seconds at the right end: room for the time and for the objective's line."""
    return max(seconds or 0.0, (objective_seconds or 0.0) * 1.06) or 1.0


def bar(
    phases: Mapping[str, float],
    seconds: float | None,
    objective_seconds: float | None,
    scale_seconds: float | None = None,
) -> Bar | None:
    """None where nothing was measured. Wall time that no phase explains shows as a hatched rest."""
    if seconds is None and not phases:
        return None
    measured = [(phase, value) for phase, value in ordered(phases) if value is not None]
    covered = sum(value for _phase, value in measured)
    wall = max(seconds or 0.0, covered)
    scale = scale_seconds or scale_of(wall, objective_seconds)
    pieces = [
        (f"ph-{css_name(phase)}", _percent(value, scale), f"{LABELS[phase]} {units.duration(value)}")
        for phase, value in measured
        if value > 0
    ]
    rest = wall - covered
    if rest > 0.01 * wall:
        pieces.append(("rest", _percent(rest, scale), f"Not attributed to a phase {units.duration(rest)}"))
    objective = f"Objective {units.duration(objective_seconds)}" if objective_seconds else ""
    label = ", ".join([f"{units.duration(wall)} in all", *(piece[2] for piece in pieces), *filter(None, [objective])])
    line = _percent(objective_seconds, scale) if objective_seconds else None
    return Bar(tuple(pieces), line, objective, label)


def _percent(value: float, scale: float) -> str:
    return f"{100 * value / scale:.2f}"
