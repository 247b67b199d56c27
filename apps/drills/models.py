"""Rehearsals: plans, their occurrences, drills and what each rank measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import models

from apps.checkpoints.models import Placement, RunAttempt, TrainingRun
from apps.core.fields import IdField
from apps.core.models import Occurrence, Scheduled
from apps.drills.node_models import NodeAction as NodeAction
from apps.drills.reload import FROM_MEMORY_RATIO as FROM_MEMORY_RATIO
from apps.fleet.models import Cluster, Node, TaskGroup
from apps.storage.models import StorageTier


def efficiency(
    bytes_per_second: float | None, cached_ratio: float | None, ceiling: Mapping[str, Any] | None
) -> float | None:
    """Restore efficiency: what was reached of a measured ceiling; None where either is not known, or bytes came from
    memory."""
    if bytes_per_second is None or ceiling is None or (cached_ratio or 0.0) > FROM_MEMORY_RATIO:
        return None
    return float(bytes_per_second / ceiling["bytes_per_second"])


class DrillKind(models.TextChoices):
    RELOAD = "reload", "Reload"
    HERD = "herd", "Herd"
    BANDWIDTH = "bandwidth", "Bandwidth"
    LOADER_COMPARE = "loader_compare", "Loader comparison"
    FAILOVER = "failover", "Failover"
    STANDBY = "standby", "Standby"


class CheckpointChoice(models.TextChoices):
    LATEST = "latest", "Latest resumable"
    LATEST_VERIFIED = "latest_verified", "Latest verified"
    RANDOM = "random", "Random within the window"
    NAMED = "named", "Named"


class ReadMapping(models.TextChoices):
    RANKS = "ranks", "The format's own ranks"
    EVEN = "even", "An even split of the bytes"


class Fault(models.TextChoices):
    PROCESS = "process", "Process: a signal"
    EXCEPTION = "exception", "Exception raised by the trainer's hook"
    LINK = "link", "Network link"
    NODE = "node", "Node set down in the scheduler"


class DrillSpec(models.Model):
    """What a drill does; a plan's own copy and each drill's own copy, so that editing a plan rewrites no history."""

    kind = models.CharField(max_length=16, choices=DrillKind)
    choice = models.CharField(max_length=16, choices=CheckpointChoice, default=CheckpointChoice.LATEST_VERIFIED)
    step = models.BigIntegerField(null=True, blank=True)
    """Of the checkpoint, for the choice `named`."""
    tier = models.ForeignKey(StorageTier, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    """None: the fastest tier that holds the chosen checkpoint."""
    window_days = models.PositiveIntegerField(default=30)
    """For the choice `random`: how old the checkpoint may be."""
    node_count = models.PositiveIntegerField(null=True, blank=True)
    """None: as many nodes as are online, at most one for each rank."""
    ladder = models.JSONField(default=list, blank=True)
    """For `herd`: client counts in ascending order, such as [1, 2, 4]."""
    every_tier = models.BooleanField(default=False)
    """Read the chosen checkpoint's copy on every tier that has one, one tier after the other, and compare."""
    mapping = models.CharField(max_length=16, choices=ReadMapping, default=ReadMapping.RANKS)
    repeats = models.PositiveIntegerField(default=1)
    """How often each round is read; the median round counts, and the spread is told."""
    backend = models.CharField(max_length=16, default="auto")
    device = models.CharField(max_length=16, default="auto")
    """Where each client's bytes end: `auto`, `cpu`, or `cuda:N`."""
    runner = models.CharField(max_length=16, default="auto")
    """For `bandwidth`: which program reads; `auto` takes the first that a node has."""
    loader = models.CharField(max_length=64, blank=True)
    """For `loader_compare`: what a node's own configuration calls the team's loader."""
    runner_seconds = models.PositiveIntegerField(default=10)
    evict = models.BooleanField(default=True)
    max_bytes_per_second = models.BigIntegerField(null=True, blank=True)
    signal_name = models.CharField(max_length=16, default="SIGKILL")
    """For `failover`."""
    fault = models.CharField(max_length=16, choices=Fault, default=Fault.PROCESS)
    """For `failover`: what breaks."""
    worker_rank = models.PositiveIntegerField(null=True, blank=True)
    """For `failover`: whose process; None: a random rank."""
    worker_node = models.CharField(max_length=253, blank=True)
    """For `failover`: on which node; for `standby`: the node that is taken out. Empty: any."""
    link = models.CharField(max_length=64, blank=True)
    """For a failover with the fault `link`: what the node's configuration calls it."""
    objective_seconds = models.FloatField(null=True, blank=True)
    deadline_seconds = models.PositiveIntegerField(null=True, blank=True)
    """None: from the bytes to read, or 900 s for a failover."""
    abort_stall_seconds = models.PositiveIntegerField(null=True, blank=True)
    """A reading drill fails when a client at work has told of no progress for so long."""
    abort_slowdown_ratio = models.FloatField(null=True, blank=True)
    """A reading drill is given up when a job that trains on the cluster takes more than so many times longer per step
    than before it, or falls silent."""

    class Meta:
        abstract = True


