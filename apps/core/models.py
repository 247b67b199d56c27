"""Rows that every app may leave: state changes, and how far work is; what plans and work in turns have in common."""

from __future__ import annotations

from django.db import models

from apps.core.fields import IdField


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


class BulkOperation(Sliced):
    """One verb over many rows, as somebody asked for it; each row is an item with a result of its own."""

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        FINISHED = "finished", "Finished"
        CANCELLED = "cancelled", "Cancelled"

    id = IdField(prefix="blk")
    list_name = models.CharField(max_length=32)
    verb = models.CharField(max_length=32)
    parameters = models.JSONField(default=dict)
    query = models.TextField(blank=True)
    """The list's query that the rows matched; empty where they were ticked one by one."""
    actor = models.CharField(max_length=150)
    state = models.CharField(max_length=16, choices=State, default=State.QUEUED)
    total_count = models.PositiveIntegerField()
    done_count = models.PositiveIntegerField(default=0)
    refused_count = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="bulk_newest"),
            models.Index(fields=["next_attempt_at"], name="bulk_due", condition=~models.Q(next_attempt_at=None)),
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.list_name} for {self.actor}"


class BulkItem(models.Model):
    """One row of a bulk operation and what became of it."""

    class Outcome(models.TextChoices):
        NONE = "", "Waiting"
        DONE = "done", "Done"
        REFUSED = "refused", "Refused"

    operation = models.ForeignKey(BulkOperation, on_delete=models.CASCADE, related_name="items")
    target_id = models.CharField(max_length=40)
    label = models.CharField(max_length=200)
    outcome = models.CharField(max_length=16, choices=Outcome, default=Outcome.NONE, blank=True)
    detail = models.TextField(blank=True)
    done_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["operation", "target_id"], name="item_once_in_operation")]
        indexes = [models.Index(fields=["operation", "outcome", "id"], name="item_outcome")]

    def __str__(self) -> str:
        return f"{self.label}: {self.outcome or 'waiting'}"
