"""Alerts with the rules that find them and their silences; channels, and what is told through them."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q

from apps.checkpoints.models import TrainingRun
from apps.core.fields import IdField
from apps.core.models import Sliced
from apps.fleet.models import Cluster


class Severity(models.TextChoices):
    """In ascending order."""

    INFO = "info", "Info"
    WARNING = "warning", "Warning"
    CRITICAL = "critical", "Critical"


class RuleKind(models.TextChoices):
    DAMAGE = "damage", "Damage found"
    AGENT_LOST = "agent_lost", "Agent lost"
    OBJECTIVE_BREACHED = "objective_breached", "Objective breached"
    DRILL_FAILED = "drill_failed", "Drill failed"
    NOT_DRILLED = "not_drilled", "Not drilled for too long"
    NOT_VERIFIED = "not_verified", "No verified checkpoint for too long"
    SCHEDULE_MISSED = "schedule_missed", "Schedule missed"
    TIER_UNREADABLE = "tier_unreadable", "Tier not readable"
    TIER_BEHIND = "tier_behind", "Tier behind"
    TIER_FULL = "tier_full", "Tier full"
    TRANSFER_STUCK = "transfer_stuck", "Transfer failed or stuck"
    CHANNEL_DISABLED = "channel_disabled", "Channel disabled"
    BACKUP_OLD = "backup_old", "No backup for too long"


class AlertRule(models.Model):
    """What is alerted on and how severe it is: everywhere, on one cluster, or for one run; the narrowest row counts.

    `threshold` is in the unit of the kind (`rule_kinds.KINDS`): seconds or a ratio; None where the kind has none.
    """

    id = IdField(prefix="rul")
    kind = models.CharField(max_length=32, choices=RuleKind)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, related_name="alert_rules")
    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, null=True, related_name="alert_rules")
    enabled = models.BooleanField(default=True)
    severity = models.CharField(max_length=16, choices=Severity)
    threshold = models.FloatField(null=True)
    updated_by = models.CharField(max_length=150, blank=True)
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kind"], condition=Q(cluster=None), name="one_rule_everywhere"),
            models.UniqueConstraint(
                fields=["kind", "cluster"], condition=Q(cluster__isnull=False, run=None), name="one_rule_of_a_cluster"
            ),
            models.UniqueConstraint(
                fields=["kind", "run"], condition=Q(run__isnull=False), name="one_rule_of_a_run"
            ),
            models.CheckConstraint(condition=Q(run=None) | Q(cluster__isnull=False), name="run_rule_has_a_cluster"),
        ]  # fmt: skip

    def __str__(self) -> str:
        return f"{self.kind} ({self.run_id or self.cluster_id or 'everywhere'})"


class Alert(models.Model):
    """One condition, open from when it was seen until it is gone; one open alert for each (rule, subject).

    `cluster` is None for what concerns Muster itself.
    """

    Rule = RuleKind

    class State(models.TextChoices):
        OPEN = "open", "Open"
        ACKNOWLEDGED = "acknowledged", "Acknowledged"
        RESOLVED = "resolved", "Resolved"

    id = IdField(prefix="alr")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, related_name="alerts")
    run = models.ForeignKey(TrainingRun, on_delete=models.SET_NULL, null=True, related_name="alerts")
    rule = models.CharField(max_length=32, choices=RuleKind)
    severity = models.CharField(max_length=16, choices=Severity, default=Severity.WARNING)
    subject_kind = models.CharField(max_length=32)
    subject_id = models.CharField(max_length=40)
    state = models.CharField(max_length=16, choices=State, default=State.OPEN)
    summary = models.TextField()
    opened_at = models.DateTimeField()
    notified_at = models.DateTimeField(null=True)
    """When it was told to the channels; None while a silence keeps it, or while it flaps."""
    flapping_at = models.DateTimeField(null=True)
    """When it was told as flapping (`flapping`); further ones of its rule and subject are not told until `calm_at`."""
    calm_at = models.DateTimeField(null=True)
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=150, blank=True)
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "subject_kind", "subject_id"],
                condition=~models.Q(state="resolved"),
                name="one_open_alert_per_subject",
            )
        ]
        indexes = [
            models.Index(fields=["-opened_at", "-id"], name="alert_newest"),
            models.Index(fields=["notified_at"], name="alert_told"),
            models.Index(
                fields=["flapping_at"], name="alert_flapping", condition=Q(flapping_at__isnull=False, calm_at=None)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.rule}: {self.summary}"


class Silence(models.Model):
    """Keeps matching alerts from being told to channels until it ends; they are listed all the same. An empty field
    matches everything."""

    id = IdField(prefix="sil")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, related_name="silences")
    rule = models.CharField(max_length=32, choices=RuleKind, blank=True)
    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, null=True, related_name="silences")
    subject_id = models.CharField(max_length=40, blank=True)
    summary_contains = models.CharField(max_length=200, blank=True)
    reason = models.CharField(max_length=500)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    ended_by = models.CharField(max_length=150, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["ends_at"], name="silence_ends"),
            models.Index(fields=["-created_at", "-id"], name="silence_newest"),
        ]

    def __str__(self) -> str:
        return f"silence until {self.ends_at}: {self.reason}"

    def stands(self, now: datetime) -> bool:
        return self.starts_at <= now < self.ends_at


class Channel(models.Model):
    """Where alerts and events are told. `secrets` is sealed (`core.sealing`) and never leaves the server again."""

    class Kind(models.TextChoices):
        EMAIL = "email", "E-mail"
        SLACK = "slack", "Slack-compatible"
        PAGERDUTY = "pagerduty", "PagerDuty-compatible"
        WEBHOOK = "webhook", "Webhook (signed)"

    id = IdField(prefix="chn")
    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=16, choices=Kind)
    target = models.CharField(max_length=1024)
    """E-mail: addresses, with commas. Webhook, PagerDuty: the URL. Slack: scheme and host of its URL, which is the
    secret."""
    secrets = models.TextField(blank=True)
    """Sealed JSON list, newest first: signing keys of a webhook (two while one is replaced), Slack's URL, PagerDuty's
    routing key."""
    secrets_set_at = models.DateTimeField(null=True)
    min_severity = models.CharField(max_length=16, choices=Severity, default=Severity.WARNING)
    clusters = models.ManyToManyField(Cluster, blank=True, related_name="channels")
    """Empty: every cluster."""
    event_types = models.JSONField(default=list, blank=True)
    """Of a webhook: patterns such as `alert.*` and `drill.failed`. The other kinds are told of alerts only."""
    enabled = models.BooleanField(default=True)
    disabled_reason = models.TextField(blank=True)
    """Why Muster disabled it; empty where somebody did, or it is enabled."""
    last_delivered_at = models.DateTimeField(null=True)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["-created_at", "-id"], name="channel_newest")]

    def __str__(self) -> str:
        return self.name


class Event(models.Model):
    """Something that channels are told of. It is written in the transaction of what it tells, and only where some
    channel wants it; its id is the `webhook-id`, the same at every try."""

    id = IdField(prefix="evt")
    type = models.CharField(max_length=64)
    """Without its frame: `drill.failed` is `io.muster.drill.failed.v1` on the wire."""
    subject = models.CharField(max_length=100)
    """Such as `alert/alr_...`; deliveries of one subject to one channel keep their order."""
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, related_name="+")
    severity = models.CharField(max_length=16, blank=True)
    data = models.JSONField()
    at = models.DateTimeField()
    source_key = models.CharField(max_length=64, null=True, unique=True)
    """What it was made from, so that it is made once: `transition:4711:drill.failed`."""

    class Meta:
        indexes = [models.Index(fields=["at"], name="event_age")]

    def __str__(self) -> str:
        return f"{self.type} of {self.subject}"


class Delivery(Sliced):
    """One event on its way to one channel."""

    class State(models.TextChoices):
        PENDING = "pending", "Pending"
        DELIVERED = "delivered", "Delivered"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    id = IdField(prefix="dlv")
    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="deliveries")
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="deliveries")
    subject = models.CharField(max_length=100)
    state = models.CharField(max_length=16, choices=State, default=State.PENDING)
    tries = models.PositiveSmallIntegerField(default=0)
    """Since it was asked for last; a replay begins again."""
    problem = models.TextField(blank=True)
    requested_by = models.CharField(max_length=150, blank=True)
    """Who sent a test or a replay; empty where the event itself did."""
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["event", "channel"], name="one_delivery_of_an_event")]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="delivery_newest"),
            models.Index(fields=["next_attempt_at"], name="delivery_due", condition=Q(state="pending")),
            models.Index(fields=["channel", "subject"], name="delivery_order", condition=Q(state="pending")),
        ]

    def __str__(self) -> str:
        return f"{self.event_id} to {self.channel_id}"


class DeliveryAttempt(models.Model):
    """One try: when, how long, and what came back."""

    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, related_name="attempts")
    at = models.DateTimeField()
    seconds = models.FloatField()
    status = models.PositiveSmallIntegerField(null=True)
    """HTTP's or SMTP's; None where nothing came back."""
    problem = models.TextField(blank=True)
    answer = models.TextField(blank=True)
    """The beginning of what came back."""

    def __str__(self) -> str:
        return f"{self.delivery_id} at {self.at}"