class DrillControl(models.Model):
    """The one global switch: while `stopped_at` is set no drill starts and running ones are cancelled. One row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    stopped_at = models.DateTimeField(null=True)
    stopped_by = models.CharField(max_length=150, blank=True)
    reason = models.TextField(blank=True)
    plans_paused_at = models.DateTimeField(null=True)
    """While set no plan starts a drill by itself; drills by hand may run."""
    plans_paused_by = models.CharField(max_length=150, blank=True)

    def __str__(self) -> str:
        return "drills are stopped" if self.stopped_at else "drills may run"


class DrillRules(models.Model):
    """What drills may do on one cluster; without a row the defaults hold. Reading drills are bound by the blast radius,
    plan-only and protected runs; disruptive ones by all of it."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, primary_key=True, related_name="drill_rules")
    needs_approval = models.BooleanField(default=False)
    """A disruptive drill waits until somebody other than who asked for it approves."""
    plan_only = models.BooleanField(default=False)
    """Drills are prepared and say what they would do; none begins."""
    windows = models.JSONField(default=list)
    """When disruptive drills may begin, such as `mon-fri 09:00-17:00`; empty: always."""
    time_zone = models.CharField(max_length=64, default="UTC")
    max_nodes = models.PositiveIntegerField(null=True, blank=True)
    max_tier_ratio = models.FloatField(null=True, blank=True)
    """Of a tier's measured rate that a reading drill may take, 0..1."""
    breaker_failures = models.PositiveIntegerField(default=2)
    breaker_reset_at = models.DateTimeField(null=True)
    protected_runs = models.ManyToManyField(TrainingRun, related_name="+")

    def __str__(self) -> str:
        return f"rules of {self.cluster_id}"

    @property
    def is_stored(self) -> bool:
        """False: nobody has set any, and these are the defaults."""
        return not self._state.adding


class DrillPlan(DrillSpec, Scheduled):
    """A drill on a schedule."""

    class Overlap(models.TextChoices):
        SKIP = "skip", "Skip this one"
        WAIT = "wait", "Wait for the one before, at most an hour"
        CANCEL = "cancel", "Cancel the one before"

    id = IdField(prefix="pln")
    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="drill_plans")
    name = models.CharField(max_length=100)
    start_window_seconds = models.PositiveIntegerField(default=60)
    """How late a due time may still start its drill; after that it was missed."""
    overlap = models.CharField(max_length=16, choices=Overlap, default=Overlap.SKIP)
    smear_seconds = models.PositiveIntegerField(default=0)
    """Each due time begins up to so much later, so that plans of one minute do not all begin in its first second."""
    version = models.PositiveIntegerField(default=1)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "name"], name="plan_name_in_run")]

    def __str__(self) -> str:
        return self.name


