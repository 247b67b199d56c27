"""Which channel is told of which event. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from apps.alerts.deciding import is_as_severe

ALERT_TYPES = ("alert.opened", "alert.acknowledged", "alert.resolved")
EVENT_TYPES = (
    *ALERT_TYPES,
    "drill.started", "drill.passed", "drill.breached", "drill.failed", "drill.lost", "drill.cancelled", "drill.skipped",
    "agent.lost", "agent.recovered",
    "checkpoint.registered", "checkpoint.completed", "checkpoint.verified", "checkpoint.corrupt", "checkpoint.expired",
    "objective.breached", "objective.recovered",
    "scan.finished", "scan.failed",
    "transfer.completed", "transfer.failed",
)  # fmt: skip
"""All that there are, but for tests of a channel."""
ONLY_ALERTS = ("alert.*",)


@dataclass(frozen=True)
class Wishes:
    """What a channel is for. No clusters: every one."""

    event_types: Collection[str]
    min_severity: str
    cluster_ids: Collection[str]

    def has(self, event_type: str) -> bool:
        return any(fnmatchcase(event_type, pattern) for pattern in self.event_types)

    def wants(self, event_type: str, severity: str, cluster_id: str | None) -> bool:
        """`severity` is "" for what is no alert; `cluster_id` None is about Muster itself, and for everybody."""
        if not self.has(event_type):
            return False
        if self.cluster_ids and cluster_id is not None and cluster_id not in self.cluster_ids:
            return False
        return not severity or is_as_severe(severity, self.min_severity)


def unknown_patterns(patterns: Iterable[str]) -> list[str]:
    """Those that match no event that there is."""
    return [pattern for pattern in patterns if not any(fnmatchcase(one, pattern) for one in EVENT_TYPES)]
