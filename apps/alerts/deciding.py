"""Which rule holds for what, whether it is exceeded, and which silence matches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from apps.alerts.rule_kinds import KINDS

SEVERITIES = ("info", "warning", "critical")


class RuleRow(Protocol):
    """A row that says how one kind is alerted on, everywhere or in one place."""

    kind: str
    cluster_id: Any
    run_id: Any
    enabled: bool
    severity: str
    threshold: float | None


@dataclass(frozen=True)
class Standard:
    """What holds where no row says otherwise."""

    kind: str
    enabled: bool
    severity: str
    threshold: float | None


class Rules:
    """All rule rows, looked up by what they are for: the run's own, else its cluster's, else the one for everywhere."""

    def __init__(self, rows: Iterable[RuleRow]) -> None:
        self._rows = {(row.kind, row.cluster_id, row.run_id): row for row in rows}

    def of(self, kind: str, cluster_id: str | None, run_id: str | None) -> RuleRow | Standard:
        for key in ((kind, cluster_id, run_id), (kind, cluster_id, None), (kind, None, None)):
            if key in self._rows:
                return self._rows[key]
        standard = KINDS[kind]
        return Standard(kind, True, standard.severity, standard.threshold)


def is_exceeded(rule: RuleRow | Standard, measured: float | None) -> bool:
    """Whether to alert on a condition of which so much was measured, in the rule's unit. What cannot be measured
    counts as exceeded: unknown is not well."""
    if not rule.enabled:
        return False
    return rule.threshold is None or measured is None or measured > rule.threshold


def used_ratio(used_bytes: int, capacity_bytes: int | None) -> float | None:
    """Of a tier's capacity; None where none is declared."""
    return used_bytes / capacity_bytes if capacity_bytes else None


def overdue_seconds(last_at: datetime | None, begun_at: datetime, now: datetime) -> float:
    """How long something is overdue that happened last at `last_at`, or never since `begun_at`; never negative."""
    return max(0.0, (now - (last_at or begun_at)).total_seconds())


def is_as_severe(severity: str, least: str) -> bool:
    return SEVERITIES.index(severity) >= SEVERITIES.index(least)


class Matcher(Protocol):
    """What a silence matches; empty fields match everything."""

    cluster_id: Any
    rule: str
    run_id: Any
    subject_id: str
    summary_contains: str

    def stands(self, now: datetime) -> bool: ...


class Told(Protocol):
    """An alert, as far as silences look at it."""

    cluster_id: Any
    rule: str
    run_id: Any
    subject_id: str
    summary: str


_M = TypeVar("_M", bound=Matcher)


def silence_for(alert: Told, silences: Sequence[_M], now: datetime) -> _M | None:
    """The first of `silences` that stands now and matches."""
    return next((one for one in silences if one.stands(now) and matches(one, alert)), None)


def matches(silence: Matcher, alert: Told) -> bool:
    return (
        silence.cluster_id in (None, alert.cluster_id)
        and silence.rule in ("", alert.rule)
        and silence.run_id in (None, alert.run_id)
        and silence.subject_id in ("", alert.subject_id)
        and silence.summary_contains.lower() in alert.summary.lower()
    )
