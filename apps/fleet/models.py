"""Clusters, nodes, their agents and the work handed to them."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from apps.accounts.models import Role
from apps.core.fields import IdField


class Cluster(models.Model):
    """One scheduler domain; the scope of every permission."""

    class Scheduler(models.TextChoices):
        NONE = "none", "None"
        SLURM = "slurm", "Slurm"
        KUBERNETES = "kubernetes", "Kubernetes"

    id = IdField(prefix="cls")
    name = models.SlugField(max_length=63, unique=True)
    scheduler = models.CharField(max_length=16, choices=Scheduler, default=Scheduler.NONE)
    gpu_count = models.PositiveIntegerField(null=True, blank=True)
    gpu_hour_cost = models.DecimalField(max_digits=10, decimal_places=4, null=True, blank=True)
    allows_disruption = models.BooleanField(default=False)
    """Disruptive drills are off until an admin allows them here."""
    inventory_next_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class ClusterInventory(models.Model):
    """What the scheduler and the agents said that a cluster consists of, and what was different last time.

    `contents` is a `fleet.inventory.Contents`, `changes` a list of its `Change`; only the newest row has contents.
    """

    id = IdField(prefix="civ")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="inventories")
    taken_at = models.DateTimeField()
    seconds = models.FloatField()
    scheduler = models.CharField(max_length=16)
    scheduler_version = models.CharField(max_length=64, blank=True)
    error = models.TextField(blank=True)
    """Why the scheduler could not be asked; then the nodes are only those with an agent."""
    node_count = models.PositiveIntegerField()
    usable_count = models.PositiveIntegerField()
    """Nodes on which the scheduler places new work."""
    gpu_count = models.PositiveIntegerField()
    job_count = models.PositiveIntegerField()
    change_count = models.PositiveIntegerField()
    without_agent = models.JSONField(default=list)
    contents = models.JSONField(default=dict)
    changes = models.JSONField(default=list)

    class Meta:
        indexes = [models.Index(fields=["cluster", "-taken_at"], name="cluster_inventory_newest")]

    def __str__(self) -> str:
        return f"inventory of {self.cluster_id} at {self.taken_at}"


class ClusterGrant(models.Model):
    """A role on one cluster, for users whose own role does not reach it."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="grants")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="grants")
    role = models.CharField(max_length=16, choices=Role)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "cluster"], name="one_grant_per_user_and_cluster")]

    def __str__(self) -> str:
        return f"{self.user} is {self.role} on {self.cluster}"


class Node(models.Model):
    """One host of a cluster."""

    id = IdField(prefix="nod")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="nodes")
    name = models.CharField(max_length=253)
    facts = models.JSONField(default=dict)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="node_name_in_cluster")]

    def __str__(self) -> str:
        return self.name


class JoinToken(models.Model):
    """Buys a node its credential. One use by default; a fleet token admits many, each pending an admin's approval."""

    id = IdField(prefix="jtk")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="join_tokens")
    secret_sha256 = models.CharField(max_length=64, unique=True)
    max_uses = models.PositiveIntegerField(default=1)
    uses = models.PositiveIntegerField(default=0)
    cidr = models.CharField(max_length=64, blank=True)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"join token {self.pk}"


class Agent(models.Model):
    """Our process on a node. The credential is a random secret, kept as SHA-256."""

    class State(models.TextChoices):
        PENDING = "pending", "Pending approval"
        ONLINE = "online", "Online"
        BUSY = "busy", "Busy"
        DRAINING = "draining", "Draining"
        STALE = "stale", "Stale"
        LOST = "lost", "Lost"
        REVOKED = "revoked", "Revoked"
        INCOMPATIBLE = "incompatible", "Incompatible"

    id = IdField(prefix="agt")
    node = models.OneToOneField(Node, on_delete=models.CASCADE, related_name="agent")
    machine_id = models.CharField(max_length=128)
    enrol_nonce = models.CharField(max_length=128)
    credential_sha256 = models.CharField(max_length=64, unique=True)
    state = models.CharField(max_length=16, choices=State, default=State.PENDING)
    boot_id = models.CharField(max_length=64, blank=True)
    boot_changes = models.JSONField(default=list)
    """Unix seconds at which a fenced boot was still polling: one credential on two machines flips to and fro."""
    fenced_boots = models.JSONField(default=list)
    """The boots before this one, newest last: whoever polls with one of them was superseded."""
    drain_requested_at = models.DateTimeField(null=True)
    poll_seq = models.BigIntegerField(default=0)
    free_slots = models.PositiveIntegerField(default=0)
    version = models.CharField(max_length=32, blank=True)
    protocol = models.PositiveIntegerField(default=1)
    roots = models.JSONField(default=list)
    clock_offset_seconds = models.FloatField(null=True)
    enrolled_at = models.DateTimeField()
    last_seen_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["state", "last_seen_at"], name="agent_staleness")]

    def __str__(self) -> str:
        return f"agent on {self.node_id}"


