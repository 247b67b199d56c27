"""Retention policies, what they planned, and the transfers that carry it out."""

from __future__ import annotations

from django.db import models
from muster_agent.decide.retention import DEFAULT_KEEP_NEWEST

from apps.checkpoints.models import Checkpoint, Manifest, Placement, TrainingRun
from apps.core.fields import IdField
from apps.core.models import Sliced
from apps.fleet.models import Agent, Cluster
from apps.storage.models import StorageTier


class CheckpointPin(models.Model):
    """Somebody wants this checkpoint kept for good, on every tier where it lies."""

    checkpoint = models.OneToOneField(Checkpoint, on_delete=models.CASCADE, related_name="pin")
    reason = models.CharField(max_length=500)
    pinned_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.pinned_by}: {self.reason}"


class CheckpointLabel(models.Model):
    """A word that people give a checkpoint, such as `release`; policies can exempt it."""

    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.CASCADE, related_name="labels")
    label = models.SlugField(max_length=63)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["checkpoint", "label"], name="label_once_per_checkpoint")]

    def __str__(self) -> str:
        return self.label


class RetentionPolicy(models.Model):
    """What stays on the hot tier, what moves down, what expires. It only plans until somebody lets it act."""

    class Proof(models.TextChoices):
        CHECKSUM = "checksum", "The store's checksum"
        READ_BACK = "read_back", "Reading it back"

    class Where(models.TextChoices):
        AS_REACHED = "as_reached", "Workers, else an agent"
        AGENTS = "agents", "Agents"
        WORKERS = "workers", "Workers"

    id = IdField(prefix="pol")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="retention_policies")
    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, null=True, related_name="retention_policies")
    """None: every run of the cluster that has no policy of its own for the same hot tier."""
    name = models.SlugField(max_length=63)
    hot_tier = models.ForeignKey(StorageTier, on_delete=models.PROTECT, related_name="+")
    cold_tier = models.ForeignKey(StorageTier, on_delete=models.PROTECT, null=True, related_name="+")
    keep_newest = models.PositiveIntegerField(default=DEFAULT_KEEP_NEWEST)
    keep_every_steps = models.PositiveBigIntegerField(null=True)
    exempt_labels = models.JSONField(default=list)
    move_after_days = models.FloatField(null=True)
    expire_after_days = models.FloatField(null=True)
    high_water_ratio = models.FloatField(null=True)
    low_water_ratio = models.FloatField(null=True)
    optimizer_newest = models.PositiveIntegerField(null=True)
    proof = models.CharField(max_length=16, choices=Proof, default=Proof.READ_BACK)
    where = models.CharField(max_length=16, choices=Where, default=Where.AS_REACHED)
    """Who moves the bytes of its transfers."""
    max_bytes_per_second = models.BigIntegerField(null=True)
    """Of each of its transfers; a tier's own limits hold beside it."""
    plan_only = models.BooleanField(default=True)
    """It shows what it would do, and does nothing."""
    enabled = models.BooleanField(default=True)
    cron = models.CharField(max_length=100, blank=True)
    time_zone = models.CharField(max_length=64, default="UTC")
    on_complete = models.BooleanField(default=False)
    """It also runs whenever a run that it covers has a new complete checkpoint on the hot tier."""
    next_at = models.DateTimeField(null=True, db_index=True)
    """The next moment of its schedule; None without one."""
    seen_checkpoint_at = models.DateTimeField(null=True)
    """The newest first sight of a copy that it has run for, where it runs on each new checkpoint."""
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "retention policies"
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="retention_policy_name_in_cluster"),
            models.UniqueConstraint(
                fields=["run", "hot_tier"], condition=~models.Q(run=None), name="one_policy_per_run_and_tier"
            ),
            models.UniqueConstraint(
                fields=["cluster", "hot_tier"], condition=models.Q(run=None), name="one_policy_per_cluster_and_tier"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Migration(models.Model):
    """One run of a policy: the plan as it was then, and the transfers that came of it (none in plan-only mode)."""

    id = IdField(prefix="mig")
    policy = models.ForeignKey(RetentionPolicy, on_delete=models.CASCADE, related_name="migrations")
    planned_at = models.DateTimeField(null=True)
    """The moment of the policy's schedule that it answers."""
    plan_only = models.BooleanField()
    move_count = models.PositiveIntegerField(default=0)
    retire_count = models.PositiveIntegerField(default=0)
    expire_count = models.PositiveIntegerField(default=0)
    stay_count = models.PositiveIntegerField(default=0)
    moved_bytes = models.BigIntegerField(default=0)
    freed_bytes = models.BigIntegerField(default=0)
    estimated_seconds = models.FloatField(null=True)
    notes = models.JSONField(default=list)
    skipped_reason = models.TextField(blank=True)
    requested_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["policy", "planned_at"], condition=~models.Q(planned_at=None), name="one_migration_per_time"
            )
        ]
        indexes = [models.Index(fields=["-created_at", "-id"], name="migration_newest")]

    def __str__(self) -> str:
        return f"{self.pk} of {self.policy_id}"


