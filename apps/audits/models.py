"""Integrity runs over one placement."""

from __future__ import annotations

from django.db import models

from apps.checkpoints.models import Placement
from apps.core.fields import IdField
from apps.fleet.models import Agent


class Audit(models.Model):
    """Sealing (record digests) or verifying (re-read and compare; all of it or a sample) one placement."""

    class Mode(models.TextChoices):
        SEAL = "seal", "Seal"
        VERIFY = "verify", "Verify"

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        FINISHED = "finished", "Finished"

    class Outcome(models.TextChoices):
        NONE = "", "None yet"
        PASSED = "passed", "Passed"
        DAMAGED = "damaged", "Damage found"
        REFUSED = "refused", "Refused"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    id = IdField(prefix="aud")
    placement = models.ForeignKey(Placement, on_delete=models.CASCADE, related_name="audits")
    agent = models.ForeignKey(Agent, on_delete=models.SET_NULL, null=True, related_name="+")
    mode = models.CharField(max_length=16, choices=Mode)
    sample_ratio = models.FloatField(default=1.0)
    seed = models.PositiveBigIntegerField(default=0)
    state = models.CharField(max_length=16, choices=State, default=State.QUEUED)
    outcome = models.CharField(max_length=16, choices=Outcome, default=Outcome.NONE, blank=True)
    reason = models.TextField(blank=True)
    checked_bytes = models.BigIntegerField(null=True)
    checked_chunks = models.PositiveBigIntegerField(null=True)
    total_chunks = models.PositiveBigIntegerField(null=True)
    seconds = models.FloatField(null=True)
    requested_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    next_attempt_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["placement", "mode"],
                condition=models.Q(state__in=["queued", "running"]),
                name="one_audit_at_a_time",
            )
        ]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="audit_newest"),
            # the sweeper asks for unfinished audits only
            models.Index(fields=["next_attempt_at"], name="audit_due", condition=~models.Q(next_attempt_at=None)),
        ]

    def __str__(self) -> str:
        return f"{self.mode} of {self.placement_id}"
