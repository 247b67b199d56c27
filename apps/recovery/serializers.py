"""The history of times to resume, incidents and recoveries on the wire."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.core.serializers import StrictSerializer, WholeNumberField
from apps.drills.models import DrillKind
from apps.drills.serializers import PhasesField
from apps.recovery.advice import Source
from apps.recovery.history import Group, GroupBy, figures
from apps.recovery.models import Incident, Recovery


class HistoryQuerySerializer(StrictSerializer):
    run = serializers.CharField(max_length=300, help_text="The run's id, name, or cluster/name.")
    kind = serializers.ChoiceField(
        choices=DrillKind.choices, default=DrillKind.FAILOVER.value, help_text="Kinds measure different things."
    )
    days = WholeNumberField(min_value=1, max_value=3650, default=365)


class HistoryPointSerializer(serializers.Serializer[Any]):
    """One drill that ended with a result, oldest first."""

    drill = serializers.CharField(source="pk")
    kind = serializers.CharField()
    at = serializers.DateTimeField(source="created_at")
    outcome = serializers.CharField()
    objective_state = serializers.CharField()
    seconds = serializers.FloatField(allow_null=True)
    objective_seconds = serializers.FloatField(allow_null=True)
    phases = PhasesField()
    unattributed_seconds = serializers.FloatField(allow_null=True)
    total_bytes = serializers.IntegerField(allow_null=True)
    bytes_per_second = serializers.FloatField(allow_null=True)
    cached_ratio_before = serializers.FloatField(allow_null=True)
    checkpoint_step = serializers.IntegerField(allow_null=True)
    tier_name = serializers.CharField(source="placement.tier.name", default=None, allow_null=True)
    efficiency_ratio = serializers.FloatField(
        allow_null=True, help_text="Reached of the tier's measured ceiling with as many clients; null: not measured."
    )


class BudgetSerializer(serializers.Serializer[Any]):
    """Of the last 28 days: 5 % of the judged drills, rounded down and at least one, may miss."""

    trial_count = serializers.IntegerField()
    allowed = serializers.IntegerField()
    used = serializers.IntegerField()
    left = serializers.IntegerField(help_text="Negative where more missed than may.")
    is_alarming = serializers.BooleanField(help_text="Two misses in the newest five, or any that did not restore.")


class BlameSerializer(serializers.Serializer[Any]):
    phase = serializers.CharField()
    seconds = serializers.FloatField()
    before_seconds = serializers.FloatField(
        allow_null=True, help_text="Its median in the comparable drills before; null where none of them measured it."
    )


class StatisticsSerializer(serializers.Serializer[Any]):
    """From every measurement of the answer. p95 needs 20 and p99 100 of them; else null, and `max_seconds` stands."""

    count = serializers.IntegerField(help_text="Drills that restored and were measured.")
    p50_seconds = serializers.FloatField(allow_null=True)
    p95_seconds = serializers.FloatField(allow_null=True)
    p99_seconds = serializers.FloatField(allow_null=True)
    max_seconds = serializers.FloatField(allow_null=True)
    judged_count = serializers.IntegerField(help_text="Drills with an objective, and those that did not restore.")
    met_count = serializers.IntegerField()
    breached_count = serializers.IntegerField(help_text="Restored, but late.")
    failed_count = serializers.IntegerField(help_text="Not restored.")
    met_ratio_low = serializers.FloatField(allow_null=True, help_text="Wilson 95 % interval.")
    met_ratio_high = serializers.FloatField(allow_null=True)
    more_passes_needed = serializers.IntegerField(
        help_text='In a row, to claim "95 % within the objective" at 95 % confidence.'
    )
    budget = BudgetSerializer()
    regressed = serializers.BooleanField()
    regression_ratio = serializers.FloatField(allow_null=True, help_text="Newest over the median of the ten before.")
    regression_blame = BlameSerializer(allow_null=True, help_text="The phase that grew most.")


class HistorySerializer(serializers.Serializer[Any]):
    run = serializers.CharField()
    run_name = serializers.CharField()
    kind = serializers.CharField()
    is_storage_only = serializers.BooleanField(help_text="Then these are times to read, not times to resume.")
    objective_seconds = serializers.FloatField(allow_null=True)
    points = HistoryPointSerializer(many=True)
    statistics = StatisticsSerializer()
    left_out_count = serializers.IntegerField(help_text="Older drills beyond the newest 2,000; 0 otherwise.")


class GroupsQuerySerializer(StrictSerializer):
    by = serializers.ChoiceField(choices=[one.value for one in GroupBy], default=GroupBy.RUN.value)
    kind = serializers.ChoiceField(
        choices=DrillKind.choices, default=DrillKind.FAILOVER.value, help_text="Kinds measure different things."
    )
    days = WholeNumberField(min_value=1, max_value=3650, default=90)


class GroupSerializer(serializers.Serializer[Any]):
    key = serializers.CharField(help_text="The id of the run or tier, or the node group.")
    name = serializers.CharField()
    cluster_name = serializers.CharField()
    objective_seconds = serializers.FloatField(allow_null=True, help_text="Of the newest drill that had one.")
    statistics = serializers.SerializerMethodField()

    @extend_schema_field(StatisticsSerializer)
    def get_statistics(self, group: Group) -> dict[str, Any]:
        return dict(StatisticsSerializer(figures(group.summary)).data)


class GroupsSerializer(serializers.Serializer[Any]):
    """Drills of one kind side by side, the slowest group first."""

    items = GroupSerializer(many=True)
    drill_count = serializers.IntegerField()
    left_out_count = serializers.IntegerField(
        help_text="Older drills beyond the newest 2,000, by node group 250; 0 otherwise."
    )


class AdviceQuerySerializer(StrictSerializer):
    """What is given here stands before what was measured; the rest is read from the run's rows or assumed."""

    run = serializers.CharField(max_length=300, help_text="The run's id, name, or cluster/name.")
    gpu_count = WholeNumberField(min_value=1, max_value=1_000_000, required=False)
    gpus_per_node = WholeNumberField(min_value=1, max_value=1024, required=False)
    gpu_hour_cost = serializers.FloatField(min_value=0, max_value=1e6, required=False)
    failures_per_node_day = serializers.FloatField(min_value=1e-9, max_value=1000, required=False)
    mtbf_seconds = serializers.FloatField(min_value=1, max_value=1e10, required=False)
    save_seconds = serializers.FloatField(
        min_value=0.001, max_value=1e7, required=False, help_text="What a save holds training up."
    )
    interval_seconds = serializers.FloatField(min_value=0.001, max_value=1e8, required=False)
    resume_seconds = serializers.FloatField(min_value=0, max_value=1e8, required=False)
    objective_seconds = serializers.FloatField(min_value=0.001, max_value=1e8, required=False)
    repair_hours = serializers.FloatField(min_value=0.001, max_value=1e5, required=False)


