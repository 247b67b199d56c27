"""Alerts on the wire."""

from __future__ import annotations

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
