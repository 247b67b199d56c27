"""Training runs, their checkpoints, the copies of these, and the evidence that each copy is good."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Coalesce

from apps.checkpoints.scan_models import InventoryScan as InventoryScan
from apps.checkpoints.scan_models import ScanChange as ScanChange
from apps.checkpoints.scan_models import ScanDemand as ScanDemand
from apps.checkpoints.scan_models import ScanMemory as ScanMemory
from apps.checkpoints.scan_models import SteplessCheckpoint as SteplessCheckpoint
from apps.checkpoints.sum_models import SentSums as SentSums
from apps.core.fields import IdField
from apps.fleet.models import Agent, Cluster
from apps.storage.models import StorageTier


class TrainingRun(models.Model):
    """One training job, with its objectives."""

    class RequiredTrust(models.TextChoices):
        COMPLETE = "complete", "Complete"
        SEALED = "sealed", "Sealed"
        VERIFIED = "verified", "Verified"

    id = IdField(prefix="run")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="runs")
    name = models.CharField(max_length=255)
    rto_objective_seconds = models.FloatField(null=True, blank=True)
    rpo_objective_seconds = models.FloatField(null=True, blank=True)
    gpu_count = models.PositiveIntegerField(null=True, blank=True)
    frozen_tensors = models.JSONField(default=list, blank=True)
    """Patterns of names (`visual.*`) that training leaves as they are: that two steps share them is no stale save."""
    required_trust = models.CharField(max_length=16, choices=RequiredTrust, default=RequiredTrust.COMPLETE)
    """What its launch script asks of a checkpoint (`muster resume-point --require`), so that the answers here are those
    of a restart."""
    created_at = models.DateTimeField()
    archived_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="run_name_in_cluster")]

    def __str__(self) -> str:
        return self.name


class RunFolder(models.Model):
    """Where a run's checkpoints lie on a tier; decided when the folder is first listed, and kept."""

    tier = models.ForeignKey(StorageTier, on_delete=models.CASCADE, related_name="+")
    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="folders")
    path = models.CharField(max_length=2048)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tier", "path"], name="run_folder_on_tier"),
            models.UniqueConstraint(fields=["tier", "run"], name="one_folder_of_a_run_on_tier"),
        ]

    def __str__(self) -> str:
        return self.path


class RunPointer(models.Model):
    """The framework's own note of a run's latest checkpoint (`latest`, `latest_checkpointed_iteration.txt`)."""

    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="pointers")
    tier = models.ForeignKey(StorageTier, on_delete=models.CASCADE, related_name="+")
    path = models.CharField(max_length=2048)
    step = models.BigIntegerField(null=True)
    binding = models.BooleanField(default=False)
    """A step newer than this one is not to be resumed from."""
    target = models.CharField(max_length=1024, null=True)
    """The name that it names, beside it; None where it names a step by number only."""
    problem = models.CharField(max_length=500, null=True)
    """Why it cannot be followed; None where it can."""
    seen_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tier", "path"], name="pointer_path_on_tier")]

    def __str__(self) -> str:
        return self.path


class RunAttempt(models.Model):
    """One launch of a run, as its training hook reported it."""

    id = IdField(prefix="att")
    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="attempts")
    launch_id = models.CharField(max_length=128)
    agent = models.ForeignKey(Agent, on_delete=models.SET_NULL, null=True, related_name="+")
    resumed_from_step = models.BigIntegerField(null=True)
    resumed_from_path = models.CharField(max_length=2048, blank=True)
    last_step = models.BigIntegerField(null=True)
    job_id = models.CharField(max_length=64, blank=True)
    """The scheduler's job that it ran in, where the hook could tell; every requeue of it is another launch."""
    job_restart_count = models.PositiveIntegerField(null=True)
    """How often that job had been requeued before this launch."""
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    last_report_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "launch_id"], name="launch_once_per_run")]

    def __str__(self) -> str:
        return f"{self.launch_id} of {self.run_id}"


class RunEvent(models.Model):
    """One record of a training hook (phases, saves, process starts); (source, seq) is unique. Steps are StepReports."""

    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="events")
    attempt = models.ForeignKey(RunAttempt, on_delete=models.CASCADE, related_name="events")
    agent = models.ForeignKey(Agent, on_delete=models.SET_NULL, null=True, related_name="+")
    source = models.CharField(max_length=64)
    seq = models.PositiveBigIntegerField()
    kind = models.CharField(max_length=24)
    at = models.DateTimeField()
    mono_seconds = models.FloatField()
    rank = models.IntegerField(null=True)
    pid = models.IntegerField(null=True)
    step = models.BigIntegerField(null=True)
    phase = models.CharField(max_length=16, blank=True)
    edge = models.CharField(max_length=8, blank=True)
    data = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["source", "seq"], name="hook_record_once")]
        indexes = [models.Index(fields=["run", "at"], name="run_event_time")]

    def __str__(self) -> str:
        return f"{self.kind} of {self.run_id}"


