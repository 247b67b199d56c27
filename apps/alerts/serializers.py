"""Alerts on the wire."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework import serializers

from apps.alerts.deciding import silence_for
from apps.alerts.models import Alert, Severity
from apps.alerts.silences import standing_silences


class AlertSerializer(serializers.ModelSerializer[Alert]):
    """`subject_kind` and `subject_id` name what it is about; `cluster` is null where that is Muster itself."""

    cluster_name = serializers.CharField(source="cluster.name", default=None, allow_null=True)
    run_name = serializers.CharField(source="run.name", default=None, allow_null=True)
    severity = serializers.CharField(help_text=", ".join(Severity.values))
    silence = serializers.SerializerMethodField(help_text="The id of the silence that keeps it from being told.")
    rule = serializers.CharField(help_text=", ".join(Alert.Rule.values))
    state = serializers.CharField(help_text=", ".join(Alert.State.values))
    flapping_at = serializers.DateTimeField(
        allow_null=True, help_text="When it was told as flapping; until `calm_at` no further one of its kind is told."
    )

    class Meta:
        model = Alert
        fields = [
            "id", "cluster", "cluster_name", "run", "run_name", "rule", "severity", "subject_kind", "subject_id",
            "state", "summary", "silence", "flapping_at", "calm_at", "opened_at", "acknowledged_at", "acknowledged_by",
            "resolved_at",
        ]  # fmt: skip
        read_only_fields = fields

    def get_silence(self, alert: Alert) -> str | None:
        if alert.state == Alert.State.RESOLVED:
            return None
        known = self.context.get("silences")
        silence = silence_for(alert, standing_silences() if known is None else known, timezone.now())
        return silence.pk if silence else None


class PartSerializer(serializers.Serializer[Any]):
    """One part of Muster. `age_seconds` since its last sign of life, or how long its oldest work has been due; null
    where it never gave one, or does not answer."""

    name = serializers.CharField()
    does = serializers.CharField()
    is_well = serializers.BooleanField()
    age_seconds = serializers.FloatField(allow_null=True)
    limit_seconds = serializers.FloatField()
    cure = serializers.CharField(allow_blank=True)


class HealthSerializer(serializers.Serializer[Any]):
    """`watching` is false when any part stands still: then no alert means nothing."""

    watching = serializers.BooleanField()
    parts = PartSerializer(many=True)