class InputSerializer(serializers.Serializer[Any]):
    value = serializers.FloatField(allow_null=True)
    source = serializers.CharField(  # type: ignore[assignment]  # a declared field, not the argument of that name
        help_text=f"{', '.join(Source)}."
    )
    how = serializers.CharField(help_text="What was measured, who gave it, or what is assumed.")


class InputsSerializer(serializers.Serializer[Any]):
    gpu_count = InputSerializer()
    gpus_per_node = InputSerializer()
    gpu_hour_cost = InputSerializer()
    failures_per_node_day = InputSerializer()
    save_seconds = InputSerializer(help_text="What a save holds training up.")
    whole_save_seconds = InputSerializer()
    interval_seconds = InputSerializer(help_text="Between saves today.")
    resume_seconds = InputSerializer(help_text="From a fault to the first new step, today.")
    objective_seconds = InputSerializer()
    repair_hours = InputSerializer()


class IntervalSerializer(serializers.Serializer[Any]):
    young_seconds = serializers.FloatField(allow_null=True)
    daly_seconds = serializers.FloatField(allow_null=True)
    advised_seconds = serializers.FloatField(allow_null=True)
    is_held_by_save = serializers.BooleanField(help_text="Daly's is shorter than one whole save, which stands instead.")


class ScenarioSerializer(serializers.Serializer[Any]):
    """Null where an input is missing. Money is in the currency of the GPU-hour cost."""

    resume_seconds = serializers.FloatField(allow_null=True)
    interval_seconds = serializers.FloatField(allow_null=True, help_text="Today's; the advised one where not known.")
    training_ratio = serializers.FloatField(allow_null=True, help_text="Expected share of the time that trains.")
    best_training_ratio = serializers.FloatField(allow_null=True, help_text="The same at the advised interval.")
    gpu_hours_per_failure = serializers.FloatField(allow_null=True)
    gpu_hours_per_month = serializers.FloatField(allow_null=True)
    cost_per_failure = serializers.FloatField(allow_null=True)
    cost_per_month = serializers.FloatField(allow_null=True)


class AdviceSerializer(serializers.Serializer[Any]):
    inputs = InputsSerializer()
    node_count = serializers.IntegerField(allow_null=True)
    mtbf = InputSerializer(help_text="Seconds between failures of the run.")
    failures_per_month = serializers.FloatField(allow_null=True)
    interval = IntervalSerializer()
    today = ScenarioSerializer()
    objective = ScenarioSerializer()
    spare_node_count = serializers.IntegerField(allow_null=True, help_text="Covers all repairs, 99 % sure.")