class TaskGroup(models.Model):
    """A barrier: counts agents that are ready and names one start a little ahead, by itself."""

    class State(models.TextChoices):
        GATHERING = "gathering", "Gathering"
        RELEASED = "released", "Released"
        ABORTED = "aborted", "Aborted"

    id = IdField(prefix="grp")
    owner_kind = models.CharField(max_length=32)
    owner_id = models.CharField(max_length=40)
    state = models.CharField(max_length=16, choices=State, default=State.GATHERING)
    quorum = models.PositiveIntegerField()
    deadline_at = models.DateTimeField()
    start_at = models.DateTimeField(null=True)
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"barrier of {self.owner_kind} {self.owner_id}"


class AgentTask(models.Model):
    """One piece of work for one agent, held under a lease and finished exactly once."""

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        LEASED = "leased", "Leased"
        ACKED = "acked", "Acknowledged"
        RUNNING = "running", "Running"
        CANCELLING = "cancelling", "Cancelling"
        ORPHANED = "orphaned", "Orphaned"
        REPORTED = "reported", "Reported"
        DONE = "done", "Done"
        LOST = "lost", "Lost"

    class Outcome(models.TextChoices):
        NONE = "", "None yet"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"
        UNSUPPORTED = "unsupported", "Unsupported"
        LOST = "lost", "Lost"

    HELD = (State.ACKED, State.RUNNING, State.CANCELLING)
    """An agent works on it, under its lease."""
    FINISHED = (State.DONE, State.LOST)

    id = IdField(prefix="tsk")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="tasks")
    group = models.ForeignKey(TaskGroup, on_delete=models.CASCADE, null=True, related_name="tasks")
    owner_kind = models.CharField(max_length=32)
    owner_id = models.CharField(max_length=40)
    kind = models.CharField(max_length=32)
    params = models.JSONField()
    state = models.CharField(max_length=16, choices=State, default=State.QUEUED)
    outcome = models.CharField(max_length=16, choices=Outcome, default=Outcome.NONE, blank=True)
    attempt = models.PositiveIntegerField(default=0)
    """Counts hand-outs, so that a stale holder is told apart; `runs` counts those that an agent took up."""
    runs = models.PositiveIntegerField(default=0)
    idempotent = models.BooleanField(default=True)
    """A lost attempt may be run again; a disruption may not."""
    lease_expires_at = models.DateTimeField(null=True)
    ready_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    result = models.JSONField(null=True)
    result_sha256 = models.CharField(max_length=64, blank=True)
    late_results = models.JSONField(default=list)
    """Results that came after their attempt was given up: shown, never counted."""
    error = models.TextField(blank=True)
    error_code = models.CharField(max_length=64, blank=True)
    progress = models.JSONField(default=dict)
    dropped_events = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["agent", "state"], name="task_hand_out"),
            models.Index(fields=["owner_kind", "owner_id"], name="task_owner"),
            models.Index(fields=["state", "lease_expires_at"], name="task_lease_expiry"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} for {self.owner_kind} {self.owner_id}"

    @property
    def is_finished(self) -> bool:
        return self.state in self.FINISHED


class AgentEvent(models.Model):
    """One event of one attempt; a repeated (task, attempt, seq) is ignored."""

    task = models.ForeignKey(AgentTask, on_delete=models.CASCADE, related_name="events")
    attempt = models.PositiveIntegerField()
    seq = models.PositiveBigIntegerField()
    kind = models.CharField(max_length=16)
    at = models.DateTimeField()
    mono_seconds = models.FloatField()
    phase = models.CharField(max_length=16, blank=True)
    edge = models.CharField(max_length=8, blank=True)
    rank = models.IntegerField(null=True)
    data = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "attempt", "seq"], name="event_once")]

    def __str__(self) -> str:
        return f"event {self.seq} of {self.task_id}"
