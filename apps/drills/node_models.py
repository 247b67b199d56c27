"""Nodes that somebody parks as a spare or brings back. Part of `models`, where others import it from."""

from __future__ import annotations

from django.db import models

from apps.core.fields import IdField
from apps.fleet.models import Agent, Cluster


class NodeAction(models.Model):
    """One node put out of use as a spare, or brought back through the gate, through its cluster's scheduler."""

    class What(models.TextChoices):
        PARK = "park", "Park as a spare"
        BRING_BACK = "bring_back", "Bring back"

    class State(models.TextChoices):
        ASKED = "asked", "Asked for"
        CHECKING = "checking", "Checking"
        ACTING = "acting", "Acting"
        FINISHED = "finished", "Finished"

    class Outcome(models.TextChoices):
        NONE = "", "None yet"
        DONE = "done", "Done"
        REFUSED = "refused", "Refused"
        FAILED = "failed", "Failed"

    id = IdField(prefix="nda")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="node_actions")
    node_name = models.CharField(max_length=253)
    """As the scheduler calls it."""
    what = models.CharField(max_length=16, choices=What)
    state = models.CharField(max_length=16, choices=State, default=State.ASKED)
    outcome = models.CharField(max_length=16, choices=Outcome, default=Outcome.NONE, blank=True)
    reason = models.TextField(blank=True)
    agent = models.ForeignKey(Agent, on_delete=models.SET_NULL, null=True, related_name="+")
    """Whom the gate asks."""
    checks = models.JSONField(default=list)
    """What the gate found: name, is_fit, detail."""
    requested_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField()
    next_attempt_at = models.DateTimeField(null=True, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "node_name"],
                condition=models.Q(finished_at=None),
                name="one_action_at_a_time_on_a_node",
            )
        ]
        indexes = [models.Index(fields=["cluster", "-created_at"], name="node_action_newest")]

    def __str__(self) -> str:
        return f"{self.what} {self.node_name}"
