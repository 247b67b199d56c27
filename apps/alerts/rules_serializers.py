"""Alert rules and silences on the wire."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.alerts.models import AlertRule, RuleKind, Severity, Silence
from apps.alerts.rule_kinds import KINDS
from apps.core.serializers import StrictSerializer


class AlertRuleSerializer(serializers.ModelSerializer[AlertRule]):
    """`cluster` null: for everywhere. Of several the narrowest holds: a run's, then its cluster's. `threshold` is in
    `threshold_unit`, null where the kind has none."""

    cluster_name = serializers.CharField(source="cluster.name", default=None, allow_null=True)
    run_name = serializers.CharField(source="run.name", default=None, allow_null=True)
    kind = serializers.CharField(help_text=", ".join(RuleKind.values))
    severity = serializers.CharField(help_text=", ".join(Severity.values))
    threshold_unit = serializers.SerializerMethodField()
    says = serializers.SerializerMethodField()

    class Meta:
        model = AlertRule
        fields = [
            "id", "kind", "says", "cluster", "cluster_name", "run", "run_name", "enabled", "severity", "threshold",
            "threshold_unit", "updated_by", "updated_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field({"type": ["string", "null"], "description": "seconds or ratio"})
    def get_threshold_unit(self, rule: AlertRule) -> str | None:
        return KINDS[rule.kind].unit or None

    def get_says(self, rule: AlertRule) -> str:
        return KINDS[rule.kind].says


class UpdateAlertRuleSerializer(StrictSerializer):
    enabled = serializers.BooleanField(required=False)
    severity = serializers.ChoiceField(choices=Severity.choices, required=False)
    threshold = serializers.FloatField(
        required=False, allow_null=True, help_text="In the kind's unit; null where it has none."
    )


class CreateAlertRuleSerializer(UpdateAlertRuleSerializer):
    kind = serializers.ChoiceField(choices=RuleKind.choices)
    cluster = serializers.CharField(max_length=63, help_text="The cluster's id or name.")
    run = serializers.CharField(
        max_length=511, required=False, allow_null=True, help_text="The run's id or name; null: the whole cluster."
    )


class SilenceSerializer(serializers.ModelSerializer[Silence]):
    """Empty or null fields match everything."""

    cluster_name = serializers.CharField(source="cluster.name", default=None, allow_null=True)
    run_name = serializers.CharField(source="run.name", default=None, allow_null=True)
    rule = serializers.CharField(allow_blank=True, help_text="Empty, or one of " + ", ".join(RuleKind.values))

    class Meta:
        model = Silence
        fields = [
            "id", "cluster", "cluster_name", "rule", "run", "run_name", "subject_id", "summary_contains", "reason",
            "starts_at", "ends_at", "created_by", "created_at", "ended_by",
        ]  # fmt: skip
        read_only_fields = fields


_TEXT: dict[str, Any] = {"required": False, "allow_blank": True}


class CreateSilenceSerializer(StrictSerializer):
    reason = serializers.CharField(max_length=500)
    ends_at = serializers.DateTimeField(help_text="At most 90 days ahead.")
    starts_at = serializers.DateTimeField(required=False, help_text="Absent: now.")
    cluster = serializers.CharField(
        max_length=63, required=False, allow_null=True, help_text="The cluster's id or name; null: every cluster."
    )
    rule = serializers.ChoiceField(choices=RuleKind.choices, **_TEXT)
    run = serializers.CharField(max_length=511, required=False, allow_null=True, help_text="The run's id or name.")
    subject_id = serializers.CharField(max_length=40, help_text="Of the alerts' subjects.", **_TEXT)
    summary_contains = serializers.CharField(max_length=200, help_text="In any case of letters.", **_TEXT)
