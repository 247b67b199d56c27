"""Rows that every app may leave: state changes."""

from __future__ import annotations

from django.db import models


class Transition(models.Model):
    """One change of one state: what, from, to, why and by whom. History, alerts and live pages read these."""

    owner_kind = models.CharField(max_length=32)
    owner_id = models.CharField(max_length=40)
    old = models.CharField(max_length=32)
    new = models.CharField(max_length=32)
    reason = models.TextField(blank=True)
    actor = models.CharField(max_length=150, blank=True)
    at = models.DateTimeField()
    processed_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["owner_kind", "owner_id", "at"], name="transition_owner"),
            # the alert evaluator walks only what it has not seen
            models.Index(fields=["id"], name="transition_unprocessed", condition=models.Q(processed_at=None)),
        ]

    def __str__(self) -> str:
        return f"{self.owner_kind} {self.owner_id}: {self.old} -> {self.new}"
