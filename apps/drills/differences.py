"""Drills side by side: what was asked, what was really done, each phase and the result; which of it differs, and one
sentence about it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from apps.core import units
from apps.core.phases import LABELS, PHASES

MOST_DRILLS = 8
LETTERS = "ABCDEFGH"
SAME_RATIO = 1.05
"""Two times, rates or sizes closer than this say the same."""
LEAST_SECONDS = 0.1
LEAST_RATIO = 0.05
MOST_NAMED = 4
NOT_SET = "not set"

Fact = str | float | bool | tuple[str, ...] | None


class Topic(StrEnum):
    ASKED = "asked"
    DONE = "done"
    PHASES = "phases"
    RESULT = "result"


class Unit(StrEnum):
    TEXT = "text"
    NAMES = "names"
    COUNT = "count"
    SECONDS = "seconds"
    BYTES = "bytes"
    RATE = "bytes_per_second"
    RATIO = "ratio"
    INDEX = "index"


class Field(NamedTuple):
    """One line of the comparison. `explains`: where it differs, it can be why the times do."""

    name: str
    label: str
    topic: Topic
    unit: Unit
    explains: bool = False


_A, _D, _P, _R = Topic.ASKED, Topic.DONE, Topic.PHASES, Topic.RESULT
FIELDS: tuple[Field, ...] = (
    Field("kind", "Kind", _A, Unit.TEXT),
    Field("run_name", "Run", _A, Unit.TEXT, True),
    Field("choice", "Which checkpoint", _A, Unit.TEXT),
    Field("node_count", "Nodes asked for", _A, Unit.COUNT),
    Field("ladder", "Ladder", _A, Unit.NAMES),
    Field("mapping", "Who reads what", _A, Unit.TEXT, True),
    Field("backend", "Backend asked for", _A, Unit.TEXT),
    Field("device", "Bytes end in", _A, Unit.TEXT, True),
    Field("evict", "Page cache dropped first", _A, Unit.TEXT, True),
    Field("max_bytes_per_second", "Cap of each client", _A, Unit.RATE, True),
    Field("fault", "Fault", _A, Unit.TEXT, True),
    Field("signal_name", "Signal", _A, Unit.TEXT, True),
    Field("objective_seconds", "Objective", _A, Unit.SECONDS),
    Field("checkpoint_step", "Step", _D, Unit.COUNT),
    Field("format", "Format", _D, Unit.TEXT, True),
    Field("tier_name", "Tier", _D, Unit.TEXT, True),
    Field("world_size", "Ranks of the checkpoint", _D, Unit.COUNT, True),
    Field("total_bytes", "Bytes read", _D, Unit.BYTES, True),
    Field("client_count", "Clients at once", _D, Unit.COUNT, True),
    Field("nodes", "Nodes", _D, Unit.NAMES, True),
    Field("effective", "Backend used", _D, Unit.NAMES, True),
    Field("cache_state", "Cache", _D, Unit.NAMES, True),
    Field("cached_ratio_before", "Cached before", _D, Unit.RATIO, True),
    Field("verified", "Every byte verified", _D, Unit.TEXT, True),
    Field("agent_versions", "Agent versions", _D, Unit.NAMES, True),
    *(Field(phase.value, LABELS[phase], _P, Unit.SECONDS) for phase in PHASES),
    Field("unattributed_seconds", "Not attributed to a phase", _P, Unit.SECONDS),
    Field("outcome", "Outcome", _R, Unit.TEXT),
    Field("objective_state", "Against its objective", _R, Unit.TEXT),
    Field("seconds", "Took", _R, Unit.SECONDS),
    Field("bytes_per_second", "Together", _R, Unit.RATE),
    Field("efficiency_ratio", "Of the measured ceiling", _R, Unit.RATIO),
    Field("jain_index", "Balance (Jain)", _R, Unit.INDEX),
    Field("slowest", "Last to finish", _R, Unit.NAMES),
    Field("lost_steps", "Steps computed again", _R, Unit.COUNT),
    Field("lost_seconds", "Work computed again", _R, Unit.SECONDS),
)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One drill. `facts` are by the names of FIELDS; one that is absent or None was not measured, or does not apply.
    `restored`: its `seconds` is a time to compare."""

    drill_id: str
    at: datetime
    restored: bool
    is_storage_only: bool
    reason: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def seconds(self) -> float | None:
        value = self.facts.get("seconds") if self.restored else None
        return value if isinstance(value, float) else None


@dataclass(frozen=True)
class Difference:
    """One field of every subject, in their order."""

    field: Field
    values: tuple[Fact, ...]

    @property
    def differs(self) -> bool:
        return any(_apart(self.field.unit, self.values[0], value) for value in self.values[1:])

    @property
    def shown(self) -> tuple[str, ...]:
        """The values in words. None: of what was asked it is "not set", of everything else "not measured"."""
        none = NOT_SET if self.field.topic is Topic.ASKED else units.NOT_MEASURED
        return tuple(none if value is None else words(self.field.unit, value) for value in self.values)

    @property
    def sentence(self) -> str:
        """`Read: 31 s, now 98 s`, for two subjects of which the later is last."""
        return f"{self.field.label}: {self.shown[0]}, now {self.shown[-1]}"


