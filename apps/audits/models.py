"""Integrity runs over one placement, the policies that ask for them, and repairs of what they found."""

from __future__ import annotations

from django.db import models

from apps.checkpoints.models import Manifest, Placement, TrainingRun
from apps.core.fields import IdField
from apps.core.models import Occurrence, Scheduled, Sliced
from apps.fleet.models import Agent, Cluster
from apps.storage.models import StorageTier


class RanBy(models.TextChoices):
    AGENTS = "agents", "Agents"
    WORKERS = "workers", "Workers"


class AuditPolicy(Scheduled):
    """Audits on a schedule: which copies, how thoroughly, how fast, by whom."""

    class Mode(models.TextChoices):
        STRUCTURE = "structure", "Structure only"
        SAMPLE = "sample", "Sample"
        FULL = "full", "Every byte"

    class Where(models.TextChoices):
        AS_SCANNED = "as_scanned", "Who scans the tier"
        AGENTS = "agents", "Agents"
        WORKERS = "workers", "Workers"

    id = IdField(prefix="aup")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="audit_policies")
    name = models.SlugField(max_length=63)
    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, null=True, related_name="audit_policies")
    """None: every run of the cluster. So for the tier."""
    tier = models.ForeignKey(StorageTier, on_delete=models.CASCADE, null=True, related_name="audit_policies")
    newest = models.PositiveIntegerField(null=True)
    """So many newest steps of each run on each tier; None: all."""
    mode = models.CharField(max_length=16, choices=Mode, default=Mode.SAMPLE)
    sample_ratio = models.FloatField(default=0.1)
    seed = models.PositiveBigIntegerField()
    """Of the rotation: kept, so that the turns of one copy together read every chunk."""
    skip_verified_days = models.FloatField(null=True)
    """Copies of which every byte was proven since are left out."""
    max_bytes_per_second = models.BigIntegerField(null=True)
    """Of all its audits together."""
    at_once = models.PositiveIntegerField(default=1)
    through_cache = models.BooleanField(default=False)
    """See `Audit.through_cache`."""
    where = models.CharField(max_length=16, choices=Where, default=Where.AS_SCANNED)
    repairs = models.BooleanField(default=False)
    """What it finds damaged is repaired at once where another copy is verified."""
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "audit policies"
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="audit_policy_name_in_cluster")]

    def __str__(self) -> str:
        return self.name

    @property
    def ratio(self) -> float:
        """The share of the chunks that one audit reads."""
        return {self.Mode.STRUCTURE: 0.0, self.Mode.FULL: 1.0}.get(self.Mode(self.mode), self.sample_ratio)


class AuditRound(Occurrence):
    """One due time of one policy and the audits that came of it; one asked for by hand has the moment of that."""

    id = IdField(prefix="aur")
    policy = models.ForeignKey(AuditPolicy, on_delete=models.CASCADE, related_name="rounds")
    audit_count = models.PositiveIntegerField(default=0)
    left_out = models.JSONField(default=dict)
    """How many copies were not audited, by the reason."""
    requested_by = models.CharField(max_length=150, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["policy", "planned_at"], name="audit_round_once")]
        indexes = [models.Index(fields=["policy", "-planned_at"], name="audit_round_newest")]

    def __str__(self) -> str:
        return f"{self.policy_id} at {self.planned_at}"