class Drill(DrillSpec):
    """One rehearsal. Outcome says whether it restored; objective_state whether in time; never mixed."""

    class State(models.TextChoices):
        SCHEDULED = "scheduled", "Scheduled"
        WAITING = "waiting", "Waiting"
        PREPARING = "preparing", "Preparing"
        RUNNING = "running", "Running"
        VALIDATING = "validating", "Validating"
        FINISHED = "finished", "Finished"

    class Outcome(models.TextChoices):
        NONE = "", "None yet"
        PASSED = "passed", "Passed"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"
        SKIPPED = "skipped", "Skipped"
        LOST = "lost", "Lost"

    class ObjectiveState(models.TextChoices):
        NONE = "none", "None"
        MET = "met", "Met"
        BREACHED = "breached", "Breached"

    id = IdField(prefix="drl")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="drills")
    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="drills")
    plan = models.ForeignKey(DrillPlan, on_delete=models.SET_NULL, null=True, related_name="drills")
    placement = models.ForeignKey(Placement, on_delete=models.SET_NULL, null=True, related_name="drills")
    attempt = models.ForeignKey(RunAttempt, on_delete=models.SET_NULL, null=True, related_name="drills")
    """For `failover`: the launch that was disrupted."""
    fault_at = models.DateTimeField(null=True)
    """For `failover`: when the fault was injected, on the server's clock."""
    restore_node = models.CharField(max_length=253, blank=True)
    """A node that this drill set down in the scheduler and has still to bring back, finished or not."""
    park_node = models.CharField(max_length=253, blank=True)
    """A spare that it brought in and has still to park again."""
    seed = models.PositiveBigIntegerField(default=0)
    """For the choice `random`: the same seed over the same checkpoints chooses the same one."""
    state = models.CharField(max_length=16, choices=State, default=State.SCHEDULED)
    outcome = models.CharField(max_length=16, choices=Outcome, default=Outcome.NONE, blank=True)
    objective_state = models.CharField(max_length=16, choices=ObjectiveState, default=ObjectiveState.NONE)
    reason = models.TextField(blank=True)
    checkpoint_step = models.BigIntegerField(null=True)
    total_bytes = models.BigIntegerField(null=True)
    seconds = models.FloatField(null=True)
    """Of the slowest rank (storage part) or, for a failover, from the fault to the first step beyond the checkpoint."""
    bytes_per_second = models.FloatField(null=True)
    phases = models.JSONField(default=dict)
    """Critical-path seconds by phase; a phase that was not measured is absent."""
    unattributed_seconds = models.FloatField(null=True)
    lost_steps = models.BigIntegerField(null=True)
    lost_seconds = models.FloatField(null=True)
    cached_ratio_before = models.FloatField(null=True)
    verified = models.BooleanField(null=True)
    start_skew_seconds = models.FloatField(null=True)
    jain_index = models.FloatField(null=True)
    facts = models.JSONField(default=dict)
    """Kind-specific numbers: the ladder's rungs and knee, the straggler, the boundaries of a failover."""
    requested_by = models.CharField(max_length=150)
    approved_by = models.CharField(max_length=150, blank=True)
    approved_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    next_attempt_at = models.DateTimeField(null=True, db_index=True)
    not_before_at = models.DateTimeField(null=True)
    """Of a planned one that is smeared: it begins then."""

    class Meta:
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="drill_newest"),
            models.Index(fields=["run", "-created_at"], name="drill_history"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"

    @property
    def is_storage_only(self) -> bool:
        """It only read: `seconds` is no time to resume."""
        return self.kind in (DrillKind.RELOAD, DrillKind.HERD)

    @property
    def efficiency_ratio(self) -> float | None:
        """What was reached of the tier's ceiling with as many clients; None where either was not measured."""
        return efficiency(self.bytes_per_second, self.cached_ratio_before, self.facts.get("ceiling"))


class DrillStep(models.Model):
    """One timed step of a standby drill. `detail`: the checks of a node, or the state that the scheduler then had."""

    drill = models.ForeignKey(Drill, on_delete=models.CASCADE, related_name="steps")
    order = models.PositiveIntegerField()
    what = models.CharField(max_length=16)
    began_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ["order"]
        constraints = [models.UniqueConstraint(fields=["drill", "order"], name="step_order_in_drill")]

    def __str__(self) -> str:
        return f"{self.what} of {self.drill_id}"

    @property
    def seconds(self) -> float | None:
        if self.began_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.began_at).total_seconds()


