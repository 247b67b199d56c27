"""Runs against their objectives on the wire."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.recovery.objectives import State
from apps.recovery.serializers import BudgetSerializer


class ObjectiveSerializer(serializers.Serializer[Any]):
    """One run. Counts and seconds are of its drills of `kind` in the last 90 days that ended with a result; null is
    "not measured", never 0. p95 needs 20 of them."""

    run = serializers.CharField(source="run.pk")
    run_name = serializers.CharField(source="run.name")
    cluster = serializers.CharField(source="run.cluster_id")
    cluster_name = serializers.CharField(source="run.cluster.name")
    state = serializers.CharField(source="state.value", help_text=f"{', '.join(State)}: the worst first.")
    rto_objective_seconds = serializers.FloatField(source="run.rto_objective_seconds", allow_null=True)
    rpo_objective_seconds = serializers.FloatField(source="run.rpo_objective_seconds", allow_null=True)
    kind = serializers.CharField(help_text="Of the drills that judge it; empty where none ended with a result.")
    is_storage_only = serializers.BooleanField(help_text="They measured no restart, so seconds are no time to resume.")
    count = serializers.IntegerField(source="summary.spread.count", default=0, help_text="Restored and measured.")
    p50_seconds = serializers.FloatField(source="summary.spread.p50", default=None, allow_null=True)
    p95_seconds = serializers.FloatField(source="summary.spread.p95", default=None, allow_null=True)
    max_seconds = serializers.FloatField(source="summary.spread.max", default=None, allow_null=True)
    judged_count = serializers.IntegerField(source="summary.judged_count")
    met_count = serializers.IntegerField(source="summary.met_count")
    breached_count = serializers.IntegerField(source="summary.breached_count", help_text="Restored, but late.")
    failed_count = serializers.IntegerField(source="summary.failed_count", help_text="Not restored.")
    met_ratio_low = serializers.SerializerMethodField(help_text="Wilson 95 % interval; null: nothing was judged.")
    met_ratio_high = serializers.SerializerMethodField()
    more_passes_needed = serializers.IntegerField(
        source="summary.more_passes_needed",
        help_text='In a row, to claim "95 % within the objective" at 95 % confidence.',
    )
    budget = BudgetSerializer(source="summary.budget")
    lost_seconds = serializers.FloatField(allow_null=True, help_text="Of work, if the run died now.")
    rpo_is_met = serializers.BooleanField(allow_null=True, help_text="null: no objective, or not measured.")

    def get_met_ratio_low(self, row: Any) -> float | None:
        return row.summary.met_interval[0] if row.summary.met_interval else None

    def get_met_ratio_high(self, row: Any) -> float | None:
        return row.summary.met_interval[1] if row.summary.met_interval else None
