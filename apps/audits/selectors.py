"""Audit policies with what lists of them show."""

from __future__ import annotations

from django.db.models import QuerySet

from apps.audits.models import Audit, AuditPolicy, AuditRound, Repair

SHOWN_ROUNDS = 20


def policies() -> QuerySet[AuditPolicy]:
    return AuditPolicy.objects.select_related("cluster", "run", "tier")


def audits() -> QuerySet[Audit]:
    rows = Audit.objects.select_related(
        "placement__checkpoint__run__cluster", "placement__tier__cluster", "agent__node", "round__policy"
    )
    return rows.defer("facts")


def repairs() -> QuerySet[Repair]:
    return Repair.objects.select_related(
        "placement__checkpoint__run__cluster", "placement__tier__cluster", "source__tier", "audit"
    )


def rounds(policy: AuditPolicy) -> list[AuditRound]:
    """The newest ones, each with how its audits ended in `outcomes`: two queries."""
    rows = list(AuditRound.objects.filter(policy=policy).order_by("-planned_at")[:SHOWN_ROUNDS])
    by_round: dict[str, dict[str, int]] = {row.pk: {} for row in rows}
    for pk, outcome, state in Audit.objects.filter(round__in=rows).values_list("round", "outcome", "state"):
        counts = by_round[pk]
        counts[outcome or state] = counts.get(outcome or state, 0) + 1
    for row in rows:
        row.outcomes = by_round[row.pk]  # type: ignore[attr-defined]
    return rows