class PlanOccurrence(Occurrence):
    """One due time of one plan, and the drill that came of it."""

    plan = models.ForeignKey(DrillPlan, on_delete=models.CASCADE, related_name="occurrences")
    drill = models.OneToOneField(Drill, on_delete=models.SET_NULL, null=True, related_name="occurrence")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["plan", "planned_at"], name="occurrence_once")]

    def __str__(self) -> str:
        return f"{self.plan_id} at {self.planned_at}"


class DrillRung(models.Model):
    """One round of a drill: `client_count` nodes reading at once behind one barrier. A reload has one rung."""

    drill = models.ForeignKey(Drill, on_delete=models.CASCADE, related_name="rungs")
    order = models.PositiveIntegerField()
    client_count = models.PositiveIntegerField()
    placement = models.ForeignKey(Placement, on_delete=models.SET_NULL, null=True, related_name="+")
    """The copy that it reads."""
    group = models.OneToOneField(TaskGroup, on_delete=models.SET_NULL, null=True, related_name="+")
    seconds = models.FloatField(null=True)
    total_bytes = models.BigIntegerField(null=True)
    bytes_per_second = models.FloatField(null=True)
    jain_index = models.FloatField(null=True)
    start_skew_seconds = models.FloatField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["order"]
        constraints = [models.UniqueConstraint(fields=["drill", "order"], name="rung_order_in_drill")]

    def __str__(self) -> str:
        return f"{self.client_count} clients"


class RankResult(models.Model):
    """What one client (one node's task) of one rung measured, for all the ranks it read."""

    rung = models.ForeignKey(DrillRung, on_delete=models.CASCADE, related_name="results")
    rank = models.IntegerField()
    """The lowest of `ranks`; the client's number in its rung where the format knows no ranks."""
    ranks = models.JSONField(default=list)
    node = models.ForeignKey(Node, on_delete=models.SET_NULL, null=True, related_name="+")
    task_id = models.CharField(max_length=40)
    outcome = models.CharField(max_length=16)
    error = models.TextField(blank=True)
    bytes = models.BigIntegerField(null=True)
    seconds = models.FloatField(null=True)
    bytes_per_second = models.FloatField(null=True)
    started_at = models.DateTimeField(null=True)
    phases = models.JSONField(default=dict)
    busy = models.JSONField(default=dict)
    requested = models.CharField(max_length=16, blank=True)
    effective = models.CharField(max_length=16, blank=True)
    evidence = models.JSONField(default=dict)
    reason = models.TextField(blank=True)
    cache_state = models.CharField(max_length=16, blank=True)
    cached_ratio_before = models.FloatField(null=True)
    cpu_seconds = models.FloatField(null=True)
    cpu_by_phase = models.JSONField(default=dict)
    peak_rss_bytes = models.BigIntegerField(null=True)
    verified = models.BooleanField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["rung", "rank"], name="rank_once_in_rung")]

    def __str__(self) -> str:
        return f"rank {self.rank}"

    @property
    def efficiency_ratio(self) -> float | None:
        """What this client reached of the tier's ceiling with one client; None where either was not measured."""
        return efficiency(self.bytes_per_second, self.cached_ratio_before, self.rung.drill.facts.get("client_ceiling"))
