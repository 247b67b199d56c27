"""One thing that may be wrong, as rules look at it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MAX_CONDITIONS = 5000
MAX_SUMMARY = 600


@dataclass(frozen=True)
class Condition:
    """One thing that a rule may find wrong now. (rule, subject) is what an alert is about; the summary may change
    meanwhile."""

    rule: str
    subject_kind: str
    subject_id: str
    cluster_id: str | None
    summary: str
    run_id: str | None = None
    measured: float | None = None
    """In the unit of the rule's threshold; None where its kind has none, or it cannot be measured."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.rule, self.subject_kind, self.subject_id
