"""Tiers side by side on the wire."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class TierComparisonItemSerializer(serializers.Serializer[Any]):
    """Null is "not measured"; `missing` names the kind of drill that would fill it."""

    tier = serializers.CharField(source="tier.pk")
    tier_name = serializers.CharField(source="tier.name")
    tier_kind = serializers.CharField(source="tier.kind")
    cluster = serializers.CharField(source="tier.cluster_id")
    cluster_name = serializers.CharField(source="tier.cluster.name")
    run = serializers.CharField(source="run_id", allow_null=True, help_text="A run with a copy here to drill.")
    bytes_per_second = serializers.FloatField(source="rate", allow_null=True, help_text="Best of any round, together.")
    client_count = serializers.IntegerField(source="rate_clients", allow_null=True)
    bytes_per_second_drill = serializers.CharField(source="rate_drill", allow_null=True)
    reload_seconds = serializers.FloatField(allow_null=True, help_text="Of the newest drill that passed.")
    reload_bytes = serializers.IntegerField(allow_null=True)
    reload_drill = serializers.CharField(allow_null=True)
    knee_client_count = serializers.IntegerField(
        source="knee_clients", allow_null=True, help_text="Null with a ladder: none up to its client count."
    )
    ladder_client_count = serializers.IntegerField(source="ladder_clients", allow_null=True)
    ladder_drill = serializers.CharField(allow_null=True)
    cpu_seconds_per_gb = serializers.FloatField(allow_null=True)
    cost_per_tb_month = serializers.DecimalField(max_digits=10, decimal_places=4, allow_null=True)
    missing = serializers.DictField(child=serializers.CharField(), help_text="Figure: kind of drill that measures it.")


class TierComparisonSerializer(serializers.Serializer[Any]):
    items = TierComparisonItemSerializer(many=True)
