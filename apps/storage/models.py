"""Storage tiers and what was measured of them."""

from __future__ import annotations

from django.db import models
from muster_agent.protocol.stores import StoreAt

from apps.core.fields import IdField
from apps.fleet.models import Agent, Cluster


class StorageTier(models.Model):
    """A POSIX path or an S3 bucket and prefix where checkpoints lie. `speed_order` 0 is the fastest of its cluster."""

    class Kind(models.TextChoices):
        MEMORY = "memory", "Memory"
        LOCAL_NVME = "local_nvme", "Local NVMe"
        PARALLEL_FS = "parallel_fs", "Parallel file system"
        NAS = "nas", "NAS"
        OBJECT_STORE = "object_store", "Object store"
        ARCHIVE = "archive", "Archive"

    class ScannedBy(models.TextChoices):
        AGENTS = "agents", "Agents"
        WORKERS = "workers", "Workers"

    id = IdField(prefix="tir")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="tiers")
    name = models.SlugField(max_length=63)
    kind = models.CharField(max_length=16, choices=Kind)
    uri = models.CharField(max_length=1024)
    endpoint_url = models.CharField(max_length=255, blank=True)
    """Where its bucket is served; empty: as the environment of whoever reads it says."""
    credentials_profile = models.CharField(max_length=63, blank=True)
    """The name of credentials in the files of whoever reads it. The credentials themselves are never here."""
    speed_order = models.PositiveSmallIntegerField(default=0)
    capacity_bytes = models.BigIntegerField(null=True, blank=True)
    cost_per_tb_month = models.DecimalField(max_digits=10, decimal_places=4, null=True, blank=True)
    scanned_by = models.CharField(max_length=16, choices=ScannedBy, default=ScannedBy.AGENTS)
    """Workers list it themselves where its folder is mounted on their hosts."""
    scan_cron = models.CharField(max_length=100, blank=True)
    """When it is scanned, as five cron fields; empty: whenever its last scan is old (`MUSTER_SCAN_SECONDS`)."""
    scan_time_zone = models.CharField(max_length=64, default="UTC")
    next_scan_at = models.DateTimeField(null=True, db_index=True)
    """The next moment of that schedule; None without one."""
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="tier_name_in_cluster")]

    def __str__(self) -> str:
        return self.name

    @property
    def store(self) -> StoreAt:
        return StoreAt(endpoint_url=self.endpoint_url, profile=self.credentials_profile)


class TierCeiling(models.Model):
    """The best read rate measured on a tier, with its date and method; predictions divide by it."""

    tier = models.ForeignKey(StorageTier, on_delete=models.CASCADE, related_name="ceilings")
    bytes_per_second = models.FloatField()
    client_count = models.PositiveIntegerField()
    method = models.CharField(max_length=100)
    measured_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.bytes_per_second:.0f} B/s on {self.tier_id}"


class CeilingRun(models.Model):
    """One agent measuring one tier's read ceiling, on request or on the schedule of `MUSTER_CEILING_DAYS`."""

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        FINISHED = "finished", "Finished"

    class Outcome(models.TextChoices):
        NONE = "", "None yet"
        MEASURED = "measured", "Measured"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    id = IdField(prefix="cel")
    tier = models.ForeignKey(StorageTier, on_delete=models.CASCADE, related_name="ceiling_runs")
    agent = models.ForeignKey(Agent, on_delete=models.SET_NULL, null=True, related_name="+")
    state = models.CharField(max_length=16, choices=State, default=State.QUEUED)
    outcome = models.CharField(max_length=16, choices=Outcome, default=Outcome.NONE, blank=True)
    reason = models.TextField(blank=True)
    bytes_per_second = models.FloatField(null=True)
    tries = models.JSONField(default=list)
    """Every way of reading that was tried, with its rate or why it has none."""
    requested_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    next_attempt_at = models.DateTimeField(null=True, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tier"], condition=models.Q(state__in=["queued", "running"]), name="one_ceiling_run_at_a_time"
            )
        ]

    def __str__(self) -> str:
        return f"ceiling of {self.tier_id}"
