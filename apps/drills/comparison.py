"""What changed since the last comparable drill: two drills' facts in, differences and a sentence out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.core import units
from apps.core.phases import LABELS
from apps.drills.differences import LEAST_SECONDS, SAME_RATIO, Difference, Fact, Subject, changes

NOTABLE_RATIO = SAME_RATIO - 1
"""Phases that differ by less of the whole time are noise, and are not spoken of."""
_NAMED = 3
_TOLD: Mapping[str, tuple[str, str]] = {
    "total_bytes": ("bytes", "Bytes"),
    "bytes_per_second": ("rate", "Rate"),
    "cached_ratio_before": ("cached", "Cached before"),
    "checkpoint_step": ("step", "Checkpoint"),
    "effective": ("backend", "Backend used"),
    "nodes": ("nodes", "Nodes"),
    "agent_versions": ("versions", "Agent versions"),
}
"""What beside phases can be why the times differ, by the name of its field: a word for programs and a label."""
_MAY_BE_UNMEASURED = "cached_ratio_before"


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


def compare(before: Subject, after: Subject) -> Comparison:
    """`before` is the earlier one."""
    found = changes(before, after)
    listed = (*_phases(found, after.seconds), *_others(found))
    seconds = None if before.seconds is None or after.seconds is None else after.seconds - before.seconds
    return Comparison(
        with_drill=before.drill_id,
        at=before.at,
        seconds=seconds,
        changes=listed,
        sentence=_sentence(before, seconds, listed),
    )


def _phases(found: Sequence[Difference], whole: float | None) -> list[Change]:
    """Phases that both measured and that took notably longer or shorter, the largest difference first; then those that
    only one of them measured."""
    both, odd = [], []
    for one in found:
        if one.field.name not in LABELS:
            continue
        old, new = one.values
        if isinstance(old, float) and isinstance(new, float):
            if abs(new - old) >= NOTABLE_RATIO * (whole or 0.0):
                both.append(_change("phase", one.field.label, one.shown, _ratio(old, new), new - old))
        else:
            odd.append(_change("phase", one.field.label, one.shown))
    return sorted(both, key=lambda change: -abs(change.seconds or 0.0)) + odd


def _others(found: Sequence[Difference]) -> list[Change]:
    """What one of the two did not record cannot be compared."""
    by_name = {one.field.name: one for one in found}
    known = [by_name[name] for name in _TOLD if name in by_name]
    return [_other(one) for one in known if None not in one.values or one.field.name == _MAY_BE_UNMEASURED]


def _other(one: Difference) -> Change:
    what, label = _TOLD[one.field.name]
    old, new = one.values
    if what == "step":
        return _change(what, label, (f"step {one.shown[0]}", f"step {one.shown[1]}"))
    if what == "nodes" and isinstance(old, tuple) and isinstance(new, tuple):
        gone, come = [name for name in old if name not in new], [name for name in new if name not in old]
        return _change(what, label, (_names(gone) or "the others as before", _names(come) or "none in their place"))
    return _change(what, label, one.shown, _ratio(old, new) if what in ("bytes", "rate") else None)


def _ratio(old: Fact, new: Fact) -> float | None:
    return new / old - 1 if isinstance(old, float | int) and isinstance(new, float | int) and old > 0 else None


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _change(
    what: str, label: str, words: Sequence[str], ratio: float | None = None, seconds: float | None = None
) -> Change:
    return Change(what=what, label=label, before=words[0], after=words[1], ratio=ratio, seconds=seconds)


def _sentence(before: Subject, seconds: float | None, changes: Sequence[Change]) -> str:
    if seconds is None:
        lead = "How its time compares is not measured"
    elif before.seconds and abs(seconds) <= max(LEAST_SECONDS, NOTABLE_RATIO * before.seconds):
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
