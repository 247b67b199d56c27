"""What changed since the last comparable drill: two drills' figures in, differences and a sentence out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from apps.core import units
from apps.core.phases import LABELS

NOTABLE_RATIO = 0.05
"""Smaller differences between two drills are noise, and are not spoken of."""
NOTABLE_SECONDS = 0.05
_CACHED_POINTS = 0.02
_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one drill measured. `nodes` and `versions` (of the agents) are sorted; empty where not recorded."""

    id: str
    at: datetime
    step: int | None
    seconds: float | None
    total_bytes: int | None
    bytes_per_second: float | None
    phases: Mapping[str, float] = field(default_factory=dict)
    cached_ratio_before: float | None = None
    effective: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Change:
    """One difference. `label` names it, `before` and `after` are in words, `ratio` is after / before - 1 (None where
    that means nothing), `seconds` what it adds to the time (of a phase only)."""

    what: str
    label: str
    before: str
    after: str
    ratio: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`seconds` is positive where this drill was slower. `changes` in the order in which they matter."""

    with_drill: str
    at: datetime
    seconds: float | None
    changes: tuple[Change, ...]
    sentence: str


def compare(before: Figures, after: Figures) -> Comparison:
    """`before` is the earlier one."""
    changes = (*_phases(before, after), *_amounts(before, after), *_sets(before, after))
    seconds = None if before.seconds is None or after.seconds is None else after.seconds - before.seconds
    return Comparison(
        with_drill=before.id,
        at=before.at,
        seconds=seconds,
        changes=changes,
        sentence=_sentence(before, seconds, changes),
    )


def _phases(before: Figures, after: Figures) -> list[Change]:
    """Phases that both measured and that took notably longer or shorter, the largest difference first; then those that
    only one of them measured."""
    pairs = [(phase, before.phases.get(phase), after.phases.get(phase)) for phase in LABELS]
    found, odd = [], []
    for phase, old, new in pairs:
        if old is not None and new is not None:
            if _is_notable(old, new, after.seconds):
                ratio = new / old - 1 if old > 0 else None
                words = (units.duration(old), units.duration(new))
                found.append(_change("phase", LABELS[phase], words, ratio, new - old))
        elif old is not None or new is not None:
            odd.append(_change("phase", LABELS[phase], (units.duration(old), units.duration(new))))
    return sorted(found, key=lambda change: -abs(change.seconds or 0.0)) + odd


def _is_notable(old: float, new: float, whole: float | None) -> bool:
    gap = abs(new - old)
    return gap >= max(NOTABLE_SECONDS, NOTABLE_RATIO * (whole or 0.0)) and gap > NOTABLE_RATIO * max(old, new)


def _amounts(before: Figures, after: Figures) -> list[Change]:
    found = []
    if before.total_bytes and after.total_bytes and _differs(before.total_bytes, after.total_bytes):
        words = (units.size(before.total_bytes), units.size(after.total_bytes))
        found.append(_change("bytes", "Bytes", words, after.total_bytes / before.total_bytes - 1))
    if before.bytes_per_second and after.bytes_per_second and _differs(before.bytes_per_second, after.bytes_per_second):
        words = (units.rate(before.bytes_per_second), units.rate(after.bytes_per_second))
        found.append(_change("rate", "Rate", words, after.bytes_per_second / before.bytes_per_second - 1))
    old, new = before.cached_ratio_before, after.cached_ratio_before
    if (old is None) != (new is None) or (old is not None and new is not None and abs(new - old) > _CACHED_POINTS):
        found.append(_change("cached", "Cached before", (_cached_words(old), _cached_words(new))))
    if before.step != after.step and before.step is not None and after.step is not None:
        found.append(_change("step", "Checkpoint", (f"step {before.step:,}", f"step {after.step:,}")))
    return found


def _cached_words(ratio: float | None) -> str:
    return units.NOT_MEASURED if ratio is None else units.percent(ratio)


def _differs(old: float, new: float) -> bool:
    return abs(new / old - 1) > NOTABLE_RATIO


def _sets(before: Figures, after: Figures) -> list[Change]:
    """Backends, nodes and versions; what one of the two did not record cannot be compared."""
    named = [
        ("backend", "Backend used", before.effective, after.effective),
        ("nodes", "Nodes", before.nodes, after.nodes),
        ("versions", "Agent versions", before.versions, after.versions),
    ]
    return [_set_change(what, label, old, new) for what, label, old, new in named if old and new and old != new]


def _set_change(what: str, label: str, old: Sequence[str], new: Sequence[str]) -> Change:
    if what != "nodes":
        return _change(what, label, (", ".join(old), ", ".join(new)))
    gone, come = [name for name in old if name not in new], [name for name in new if name not in old]
    return _change(what, label, (_names(gone) or "the others as before", _names(come) or "none in their place"))


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _change(
    what: str, label: str, words: tuple[str, str], ratio: float | None = None, seconds: float | None = None
) -> Change:
    return Change(what=what, label=label, before=words[0], after=words[1], ratio=ratio, seconds=seconds)


def _sentence(before: Figures, seconds: float | None, changes: Sequence[Change]) -> str:
    if seconds is None:
        lead = "How its time compares is not measured"
    elif before.seconds and abs(seconds) <= max(NOTABLE_SECONDS, NOTABLE_RATIO * before.seconds):
        lead = f"As long as the last comparable drill, within {units.percent(NOTABLE_RATIO)}"
    else:
        word = "longer" if seconds > 0 else "shorter"
        lead = f"{units.duration(abs(seconds))} {word} than the last comparable drill"
    why = [_words(change) for change in changes[:_NAMED]]
    return f"{lead}: {'; '.join(why)}." if why else f"{lead}; nothing else differs."


def _words(change: Change) -> str:
    if change.seconds is not None:
        return f"{change.label.lower()} took {units.duration(abs(change.seconds))} {_more(change.seconds)}"
    if change.what == "nodes":
        return f"nodes: {change.before} out, {change.after} in"
    return f"{change.label[0].lower()}{change.label[1:]} {change.after}, was {change.before}"


def _more(value: float) -> str:
    return "more" if value > 0 else "less"