class StepReport(models.Model):
    """Step N done at t."""

    attempt = models.ForeignKey(RunAttempt, on_delete=models.CASCADE, related_name="steps")
    step = models.BigIntegerField()
    at = models.DateTimeField()
    loss = models.FloatField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["attempt", "step"], name="step_once_per_attempt")]

    def __str__(self) -> str:
        return f"step {self.step}"


class Checkpoint(models.Model):
    """The state of one run at one step, wherever it lies."""

    id = IdField(prefix="ckp")
    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="checkpoints")
    step = models.BigIntegerField()
    format = models.CharField(max_length=32)
    world_size = models.PositiveIntegerField(null=True)
    dp = models.PositiveIntegerField(null=True)
    """Data-parallel ranks that saved it; None where the format does not tell. So for the next three."""
    tp = models.PositiveIntegerField(null=True)
    pp = models.PositiveIntegerField(null=True)
    ep = models.PositiveIntegerField(null=True)
    must_match = models.JSONField(default=list)
    """Which of world_size, dp, tp and pp a job that resumes must share with the one that saved."""
    total_bytes = models.BigIntegerField(default=0)
    saved_at = models.DateTimeField(null=True)
    """Newest mtime of its files where it was first seen: when the save ended, by the storage's clock."""
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "step"], name="checkpoint_step_in_run")]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="checkpoint_newest"),
            # lists go by when it was saved, or first seen where the storage does not say
            models.Index(
                Coalesce("saved_at", "created_at").desc(), models.F("id").desc(), name="checkpoint_known_newest"
            ),
            models.Index(fields=["-total_bytes", "-id"], name="checkpoint_largest"),
        ]

    def __str__(self) -> str:
        return f"step {self.step} of {self.run_id}"


class Manifest(models.Model):
    """The immutable digests of a checkpoint; `id` is the SHA-256 of the canonical bytes, kept compressed in `body`."""

    id = models.CharField(max_length=64, primary_key=True)
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.CASCADE, related_name="manifests")
    version = models.PositiveIntegerField()
    origin = models.CharField(max_length=16)
    total_bytes = models.BigIntegerField()
    shard_count = models.PositiveIntegerField()
    tensor_count = models.PositiveIntegerField(default=0)
    """Tensors that have a digest of their own; 0 where the format does not tell them."""
    root_xxh3_128 = models.CharField(max_length=32)
    sealed_at = models.DateTimeField()
    body = models.BinaryField()
    """zlib of the canonical JSON."""
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.id[:12]


class TensorPage(models.Model):
    """A thousand tensors of a manifest, in the order of their names: where each lies, as what, and its digest."""

    manifest = models.ForeignKey(Manifest, on_delete=models.CASCADE, related_name="tensor_pages")
    number = models.PositiveIntegerField()
    first_name = models.TextField()
    tensor_count = models.PositiveIntegerField()
    body = models.BinaryField()
    """zlib of a JSON list."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["manifest", "number"], name="tensor_page_of_manifest")]

    def __str__(self) -> str:
        return f"{self.manifest_id[:12]} {self.number}"


class Placement(models.Model):
    """One copy of one checkpoint on one tier. Status is what lies there; trust is what was proven of it."""

    class Status(models.TextChoices):
        COMPLETE = "complete", "Complete"
        UNCOMMITTED = "uncommitted", "Uncommitted"
        INCOMPLETE = "incomplete", "Incomplete"
        IN_PROGRESS = "in_progress", "In progress"
        CORRUPT = "corrupt", "Corrupt"
        UNREADABLE = "unreadable", "Unreadable"
        ARCHIVED = "archived", "Archived"
        UNKNOWN = "unknown", "Unknown"
        MISSING = "missing", "Missing"

    class Trust(models.TextChoices):
        LISTED = "listed", "Listed"
        COMPLETE = "complete", "Complete"
        SEALED = "sealed", "Sealed"
        VERIFIED = "verified", "Verified"
        RELOADED = "reloaded", "Reloaded"
        RESUMED = "resumed", "Resumed"

    id = IdField(prefix="plc")
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.CASCADE, related_name="placements")
    tier = models.ForeignKey(StorageTier, on_delete=models.CASCADE, related_name="placements")
    path = models.CharField(max_length=2048)
    format = models.CharField(max_length=32, blank=True)
    """Of this copy: a step may be kept in two formats. So for the next six; a checkpoint's are its best copy's."""
    world_size = models.PositiveIntegerField(null=True)
    dp = models.PositiveIntegerField(null=True)
    tp = models.PositiveIntegerField(null=True)
    pp = models.PositiveIntegerField(null=True)
    ep = models.PositiveIntegerField(null=True)
    must_match = models.JSONField(default=list)
    status = models.CharField(max_length=16, choices=Status, default=Status.UNKNOWN)
    """`listed_status`, or `corrupt` while damage that an audit or a drill found still applies."""
    listed_status = models.CharField(max_length=16, choices=Status, default=Status.UNKNOWN)
    """What the last listing of its root said."""
    trust = models.CharField(max_length=16, choices=Trust, default=Trust.LISTED)
    trust_at = models.DateTimeField(null=True)
    resumable = models.BooleanField(default=False)
    not_resumable_reasons = models.JSONField(default=list)
    shard_count = models.PositiveIntegerField(default=0)
    total_bytes = models.BigIntegerField(default=0)
    newest_mtime_at = models.DateTimeField(null=True)
    middle_mtime_at = models.DateTimeField(null=True)
    """When most of its files were saved: one that was repaired or added later does not make it younger."""
    fingerprint = models.CharField(max_length=32, blank=True)
    manifest = models.ForeignKey(Manifest, on_delete=models.SET_NULL, null=True, related_name="placements")
    damaged_at = models.DateTimeField(null=True)
    """When an audit or a reload found damage that still applies to these files; None when none does."""
    rotated_away = models.BooleanField(default=False)
    """It is missing as a trainer's retention would have it: `missing.is_rotated`."""
    leaving = models.CharField(max_length=40, blank=True)
    """The transfer that is removing it: nobody can hold it any more. Empty otherwise."""
    first_seen_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tier", "path"], name="placement_path_on_tier")]
        indexes = [models.Index(fields=["tier", "last_seen_at"], name="placement_sweep")]

    def __str__(self) -> str:
        return self.path


