"""Conditions that somebody should act on."""

from __future__ import annotations

from django.db import models

from apps.core.fields import IdField
from apps.fleet.models import Cluster


class Alert(models.Model):
    """One condition, open from when it was seen until it is gone; one open alert for each (rule, subject)."""

    class Rule(models.TextChoices):
        DAMAGE = "damage", "Damage found"
        AGENT_LOST = "agent_lost", "Agent lost"
        OBJECTIVE_BREACHED = "objective_breached", "Objective breached"
        DRILL_FAILED = "drill_failed", "Drill failed"
        SCHEDULE_MISSED = "schedule_missed", "Schedule missed"
        TIER_UNREADABLE = "tier_unreadable", "Tier not readable"
        TIER_BEHIND = "tier_behind", "Tier behind"
        TRANSFER_STUCK = "transfer_stuck", "Transfer failed or stuck"

    class State(models.TextChoices):
        OPEN = "open", "Open"
        ACKNOWLEDGED = "acknowledged", "Acknowledged"
        RESOLVED = "resolved", "Resolved"

    id = IdField(prefix="alr")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="alerts")
    rule = models.CharField(max_length=32, choices=Rule)
    subject_kind = models.CharField(max_length=32)
    subject_id = models.CharField(max_length=40)
    state = models.CharField(max_length=16, choices=State, default=State.OPEN)
    summary = models.TextField()
    opened_at = models.DateTimeField()
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=150, blank=True)
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "subject_kind", "subject_id"],
                condition=~models.Q(state="resolved"),
                name="one_open_alert_per_subject",
            )
        ]
        indexes = [models.Index(fields=["-opened_at", "-id"], name="alert_newest")]

    def __str__(self) -> str:
        return f"{self.rule}: {self.summary}"
