"""Alerts on the wire."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.alerts.models import Alert


class AlertSerializer(serializers.ModelSerializer[Alert]):
    """`subject_kind` and `subject_id` name what it is about."""

    cluster_name = serializers.CharField(source="cluster.name")
    rule = serializers.CharField(help_text=", ".join(Alert.Rule.values))
    state = serializers.CharField(help_text=", ".join(Alert.State.values))

    class Meta:
        model = Alert
        fields = [
            "id", "cluster", "cluster_name", "rule", "subject_kind", "subject_id", "state", "summary", "opened_at",
            "acknowledged_at", "acknowledged_by", "resolved_at",
        ]  # fmt: skip
        read_only_fields = fields


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
