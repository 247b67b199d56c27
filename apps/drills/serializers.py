"""Drills and plans on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.core.phases import PHASES, ordered
from apps.core.serializers import StrictSerializer, WholeNumberField
from apps.drills.coming import Coming
from apps.drills.models import (
    CheckpointChoice,
    Drill,
    DrillControl,
    DrillKind,
    DrillPlan,
    DrillRung,
    DrillStep,
    Fault,
    PlanOccurrence,
    RankResult,
    ReadMapping,
)
from apps.drills.progress import progress_of
from apps.drills.selectors import next_times
from apps.drills.spec import BACKENDS, MAX_SEED, RUNNERS, SIGNALS

SPEC = [
    "kind", "choice", "step", "tier", "every_tier", "window_days", "node_count", "mapping", "ladder", "repeats",
    "runner", "runner_seconds", "loader", "backend", "device", "evict", "max_bytes_per_second", "signal_name", "fault",
    "worker_rank", "worker_node", "link", "objective_seconds", "deadline_seconds", "abort_stall_seconds",
    "abort_slowdown_ratio",
]  # fmt: skip
_PHASES_SCHEMA = {
    "type": "object",
    "properties": {phase.value: {"type": ["number", "null"]} for phase in PHASES},
    "required": [phase.value for phase in PHASES],
    "description": "Critical-path seconds by phase, in order; null is not measured.",
}


@extend_schema_field(_PHASES_SCHEMA)
class PhasesField(serializers.JSONField):
    """Every phase in order; null where it was not measured."""

    def to_representation(self, value: Any) -> Any:
        return {phase.value: seconds for phase, seconds in ordered(value)}


@extend_schema_field({"type": "object", "additionalProperties": True})
class FactsField(serializers.JSONField):
    """An object whose keys depend on the kind of drill."""


class DrillSerializer(serializers.ModelSerializer[Drill]):
    """One drill. `outcome` says whether it restored, `objective_state` whether in time: restored but late is `passed`
    and `breached`. `is_storage_only`: it measured no restart, so `seconds` is no time to resume."""

    cluster_name = serializers.CharField(source="cluster.name")
    run_name = serializers.CharField(source="run.name")
    plan_name = serializers.CharField(source="plan.name", default=None, allow_null=True)
    tier_name = serializers.CharField(source="placement.tier.name", default=None, allow_null=True)
    kind = serializers.CharField(help_text=", ".join(DrillKind.values))
    choice = serializers.CharField(help_text=", ".join(CheckpointChoice.values))
    mapping = serializers.CharField(help_text=", ".join(ReadMapping.values))
    state = serializers.CharField(help_text=", ".join(Drill.State.values))
    outcome = serializers.CharField(help_text="Empty until finished; then passed, failed, cancelled, skipped or lost.")
    objective_state = serializers.CharField(help_text=", ".join(Drill.ObjectiveState.values))
    ladder = serializers.ListField(child=serializers.IntegerField())
    phases = PhasesField()
    is_storage_only = serializers.BooleanField()
    efficiency_ratio = serializers.FloatField(
        allow_null=True, help_text="Reached of the tier's measured ceiling with as many clients; null: not measured."
    )

    class Meta:
        model = Drill
        fields = [
            "id", "cluster", "cluster_name", "run", "run_name", "plan", "plan_name", "placement", "tier_name", *SPEC,
            "seed", "state", "outcome", "objective_state", "reason", "checkpoint_step", "total_bytes", "seconds",
            "bytes_per_second", "phases", "unattributed_seconds", "lost_steps", "lost_seconds", "cached_ratio_before",
            "verified", "start_skew_seconds", "jain_index", "is_storage_only", "efficiency_ratio", "requested_by",
            "approved_by", "approved_at", "created_at", "started_at", "finished_at", "deadline_at",
            "cancel_requested_at", "attempt", "fault_at",
        ]  # fmt: skip
        read_only_fields = fields


class RungSerializer(serializers.ModelSerializer[DrillRung]):
    """One round: `client_count` clients reading one copy at once."""

    tier_name = serializers.CharField(source="placement.tier.name", default=None, allow_null=True)

    class Meta:
        model = DrillRung
        fields = [
            "order", "client_count", "placement", "tier_name", "seconds", "total_bytes", "bytes_per_second",
            "jain_index", "start_skew_seconds", "started_at", "finished_at",
        ]  # fmt: skip
        read_only_fields = fields


class DrillStepSerializer(serializers.ModelSerializer[DrillStep]):
    """One timed step of a standby drill: probe_spare, drain_node, bring_in, gate, return_node, park_spare."""

    seconds = serializers.FloatField(allow_null=True)
    detail = FactsField()

    class Meta:
        model = DrillStep
        fields = ["what", "began_at", "ended_at", "seconds", "detail"]
        read_only_fields = fields


class ClientProgressSerializer(serializers.Serializer[Any]):
    """One client at work: null and "" is not reported yet."""

    node_name = serializers.CharField(source="node")
    ranks = serializers.ListField(child=serializers.IntegerField())
    task_id = serializers.CharField(source="task.pk")
    state = serializers.CharField(help_text="Of its task, or its outcome once it has ended.")
    phase = serializers.CharField()
    done_bytes = serializers.IntegerField(allow_null=True)
    total_bytes = serializers.IntegerField(allow_null=True)
    bytes_per_second = serializers.FloatField(allow_null=True, help_text="Over the phase so far.")


class DrillDetailSerializer(DrillSerializer):
    """With its rounds, its steps, what only its kind has, and, while it works, how far each client is."""

    progress = serializers.SerializerMethodField()

    rungs = RungSerializer(many=True)
    steps = DrillStepSerializer(many=True)
    facts = FactsField()

    class Meta(DrillSerializer.Meta):
        fields = [*DrillSerializer.Meta.fields, "rungs", "steps", "facts", "progress"]
        read_only_fields = fields

    @extend_schema_field(ClientProgressSerializer(many=True))
    def get_progress(self, drill: Drill) -> Any:
        return ClientProgressSerializer(progress_of(drill), many=True).data


class RankResultSerializer(serializers.ModelSerializer[RankResult]):
    """What one client measured, for all the ranks that it read; `phases` add up to `seconds`, `busy` is work over all
    threads."""

    rung = serializers.IntegerField(source="rung.order")
    client_count = serializers.IntegerField(source="rung.client_count")
    ranks = serializers.ListField(child=serializers.IntegerField())
    node_name = serializers.CharField(source="node.name", default=None, allow_null=True)
    phases = PhasesField()
    busy = FactsField()
    cpu_by_phase = FactsField()
    evidence = FactsField()
    efficiency_ratio = serializers.FloatField(
        allow_null=True, help_text="Reached of the tier's measured ceiling with one client; null: not measured."
    )

    class Meta:
        model = RankResult
        fields = [
            "rung", "client_count", "rank", "ranks", "node", "node_name", "task_id", "outcome", "error", "bytes",
            "seconds", "bytes_per_second", "started_at", "phases", "busy", "requested", "effective", "evidence",
            "reason", "cache_state", "cached_ratio_before", "cpu_seconds", "cpu_by_phase",
            "peak_rss_bytes", "verified", "efficiency_ratio",
        ]  # fmt: skip
        read_only_fields = fields


class SpecSerializer(StrictSerializer):
    """What a drill does. Which settings go together, the service checks."""

    kind = serializers.ChoiceField(choices=DrillKind.choices)
    choice = serializers.ChoiceField(choices=CheckpointChoice.choices, required=False, help_text="Which checkpoint.")
    step = serializers.IntegerField(required=False, allow_null=True, help_text="With the choice named.")
    tier = serializers.CharField(
        required=False, allow_null=True, help_text="A tier's id; else the fastest that has the checkpoint."
    )
    window_days = serializers.IntegerField(required=False, help_text="With the choice random.")
    node_count = serializers.IntegerField(required=False, allow_null=True)
    ladder = serializers.ListField(
        child=serializers.IntegerField(), required=False, help_text="Of a herd: ascending client counts."
    )
    backend = serializers.ChoiceField(choices=BACKENDS, required=False)
    evict = serializers.BooleanField(required=False, help_text="Drop the page cache of the files first.")
    max_bytes_per_second = serializers.IntegerField(required=False, allow_null=True, help_text="For each client.")
    signal_name = serializers.ChoiceField(choices=SIGNALS, required=False, help_text="Of a failover.")
    fault = serializers.ChoiceField(choices=Fault.choices, required=False, help_text="Of a failover: what breaks.")
    worker_rank = serializers.IntegerField(
        required=False, allow_null=True, help_text="Of a failover: whose process; else a random rank's."
    )
    worker_node = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=253,
        help_text="Of a failover: on which node; of a standby drill: which is taken out; else any.",
    )
    link = serializers.CharField(
        required=False, allow_blank=True, max_length=64, help_text="With the fault link: its name in the node's config."
    )
    objective_seconds = serializers.FloatField(
        required=False, allow_null=True, help_text="Else the run's own objective."
    )
    deadline_seconds = serializers.IntegerField(required=False, allow_null=True)
    every_tier = serializers.BooleanField(
        required=False, help_text="Read the copy on every tier that has one, one after the other, and compare."
    )
    mapping = serializers.ChoiceField(
        choices=ReadMapping.choices, required=False, help_text="Who reads what: the format's ranks, or even parts."
    )
    repeats = serializers.IntegerField(
        required=False, help_text="How often each round is read: the median round counts, and the spread is told."
    )
    device = serializers.CharField(max_length=16, required=False, help_text="auto, cpu, cuda or cuda:N.")
    runner = serializers.ChoiceField(
        choices=RUNNERS, required=False, help_text="Of bandwidth: the program that reads; auto takes what a node has."
    )
    loader = serializers.CharField(
        max_length=64, required=False, help_text="Of loader_compare: its name in a node's config.json."
    )
    runner_seconds = serializers.IntegerField(required=False, help_text="Of bandwidth: for how long each node reads.")
    abort_stall_seconds = serializers.IntegerField(
        required=False, allow_null=True, help_text="Fail when a client told of no progress for so long."
    )
    abort_slowdown_ratio = serializers.FloatField(
        required=False, allow_null=True, help_text="Give up when a job on the cluster takes more times longer per step."
    )


class CreateDrillSerializer(SpecSerializer):
    run = serializers.CharField(max_length=300, trim_whitespace=False, help_text="The run's id, name, or cluster/name.")
    seed = WholeNumberField(
        required=False, min_value=0, max_value=MAX_SEED, help_text="With the choice random: the same seed repeats it."
    )


class PlanSerializer(serializers.ModelSerializer[DrillPlan]):
    """`next_at` is null for a plan that is off or is only started by hand."""

    cluster = serializers.CharField(source="run.cluster_id")
    run_name = serializers.CharField(source="run.name")
    kind = serializers.CharField(help_text=", ".join(DrillKind.values))
    choice = serializers.CharField(help_text=", ".join(CheckpointChoice.values))
    mapping = serializers.CharField(help_text=", ".join(ReadMapping.values))
    missed = serializers.CharField(help_text=", ".join(DrillPlan.Missed.values))
    overlap = serializers.CharField(help_text=", ".join(DrillPlan.Overlap.values))
    ladder = serializers.ListField(child=serializers.IntegerField())
    next_times = serializers.SerializerMethodField(help_text="The next five times at which it fires.")

    class Meta:
        model = DrillPlan
        fields = [
            "id", "cluster", "run", "run_name", "name", "cron", "time_zone", "missed", "enabled", "next_at",
            "next_times", "start_window_seconds", "overlap", "smear_seconds", *SPEC, "version", "created_by",
            "created_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(serializers.ListField(child=serializers.DateTimeField()))
    def get_next_times(self, plan: DrillPlan) -> list[datetime]:
        return next_times(plan)


class _ScheduleSerializer(StrictSerializer):
    cron = serializers.CharField(
        max_length=100, required=False, allow_blank=True, help_text="Five fields; empty: started by hand."
    )
    time_zone = serializers.CharField(max_length=64, required=False, help_text="Such as Europe/Berlin; UTC by default.")
    missed = serializers.ChoiceField(choices=DrillPlan.Missed.choices, required=False)
    start_window_seconds = serializers.IntegerField(
        required=False, help_text="How late a due time may still start its drill; 60 by default."
    )
    overlap = serializers.ChoiceField(
        choices=DrillPlan.Overlap.choices, required=False, help_text="While the plan's last drill has not finished."
    )
    smear_seconds = serializers.IntegerField(
        required=False, help_text="Each due time begins up to so much later, always the same for it."
    )
    enabled = serializers.BooleanField(required=False)


class CreatePlanSerializer(SpecSerializer, _ScheduleSerializer):
    run = serializers.CharField(max_length=300, trim_whitespace=False, help_text="The run's id, name, or cluster/name.")
    name = serializers.CharField(max_length=100)


class UpdatePlanSerializer(SpecSerializer, _ScheduleSerializer):
    name = serializers.CharField(max_length=100, required=False)
    kind = serializers.ChoiceField(choices=DrillKind.choices, required=False)


class OccurrenceSerializer(serializers.ModelSerializer[PlanOccurrence]):
    """One due time: its drill, or why there was none."""

    outcome = serializers.CharField(source="drill.outcome", default=None, allow_null=True)
    objective_state = serializers.CharField(source="drill.objective_state", default=None, allow_null=True)

    class Meta:
        model = PlanOccurrence
        fields = ["planned_at", "drill", "outcome", "objective_state", "skipped_reason", "created_at"]
        read_only_fields = fields


class ComingSerializer(serializers.Serializer[Any]):
    """One due time of a plan. `conflicts` names the plans that it meets on its cluster: one waits for the other."""

    plan = serializers.CharField(source="plan.pk")
    plan_name = serializers.CharField(source="plan.name")
    kind = serializers.CharField(source="plan.kind")
    run_name = serializers.CharField(source="plan.run.name")
    cluster = serializers.CharField(source="plan.run.cluster_id")
    planned_at = serializers.DateTimeField()
    begins_at = serializers.DateTimeField(help_text="With its smear.")
    expected_seconds = serializers.FloatField(help_text="The median of its drills; 600 where it has never run.")
    conflicts = serializers.SerializerMethodField()

    def get_conflicts(self, one: Coming) -> list[str]:
        return [plan.name for plan in one.conflicts]


class CalendarSerializer(serializers.Serializer[Any]):
    """The coming days; of a plan at most its next 500 times."""

    paused = serializers.BooleanField(help_text="All plans are paused: what comes due is skipped.")
    items = ComingSerializer(many=True)


class CalendarQuerySerializer(StrictSerializer):
    days = WholeNumberField(min_value=1, max_value=31, default=7)


class ControlSerializer(serializers.ModelSerializer[DrillControl]):
    """Whether drills may run at all."""

    stopped = serializers.SerializerMethodField()

    class Meta:
        model = DrillControl
        fields = ["stopped", "stopped_at", "stopped_by", "reason", "plans_paused_at", "plans_paused_by"]
        read_only_fields = fields

    def get_stopped(self, control: DrillControl) -> bool:
        return control.stopped_at is not None


class StopDrillsSerializer(StrictSerializer):
    reason = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")


class StoppedSerializer(serializers.Serializer[Any]):
    cancelled_count = serializers.IntegerField()
