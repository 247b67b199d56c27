"""A cluster's rules for drills, and what a drill would do, on the wire."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.core.serializers import StrictSerializer, WholeNumberField
from apps.drills.models import DrillRules


class RulesSerializer(serializers.ModelSerializer[DrillRules]):
    """What drills may do on one cluster. `allows_disruption` is the cluster's own."""

    allows_disruption = serializers.BooleanField(source="cluster.allows_disruption")
    windows = serializers.ListField(child=serializers.CharField())
    protected_runs = serializers.SerializerMethodField()
    breaker_is_open = serializers.SerializerMethodField()

    class Meta:
        model = DrillRules
        fields = [
            "cluster", "allows_disruption", "needs_approval", "plan_only", "windows", "time_zone", "max_nodes",
            "max_tier_ratio", "breaker_failures", "breaker_reset_at", "breaker_is_open", "protected_runs",
        ]  # fmt: skip
        read_only_fields = fields

    def get_protected_runs(self, rules: DrillRules) -> list[str]:
        return list(rules.protected_runs.order_by("name").values_list("name", flat=True)) if rules.is_stored else []

    def get_breaker_is_open(self, _rules: DrillRules) -> bool:
        return bool(self.context["breaker_is_open"])


class UpdateRulesSerializer(StrictSerializer):
    needs_approval = serializers.BooleanField(required=False, help_text="Of disruptive drills, by somebody else.")
    plan_only = serializers.BooleanField(required=False, help_text="Drills say what they would do; none begins.")
    windows = serializers.ListField(
        child=serializers.CharField(max_length=40),
        required=False,
        max_length=20,
        help_text="When disruptive drills may begin, such as `mon-fri 09:00-17:00`; empty: always.",
    )
    time_zone = serializers.CharField(max_length=64, required=False)
    max_nodes = WholeNumberField(min_value=1, max_value=1_000_000, required=False, allow_null=True)
    max_tier_ratio = serializers.FloatField(
        min_value=0.001, max_value=1, required=False, allow_null=True, help_text="Of the tier's measured rate."
    )
    breaker_failures = WholeNumberField(
        min_value=1, max_value=100, required=False, help_text="So many disruptive drills in a row that went wrong."
    )
    protected_runs = serializers.ListField(
        child=serializers.CharField(max_length=300, trim_whitespace=False),
        required=False,
        max_length=1000,
        help_text="All of them, by name or id; no drill touches these.",
    )


class PreviewSerializer(serializers.Serializer[Any]):
    """What a drill would touch if it began now; nothing is stored. `refusals` empty: it would begin. Of several
    `candidates` one is taken at random, and `nodes` are those of any one of them."""

    kind = serializers.CharField()
    disrupts = serializers.BooleanField()
    needs_approval = serializers.BooleanField()
    effect = serializers.CharField(source="outlook.effect", help_text="What breaks; empty for a drill that reads.")
    nodes = serializers.ListField(child=serializers.CharField(), source="radius.nodes")
    total_bytes = serializers.IntegerField(source="radius.total_bytes", allow_null=True)
    tier_ratio = serializers.FloatField(
        source="radius.tier_ratio", allow_null=True, help_text="0..1 of the tier's best measured rate; null: not known."
    )
    placement = serializers.CharField(source="placement.pk", default=None, allow_null=True)
    checkpoint_step = serializers.IntegerField(source="placement.checkpoint.step", default=None, allow_null=True)
    tier_name = serializers.CharField(source="placement.tier.name", default=None, allow_null=True)
    ladder = serializers.ListField(child=serializers.IntegerField())
    launch_id = serializers.CharField(source="outlook.launch.launch_id", default=None, allow_null=True)
    last_step = serializers.IntegerField(source="outlook.launch.last_step", default=None, allow_null=True)
    last_report_at = serializers.DateTimeField(source="outlook.launch.last_report_at", default=None, allow_null=True)
    candidates = serializers.ListField(
        child=serializers.CharField(),
        source="outlook.candidates",
        help_text="Workers (failover) or nodes (standby) of which one is taken; the first 100.",
    )
    candidate_count = serializers.IntegerField(source="outlook.candidate_count")
    spare = serializers.CharField(source="outlook.spare", help_text="Of a standby drill; else empty.")
    inventory_at = serializers.DateTimeField(
        source="outlook.inventory_at", allow_null=True, help_text="As of when the scheduler's nodes are known."
    )
    refusals = serializers.ListField(child=serializers.CharField())