class Audit(Sliced):
    """Sealing (record digests), verifying (re-read and compare; all of it or a sample) or looking at one placement."""

    class Mode(models.TextChoices):
        SEAL = "seal", "Seal"
        VERIFY = "verify", "Verify"
        STRUCTURE = "structure", "Look at"
        STORE = "store", "The store's word"

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
    round = models.ForeignKey(AuditRound, on_delete=models.SET_NULL, null=True, related_name="audits")
    agent = models.ForeignKey(Agent, on_delete=models.SET_NULL, null=True, related_name="+")
    ran_by = models.CharField(max_length=16, choices=RanBy, default=RanBy.AGENTS)
    mode = models.CharField(max_length=16, choices=Mode)
    manifest = models.ForeignKey(Manifest, on_delete=models.SET_NULL, null=True, related_name="+")
    """What it was compared with, or what the seal made."""
    sample_ratio = models.FloatField(default=1.0)
    seed = models.PositiveBigIntegerField(default=0)
    turn = models.PositiveIntegerField(default=0)
    """Which stretch of the order that the seed gives was read."""
    max_bytes_per_second = models.BigIntegerField(null=True)
    through_cache = models.BooleanField(default=False)
    """What the memory of the reader's host holds is taken from there; damage on the storage below stays unseen."""
    state = models.CharField(max_length=16, choices=State, default=State.QUEUED)
    outcome = models.CharField(max_length=16, choices=Outcome, default=Outcome.NONE, blank=True)
    reason = models.TextField(blank=True)
    checked_bytes = models.BigIntegerField(null=True)
    checked_chunks = models.PositiveBigIntegerField(null=True)
    total_chunks = models.PositiveBigIntegerField(null=True)
    seconds = models.FloatField(null=True)
    facts = models.JSONField(default=dict)
    """What stays as evidence when the rows it came from are gone: who did it with which version, and digests."""
    requested_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    handed_out_at = models.DateTimeField(null=True)
    """When an agent or the workers got it; None while it waits for its turn in the round."""
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

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

    @property
    def is_sample(self) -> bool:
        return self.mode == self.Mode.VERIFY and self.sample_ratio < 1


class Repair(Sliced):
    """Rewriting the bad chunks of one damaged copy from another one of the same checkpoint."""

    class State(models.TextChoices):
        SURVEYING = "surveying", "Surveying"
        WRITING = "writing", "Writing"
        PROVING = "proving", "Proving"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    id = IdField(prefix="rep")
    placement = models.ForeignKey(Placement, on_delete=models.CASCADE, related_name="repairs")
    source = models.ForeignKey(Placement, on_delete=models.SET_NULL, null=True, related_name="+")
    audit = models.ForeignKey(Audit, on_delete=models.SET_NULL, null=True, related_name="repairs")
    """Whose damage a policy has repaired; None where somebody asked for it."""
    manifest = models.ForeignKey(Manifest, on_delete=models.SET_NULL, null=True, related_name="+")
    """The seal that says what the bytes should be."""
    state = models.CharField(max_length=16, choices=State, default=State.SURVEYING)
    problem = models.TextField(blank=True)
    problem_code = models.CharField(max_length=64, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    file_count = models.PositiveIntegerField(null=True)
    chunk_count = models.PositiveBigIntegerField(null=True)
    """Files with damage and bad chunks in them; None until they were looked for."""
    read_bytes = models.BigIntegerField(default=0)
    written_bytes = models.BigIntegerField(default=0)
    requested_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["placement"], condition=models.Q(finished_at=None), name="one_repair_of_a_copy"
            )
        ]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="repair_newest"),
            models.Index(fields=["next_attempt_at"], name="repair_due", condition=~models.Q(next_attempt_at=None)),
        ]

    def __str__(self) -> str:
        return f"repair of {self.placement_id}"

    @property
    def is_proven(self) -> bool:
        """Every byte of the copy was read again afterwards, and is as it was sealed: nothing else ends as `done`."""
        return self.state == self.State.DONE


class StaleCheck(models.Model):
    """Whether one sealed step holds the trained state of another step of its run; "not decidable" where tensors are not
    known, or there is nothing to compare with."""

    manifest = models.OneToOneField(Manifest, on_delete=models.CASCADE, related_name="stale_check")
    compared_with = models.ForeignKey(Manifest, on_delete=models.SET_NULL, null=True, related_name="+")
    verdict = models.CharField(max_length=16)
    reason = models.TextField()
    trained_xxh3_128 = models.CharField(max_length=32, blank=True, db_index=True)
    """Over all trained tensors that are not frozen; empty where none is known."""
    equal_bytes = models.BigIntegerField(default=0)
    trained_bytes = models.BigIntegerField(default=0)
    tensors = models.JSONField(default=list)
    """The first names of those that are equal."""
    frozen = models.JSONField(default=list)
    """What was declared frozen then; where that has changed, it is compared again."""
    checked_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.verdict}: {self.reason}"
