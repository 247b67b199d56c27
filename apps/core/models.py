"""Rows that every app may leave: state changes, and how far work is; what plans and work in turns have in common."""

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


class Scheduled(models.Model):
    """A plan that comes due by cron text in a named time zone; `core.schedules` fires it."""

    class Missed(models.TextChoices):
        RUN_ONCE = "run_once", "Run once when back"
        SKIP = "skip", "Skip"

    cron = models.CharField(max_length=100, blank=True)
    """Empty: only started by hand."""
    time_zone = models.CharField(max_length=64, default="UTC")
    missed = models.CharField(max_length=16, choices=Missed, default=Missed.SKIP)
    enabled = models.BooleanField(default=True)
    next_at = models.DateTimeField(null=True, blank=True, db_index=True)

    class Meta:
        abstract = True


class Occurrence(models.Model):
    """One due time of one plan: the concrete class adds `plan`, and makes (plan, planned_at) unique, so that two beats
    or a killed one never double or drop it."""

    planned_at = models.DateTimeField()
    skipped_reason = models.TextField(blank=True)
    created_at = models.DateTimeField()

    class Meta:
        abstract = True


class Sliced(models.Model):
    """Work that some worker does in turns; `core.slices` keeps a second one out."""

    next_attempt_at = models.DateTimeField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    lease_token = models.CharField(max_length=40, blank=True)
    """Who holds the lease; one who finds another one there stops."""

    class Meta:
        abstract = True


class WorkCursor(models.Model):
    """How far work in turns is, compressed: the next turn, in whatever worker, goes on from there."""

    owner_id = models.CharField(max_length=40, primary_key=True)
    body = models.BinaryField()
    saved_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"cursor of {self.owner_id}"


class Heartbeat(models.Model):
    """When one of Muster's own parts last did its work: what tells a quiet Muster from a blind one."""

    part = models.CharField(max_length=32, primary_key=True)
    beat_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.part} at {self.beat_at}"


class IdempotentRequest(models.Model):
    """A request under an `Idempotency-Key`, and its answer once it has one; `core.idempotency` reads and writes these.

    `status` is None while it runs. The body is empty, and `has_secret` set, where the answer held a secret.
    """

    scope_sha256 = models.CharField(max_length=64, unique=True)
    """Of caller, method, path and key."""
    body_sha256 = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)
    headers = models.JSONField(default=dict)
    body = models.BinaryField(default=b"")
    has_secret = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_index=True)
    lease_expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"request {self.scope_sha256[:8]}: {self.status or 'running'}"
