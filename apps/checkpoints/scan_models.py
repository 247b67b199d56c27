"""Scans of tiers, what each found different, and what asks for one. Part of `models`, where others import them from."""

from __future__ import annotations

from django.db import models

from apps.core.fields import IdField
from apps.core.models import Sliced
from apps.fleet.models import Agent
from apps.storage.models import StorageTier


class InventoryScan(Sliced):
    """One look at one root of a tier, through an agent or, where `agent` is None, by the workers themselves."""

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        FINISHED = "finished", "Finished"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    id = IdField(prefix="scn")
    tier = models.ForeignKey(StorageTier, on_delete=models.CASCADE, related_name="scans")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, null=True, related_name="+")
    root = models.CharField(max_length=2048)
    accepts_loss = models.BooleanField(default=False)
    """Somebody said that what is not there any more was removed on purpose, even where it is all at once."""
    planned_at = models.DateTimeField(null=True)
    """The moment of the tier's schedule that it answers."""
    state = models.CharField(max_length=16, choices=State, default=State.QUEUED)
    progress = models.JSONField(default=dict)
    """Of workers that list themselves: `checkpoints`, `checkpoints_left`, `note` and `at`, and `idle_slices`, how many
    slices in a row have brought nothing new."""
    checkpoint_count = models.PositiveIntegerField(default=0)
    new_count = models.PositiveIntegerField(default=0)
    changed_count = models.PositiveIntegerField(default=0)
    missing_count = models.PositiveIntegerField(default=0)
    entry_count = models.PositiveBigIntegerField(null=True)
    unchanged_count = models.PositiveIntegerField(null=True)
    """Checkpoints whose files were as the lister knew them, so that only their folders were listed."""
    seconds = models.FloatField(null=True)
    """How long the listing took."""
    root_mark = models.JSONField(null=True)
    """What the root was when listed: `mount_point`, `device` and `inode`. Another root may be a missing mount."""
    doubt = models.TextField(blank=True)
    """Why what this listing did not find was not taken for gone; empty where there was nothing to doubt."""
    held_count = models.PositiveIntegerField(default=0)
    """Copies that were not found and, because of the doubt, stay as they were."""
    findings = models.JSONField(default=list)
    """About no recorded copy: the root itself, pointers, what could not be listed, checkpoints whose step nobody knows.
    The worst first, and a bounded number of them."""
    damage_count = models.PositiveIntegerField(default=0)
    """How many of all of these are damage."""
    stepless_count = models.PositiveIntegerField(default=0)
    """Checkpoints that are not recorded since nothing tells their step; what is wrong with them is in `findings`."""
    error = models.TextField(blank=True)
    error_code = models.CharField(max_length=64, blank=True)
    requested_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tier", "root"], condition=models.Q(state__in=["queued", "running"]), name="one_scan_at_a_time"
            ),
            models.UniqueConstraint(
                fields=["tier", "planned_at"], condition=~models.Q(planned_at=None), name="one_scan_per_planned_time"
            ),
        ]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="scan_newest"),
            models.Index(fields=["tier", "-finished_at"], name="scan_of_tier"),
            # the sweeper asks for unfinished scans only
            models.Index(fields=["next_attempt_at"], name="scan_due", condition=~models.Q(next_attempt_at=None)),
        ]

    def __str__(self) -> str:
        return f"scan of {self.root}"

    @property
    def lister(self) -> str:
        """Who lists, as a sentence says it; needs `agent__node` loaded."""
        return "the workers" if self.agent is None else self.agent.node.name


class ScanChange(models.Model):
    """What one scan found different about one copy. `before` and `after` hold what a listing can tell, where it
    differs: status, total_bytes, shard_count, step, fingerprint."""

    class Kind(models.TextChoices):
        APPEARED = "appeared", "Appeared"
        CHANGED = "changed", "Changed"
        VANISHED = "vanished", "Vanished"

    scan = models.ForeignKey(InventoryScan, on_delete=models.CASCADE, related_name="changes")
    placement = models.ForeignKey("checkpoints.Placement", on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=16, choices=Kind)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["scan", "placement"], name="change_once_per_scan")]

    def __str__(self) -> str:
        return f"{self.kind} in {self.scan_id}"


class ScanMemory(models.Model):
    """What the workers' scans of a tier have read, compressed: an unchanged checkpoint is not read again, and the next
    slice of a long scan, on whichever host, goes on where the last one stopped."""

    tier = models.OneToOneField(StorageTier, on_delete=models.CASCADE, related_name="scan_memory")
    body = models.BinaryField()
    saved_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"scan memory of {self.tier_id}"


class ScanDemand(models.Model):
    """Something was saved on this tier: it is to be listed at `due_at`. The row goes once that scan is requested."""

    tier = models.OneToOneField(StorageTier, on_delete=models.CASCADE, related_name="scan_demand")
    agent = models.ForeignKey(Agent, on_delete=models.SET_NULL, null=True, related_name="+")
    """Who forwarded the news: on storage of each node's own it is the one that sees the files."""
    due_at = models.DateTimeField(db_index=True)
    asked_at = models.DateTimeField()
    """By the latest save; a scan requested before it does not answer it."""

    def __str__(self) -> str:
        return f"scan {self.tier_id} at {self.due_at}"


class SteplessCheckpoint(models.Model):
    """A checkpoint on a tier whose step nothing tells, neither its name nor what is inside: nothing resumes from it by
    step, but it lies there. As the newest listing that could look at it saw it; it goes from here with the folder."""

    id = IdField(prefix="sls")
    tier = models.ForeignKey(StorageTier, on_delete=models.CASCADE, related_name="stepless")
    path = models.CharField(max_length=2048)
    run_name = models.CharField(max_length=255)
    """The folder's name that a run would have; no run is made for it."""
    format = models.CharField(max_length=32)
    status = models.CharField(max_length=16)
    world_size = models.PositiveIntegerField(null=True)
    shard_count = models.PositiveIntegerField(default=0)
    total_bytes = models.BigIntegerField(default=0)
    saved_at = models.DateTimeField(null=True)
    findings = models.JSONField(default=list)
    """The worst first, and a bounded number of them."""
    damage_count = models.PositiveIntegerField(default=0)
    first_seen_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tier", "path"], name="stepless_path_on_tier")]
        indexes = [models.Index(fields=["-first_seen_at", "-id"], name="stepless_newest")]

    def __str__(self) -> str:
        return self.path