def differences(subjects: Sequence[Subject]) -> list[Difference]:
    """Every field that any of the subjects knows, in order."""
    found = (Difference(one, tuple(subject.facts.get(one.name) for subject in subjects)) for one in FIELDS)
    return [one for one in found if any(value is not None for value in one.values)]


def changes(before: Subject, after: Subject) -> list[Difference]:
    """Only what differs between two."""
    return [one for one in differences((before, after)) if one.differs]


def words(unit: Unit, value: Fact) -> str:
    """A value for people."""
    if value is None:
        return units.NOT_MEASURED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    if isinstance(value, str):
        return value
    return _NUMBERS[unit](value)


_NUMBERS: dict[Unit, Callable[[float], str]] = {
    Unit.SECONDS: units.duration,
    Unit.BYTES: lambda value: units.size(int(value)),
    Unit.RATE: units.rate,
    Unit.RATIO: lambda value: f"{100 * value:.1f} %",
    Unit.INDEX: lambda value: f"{value:.3f}",
    Unit.COUNT: lambda value: f"{value:,.0f}",
    Unit.TEXT: str,
    Unit.NAMES: str,
}


def _apart(unit: Unit, one: Fact, other: Fact) -> bool:
    if isinstance(one, float | int) and isinstance(other, float | int) and not isinstance(one, bool):
        return _far(unit, float(one), float(other))
    return one != other


def _far(unit: Unit, one: float, other: float) -> bool:
    if unit in (Unit.RATIO, Unit.INDEX):
        return abs(one - other) > LEAST_RATIO
    if unit in (Unit.COUNT, Unit.TEXT):
        return one != other
    low, high = sorted((one, other))
    return high > SAME_RATIO * low and (unit is not Unit.SECONDS or high - low >= LEAST_SECONDS)


# -- the sentence ------------------------------------------------------------------------------------------------------
def verdict(subjects: Sequence[Subject]) -> str:
    """The fastest against the slowest of those that restored, the phase that explains it, and what else differs."""
    letters = dict(zip((subject.drill_id for subject in subjects), LETTERS, strict=False))
    timed = sorted((one for one in subjects if one.seconds is not None), key=lambda one: one.seconds or 0.0)
    lost = [f"{letters[one.drill_id]} did not restore" for one in subjects if not one.restored]
    unlike = _unlike(subjects)
    if len(timed) < 2:
        alone = f"only {letters[timed[0].drill_id]} was timed" if timed else "none of them was timed"
        return _sentence([*lost, f"{alone}, so there are no times to compare"])
    fast, slow = timed[0], timed[-1]
    begin = _times(fast, slow, letters, len(timed))
    late = [letters[one.drill_id] for one in timed if one.facts.get("objective_state") == "breached"]
    if late:
        was = "was late for its objective" if len(late) == 1 else "were late for their objectives"
        begin += f"; {' and '.join(sorted(late))} {was}"
    if unlike:
        return " ".join([_sentence([*lost, begin]), unlike])
    parts = [_sentence([*lost, begin])]
    if _far(Unit.SECONDS, fast.seconds or 0.0, slow.seconds or 0.0):
        parts += [_blame(fast, slow), _causes(fast, slow)]
    return " ".join(filter(None, parts))


def _sentence(parts: Sequence[str]) -> str:
    text = "; ".join(parts) + "."
    return text[:1].upper() + text[1:]


def _times(fast: Subject, slow: Subject, letters: Mapping[str, str], count: int) -> str:
    low, high = fast.seconds or 0.0, slow.seconds or 0.0
    if not _far(Unit.SECONDS, low, high):
        which = "both" if count == 2 else f"all {count}"
        return f"{which} took about the same, {units.duration(low)} to {units.duration(high)}"
    times = f", {high / low:.2f} times the" if low > 0 else ", against"
    return (
        f"{letters[slow.drill_id]} took {units.duration(high)}{times} {units.duration(low)} of {letters[fast.drill_id]}"
    )


def _unlike(subjects: Sequence[Subject]) -> str:
    if len({one.is_storage_only for one in subjects}) > 1:
        return "Some measured the storage part only, others a whole restart: these times answer different questions."
    if len({one.facts.get("kind") for one in subjects}) > 1:
        return "They are of different kinds, so the times answer different questions."
    return ""


def _blame(fast: Subject, slow: Subject) -> str:
    """The phase that grew most from the fastest to the slowest."""
    grown = []
    for phase in PHASES:
        before, after = fast.facts.get(phase.value), slow.facts.get(phase.value)
        if isinstance(before, float) and isinstance(after, float):
            grown.append((after - before, LABELS[phase]))
    if not grown:
        return "No phase was measured in both."
    excess, label = max(grown)
    if excess <= 0:
        return "No phase that was measured in both grew."
    more = (slow.seconds or 0.0) - (fast.seconds or 0.0)
    return f"{label} took {units.duration(excess)} longer, of {units.duration(more)} in all."


def _causes(fast: Subject, slow: Subject) -> str:
    found = [one for one in changes(fast, slow) if one.field.explains]
    if not found:
        return "Nothing else that was recorded of the two differs."
    named = [
        f"{one.field.label.lower()} ({_short(one.shown[0])}, {_short(one.shown[1])})" for one in found[:MOST_NAMED]
    ]
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"Between the two differ {', '.join(named)}{more}."


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
