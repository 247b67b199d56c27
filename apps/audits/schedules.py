"""Audit policies that are due."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet
from django.utils import timezone

from apps.audits import rounds
from apps.audits.models import AuditPolicy, AuditRound
from apps.core.schedules import Schedule


def fire_due(now: datetime | None = None) -> int:
    """Start the rounds that are due. Gives how many."""
    return POLICIES.fire_due(now or timezone.now())


def _policies() -> QuerySet[AuditPolicy]:
    return AuditPolicy.objects.select_related("cluster")


POLICIES = Schedule(_policies, AuditRound, rounds.in_the_way, rounds.start, plan_field="policy")