class Transfer(Sliced):
    """The copy, proof, switch and retirement of one placement; or only some of these, by its kind."""

    class Kind(models.TextChoices):
        MOVE = "move", "Move"
        COPY = "copy", "Copy"
        STAGE = "stage", "Stage"
        RETIRE = "retire", "Retire"
        EXPIRE = "expire", "Expire"

    class State(models.TextChoices):
        PLANNED = "planned", "Planned"
        COPYING = "copying", "Copying"
        PROVING = "proving", "Proving"
        SWITCHING = "switching", "Switching"
        RETIRING = "retiring", "Retiring"
        DONE = "done", "Done"
        PAUSED = "paused", "Paused"
        CANCELLED = "cancelled", "Cancelled"
        FAILED = "failed", "Failed"

    id = IdField(prefix="trf")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="transfers")
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.CASCADE, related_name="transfers")
    migration = models.ForeignKey(Migration, on_delete=models.SET_NULL, null=True, related_name="transfers")
    kind = models.CharField(max_length=16, choices=Kind)
    source = models.ForeignKey(Placement, on_delete=models.CASCADE, related_name="transfers_from")
    target_tier = models.ForeignKey(StorageTier, on_delete=models.PROTECT, null=True, related_name="+")
    target_path = models.CharField(max_length=2048, blank=True)
    agent = models.ForeignKey(Agent, on_delete=models.SET_NULL, null=True, related_name="transfers")
    """Who moves the bytes; None: the workers."""
    task = models.CharField(max_length=40, blank=True)
    """The step that the agent was handed out, until its answer was taken."""
    target = models.ForeignKey(Placement, on_delete=models.SET_NULL, null=True, related_name="transfers_to")
    """The new copy, once it is proven and in its place."""
    without_optimizer = models.BooleanField(default=False)
    proof = models.CharField(max_length=16, choices=RetentionPolicy.Proof, default=RetentionPolicy.Proof.READ_BACK)
    proof_detail = models.JSONField(default=dict)
    """How the copy was proven: by what, how many bytes, when."""
    max_bytes_per_second = models.BigIntegerField(null=True)
    reasons = models.JSONField(default=list)
    """Why it was asked for."""
    state = models.CharField(max_length=16, choices=State, default=State.PLANNED)
    resume_to = models.CharField(max_length=16, choices=State, blank=True)
    """Where a paused one goes on."""
    cancel_requested_at = models.DateTimeField(null=True)
    problem = models.TextField(blank=True)
    """Why it is paused or failed, or what its last attempt met."""
    problem_code = models.CharField(max_length=64, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    """Attempts in a row that met trouble which may pass."""
    proof_attempts = models.PositiveIntegerField(default=0)
    is_clean = models.BooleanField(default=True)
    """No partial copy of it is left at the target."""
    total_bytes = models.BigIntegerField(default=0)
    copied_bytes = models.BigIntegerField(default=0)
    proven_bytes = models.BigIntegerField(default=0)
    copy_seconds = models.FloatField(default=0.0)
    prove_seconds = models.FloatField(default=0.0)
    manifest = models.ForeignKey(Manifest, on_delete=models.SET_NULL, null=True, related_name="+")
    requested_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["source"],
                condition=~models.Q(state__in=["done", "cancelled", "failed"]),
                name="one_transfer_of_a_copy",
            ),
            models.UniqueConstraint(
                fields=["target_tier", "target_path"],
                condition=~models.Q(state__in=["done", "cancelled", "failed"]) & ~models.Q(target_path=""),
                name="one_transfer_to_a_place",
            ),
        ]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="transfer_newest"),
            models.Index(fields=["next_attempt_at"], name="transfer_due", condition=~models.Q(next_attempt_at=None)),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.source_id}"


class TransferCursor(models.Model):
    """How far a transfer is, compressed: the next slice, in whatever worker, goes on from there."""

    transfer = models.OneToOneField(Transfer, on_delete=models.CASCADE, related_name="cursor")
    body = models.BinaryField()
    saved_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"cursor of {self.transfer_id}"


class TierRateLimit(models.Model):
    """At most so many bytes per second are read from and written to a tier by all transfers together, in a window of
    the day. Equal begin and end: the whole day."""

    id = IdField(prefix="lim")
    tier = models.ForeignKey(StorageTier, on_delete=models.CASCADE, related_name="rate_limits")
    max_bytes_per_second = models.BigIntegerField()
    begins = models.TimeField()
    ends = models.TimeField()
    time_zone = models.CharField(max_length=64, default="UTC")
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.max_bytes_per_second} B/s on {self.tier_id}"