class Shard(models.Model):
    """One file of one placement, as last seen."""

    placement = models.ForeignKey(Placement, on_delete=models.CASCADE, related_name="shards")
    path = models.CharField(max_length=1024)
    size_bytes = models.BigIntegerField(null=True)
    promised_bytes = models.BigIntegerField(null=True)
    rank = models.IntegerField(null=True)
    role = models.CharField(max_length=16)
    mtime_ns = models.BigIntegerField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["placement", "path"], name="shard_path_in_placement")]

    def __str__(self) -> str:
        return self.path


class Finding(models.Model):
    """One typed result about a placement, open until the cause is gone. `source_kind` is scan, audit or drill."""

    class Severity(models.TextChoices):
        DAMAGE = "damage", "Damage"
        WARNING = "warning", "Warning"
        NOTE = "note", "Note"

    placement = models.ForeignKey(Placement, on_delete=models.CASCADE, related_name="findings")
    code = models.CharField(max_length=32)
    severity = models.CharField(max_length=16, choices=Severity)
    path = models.CharField(max_length=2048, blank=True)
    detail = models.TextField()
    cure = models.TextField()
    begin_byte = models.BigIntegerField(null=True)
    end_byte = models.BigIntegerField(null=True)
    tensor = models.CharField(max_length=512, blank=True)
    source_kind = models.CharField(max_length=16)
    source_id = models.CharField(max_length=40)
    fingerprint = models.CharField(max_length=32, blank=True)
    """Of the files in which an audit or a drill found it; a scan's findings are renewed by every scan instead."""
    found_at = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True)
    resolved_reason = models.CharField(max_length=200, blank=True)
    """Said where it is not simply that the cause was looked for and is gone."""

    class Meta:
        indexes = [
            models.Index(fields=["placement", "resolved_at"], name="finding_open"),
            models.Index(fields=["-found_at", "-id"], name="finding_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"


class TrustEvidence(models.Model):
    """Why a placement has a rung of trust: who found it, when, and for which exact files (`fingerprint`)."""

    placement = models.ForeignKey(Placement, on_delete=models.CASCADE, related_name="evidence")
    rung = models.CharField(max_length=16, choices=Placement.Trust)
    source_kind = models.CharField(max_length=16)
    source_id = models.CharField(max_length=40)
    fingerprint = models.CharField(max_length=32)
    detail = models.JSONField(default=dict)
    at = models.DateTimeField()
    voided_at = models.DateTimeField(null=True)
    void_reason = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["placement", "rung", "source_kind", "source_id"], name="evidence_once")
        ]
        indexes = [
            models.Index(fields=["placement", "voided_at"], name="evidence_standing"),
            models.Index(fields=["source_kind", "source_id"], name="evidence_source"),
        ]

    def __str__(self) -> str:
        return f"{self.rung} by {self.source_kind} {self.source_id}"


class PlacementHold(models.Model):
    """Somebody needs this copy (a running drill, a running job): nothing may retire it meanwhile."""

    placement = models.ForeignKey(Placement, on_delete=models.CASCADE, related_name="holds")
    source_kind = models.CharField(max_length=16)
    source_id = models.CharField(max_length=40)
    created_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["placement", "source_kind", "source_id"], name="hold_once_per_source")
        ]

    def __str__(self) -> str:
        return f"held by {self.source_kind} {self.source_id}"
