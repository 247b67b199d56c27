"""What differs between two looks at one copy, and what is left of many differences one after the other. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

MISSING = "missing"
APPEARED, CHANGED, VANISHED = "appeared", "changed", "vanished"
Facts = dict[str, Any]
"""status (as listed), total_bytes, shard_count and fingerprint of a copy."""


class _Copy(Protocol):
    listed_status: Any
    total_bytes: Any
    shard_count: Any
    fingerprint: Any


class Change(Protocol):
    """One row of `ScanChange`."""

    placement_id: str
    kind: str
    before: Facts
    after: Facts


def listed_facts(row: _Copy) -> Facts:
    return {
        "status": str(row.listed_status),
        "total_bytes": row.total_bytes,
        "shard_count": row.shard_count,
        "fingerprint": row.fingerprint,
    }


def difference(before: Facts | None, after: Facts | None) -> dict[str, Any] | None:
    """`kind`, `before` and `after` of a copy; None where nothing differs. A side that is None, or missing, was not
    there. Of a change only what differs is kept."""
    was, is_there = _is_there(before), _is_there(after)
    if not was and not is_there:
        return None
    if not was:
        return {"kind": APPEARED, "before": {}, "after": after}
    if not is_there:
        return {"kind": VANISHED, "before": before, "after": {}}
    assert before is not None and after is not None
    names = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    if not names:
        return None
    return {
        "kind": CHANGED,
        "before": {name: before.get(name) for name in sorted(names)},
        "after": {name: after.get(name) for name in sorted(names)},
    }


def _is_there(facts: Facts | None) -> bool:
    return facts is not None and facts.get("status") != MISSING


@dataclass(slots=True)
class Net:
    """What several changes of one copy, one after the other, come to."""

    placement_id: str
    first_kind: str
    before: Facts
    after: Facts
    is_there: bool

    def outcome(self) -> dict[str, Any] | None:
        """As `difference`."""
        was_there = self.first_kind != APPEARED
        if not was_there:
            return {"kind": APPEARED, "before": {}, "after": self.after} if self.is_there else None
        if not self.is_there:
            return {"kind": VANISHED, "before": self.before, "after": {}}
        return difference(self.before, {name: self.after[name] for name in self.before if name in self.after})


def fold(changes: Iterable[Change]) -> Mapping[str, dict[str, Any]]:
    """Net difference by placement id of changes in the order in which they were seen: what appeared and vanished again
    is left out, and what came back as it was is no change."""
    nets: dict[str, Net] = {}
    for change in changes:
        net = nets.get(change.placement_id)
        if net is None:
            net = nets[change.placement_id] = Net(change.placement_id, change.kind, {}, {}, True)
        if net.first_kind != APPEARED:
            net.before = {**change.before, **net.before}
        net.after = {**net.after, **change.after}
        net.is_there = change.kind != VANISHED
    outcomes = {pk: net.outcome() for pk, net in nets.items()}
    return {pk: outcome for pk, outcome in outcomes.items() if outcome is not None}