class WhatIfQuerySerializer(StrictSerializer):
    """Without bytes and ranks: the standard sizes at 8 to 16,384 ranks."""

    tier = serializers.CharField(max_length=64, help_text="Of the storage tier.")
    total_bytes = WholeNumberField(min_value=1, max_value=10**18, required=False)
    ranks = WholeNumberField(min_value=1, max_value=1_000_000, required=False)
    nodes = WholeNumberField(min_value=1, max_value=1_000_000, required=False, help_text="8 ranks on each if absent.")
    readers = WholeNumberField(
        min_value=1, max_value=1_000_000, required=False, help_text="Nodes that read at once: all if absent."
    )
    objective_seconds = serializers.FloatField(
        min_value=0.001, max_value=1e8, required=False, help_text="Answered backwards in `need`."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("total_bytes" in attrs) != ("ranks" in attrs):
            absent = "ranks" if "total_bytes" in attrs else "total_bytes"
            raise serializers.ValidationError({absent: ["Give total_bytes and ranks together, or neither."]})
        return attrs


class CeilingPointSerializer(serializers.Serializer[Any]):
    reader_count = serializers.IntegerField()
    bytes_per_second = serializers.FloatField(help_text="The best that so many together were measured to get.")


class ModelSerializer(serializers.Serializer[Any]):
    """Storage seconds = fixed_seconds + bytes / (rate of the readers) / efficiency_ratio."""

    ceilings = CeilingPointSerializer(many=True, source="rates.points")
    has_knee = serializers.BooleanField(source="rates.has_knee", help_text="The storage's own limit was seen.")
    fixed_seconds = serializers.FloatField()
    efficiency_ratio = serializers.FloatField()
    reading_count = serializers.IntegerField(help_text="Rounds of drills behind it; 0: the read floor alone.")


class PredictionErrorSerializer(serializers.Serializer[Any]):
    """Each past drill against what the drills before it predict."""

    count = serializers.IntegerField()
    mape_ratio = serializers.FloatField()
    bias_ratio = serializers.FloatField(help_text="Positive: predicted too long.")


class NeedSerializer(serializers.Serializer[Any]):
    bytes_per_second = serializers.FloatField(allow_null=True, help_text="Null: the other phases alone take longer.")
    reader_count = serializers.IntegerField(allow_null=True, help_text="Null: no measurement here reached that rate.")


class AnswerSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(source="question.name", help_text="Of a standard size; empty for an own question.")
    total_bytes = serializers.IntegerField(source="question.total_bytes")
    rank_count = serializers.IntegerField(source="question.rank_count")
    node_count = serializers.IntegerField(source="question.node_count")
    reader_count = serializers.IntegerField(source="question.reader_count")
    seconds = serializers.FloatField()
    storage_seconds = serializers.FloatField()
    other_seconds = serializers.FloatField(
        allow_null=True, help_text="Phases that storage does not do; null: no restart was timed, storage part only."
    )
    is_beyond_measured = serializers.BooleanField(help_text="More readers than any measurement had.")
    need = NeedSerializer(allow_null=True)


class WhatIfSerializer(serializers.Serializer[Any]):
    tier = serializers.CharField(source="known.tier.pk")
    tier_name = serializers.CharField(source="known.tier.name")
    model = ModelSerializer(source="known.model", allow_null=True, help_text="Null: nothing was read from the tier.")
    error = PredictionErrorSerializer(source="known.error", allow_null=True)
    other_phases = PhasesField(source="known.other_phases")
    restart_count = serializers.IntegerField(source="known.restart_count")
    items = AnswerSerializer(many=True)


class RecoverySerializer(serializers.ModelSerializer[Recovery]):
    state = serializers.CharField(help_text=", ".join(Recovery.State.values))
    launch_id = serializers.CharField(source="attempt.launch_id", default=None, allow_null=True)
    phases = PhasesField()

    class Meta:
        model = Recovery
        fields = [
            "id", "state", "attempt", "launch_id", "checkpoint_step", "time_to_resume_seconds", "lost_steps",
            "lost_seconds", "phases", "unattributed_seconds", "created_at", "closed_at",
        ]  # fmt: skip
        read_only_fields = fields


class IncidentSerializer(serializers.ModelSerializer[Incident]):
    """A real disruption with its recovery. `fault_at` is the last sign of life: the true fault lies between that and
    `detected_at`, so the phase `detect` is not measured."""

    run_name = serializers.CharField(source="run.name")
    cluster = serializers.CharField(source="run.cluster_id")
    launch_id = serializers.CharField(source="ended_attempt.launch_id", default=None, allow_null=True)
    recovery = RecoverySerializer(allow_null=True)

    class Meta:
        model = Incident
        fields = [
            "id", "cluster", "run", "run_name", "launch_id", "fault_at", "detected_at", "detail", "reported_by",
            "created_at", "recovery",
        ]  # fmt: skip
        read_only_fields = fields


class ReportIncidentSerializer(StrictSerializer):
    run = serializers.CharField(max_length=300, help_text="The run's id, name, or cluster/name.")
    fault_at = serializers.DateTimeField(help_text="With its offset, such as 2026-05-01T10:00:00Z.")
    launch_id = serializers.CharField(
        max_length=128,
        required=False,
        help_text="Absent: the launch that last began before the fault, if any is known.",
    )
    detected_at = serializers.DateTimeField(required=False)
    resumed_at = serializers.DateTimeField(
        required=False, help_text="First step beyond the checkpoint; only of a run whose launches no hook reports."
    )
    checkpoint_step = WholeNumberField(min_value=0, max_value=2**62, required=False)
    detail = serializers.CharField(max_length=2000, required=False)
