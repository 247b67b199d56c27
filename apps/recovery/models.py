"""Real disruptions and the way back from them."""

from __future__ import annotations

from django.db import models

from apps.checkpoints.models import RunAttempt, TrainingRun
from apps.core.fields import IdField


class Incident(models.Model):
    """A real disruption of a run (a drill's injected fault is not one)."""

    id = IdField(prefix="inc")
    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="incidents")
    ended_attempt = models.OneToOneField(RunAttempt, on_delete=models.CASCADE, null=True, related_name="incident")
    """None: somebody reported it of a run whose launches no hook reports."""
    fault_at = models.DateTimeField()
    """The last sign of life before it: the true fault lies between that and the detection."""
    detected_at = models.DateTimeField(null=True)
    detail = models.TextField(blank=True)
    reported_by = models.CharField(max_length=150, blank=True)
    """Empty: found in the run's own records."""
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"incident of {self.run_id} at {self.fault_at}"


class Recovery(models.Model):
    """From the fault to the first training step beyond the checkpoint, by phase."""

    class State(models.TextChoices):
        OPEN = "open", "Not back yet"
        CLOSED = "closed", "Back"

    id = IdField(prefix="rcv")
    incident = models.OneToOneField(Incident, on_delete=models.CASCADE, related_name="recovery")
    state = models.CharField(max_length=16, choices=State, default=State.OPEN)
    attempt = models.ForeignKey(RunAttempt, on_delete=models.SET_NULL, null=True, related_name="+")
    checkpoint_step = models.BigIntegerField(null=True)
    time_to_resume_seconds = models.FloatField(null=True)
    lost_steps = models.BigIntegerField(null=True)
    lost_seconds = models.FloatField(null=True)
    phases = models.JSONField(default=dict)
    unattributed_seconds = models.FloatField(null=True)
    created_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"recovery from {self.incident_id}"
