"""The rank-shard audit on the wire."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class ShapeFindingSerializer(serializers.Serializer[Any]):
    """`saved_seconds` is what the cure is predicted to save; null: the tier's rates were not measured."""

    code = serializers.CharField(help_text="monolithic, rank_skew, shared_shard or stripe_narrow.")
    detail = serializers.CharField()
    seconds = serializers.FloatField(allow_null=True)
    cured_seconds = serializers.FloatField(allow_null=True)
    saved_seconds = serializers.FloatField(allow_null=True)


class RankShardAuditSerializer(serializers.Serializer[Any]):
    """How a copy's bytes are cut for its ranks. No findings: the cut holds nobody up."""

    placement = serializers.CharField(source="placement.pk")
    readers = serializers.IntegerField(source="shape.readers")
    file_count = serializers.IntegerField(source="shape.file_count")
    total_bytes = serializers.IntegerField(source="shape.total_bytes")
    common_bytes = serializers.IntegerField(source="shape.common_bytes", help_text="That every rank must read.")
    stripe_count = serializers.IntegerField(source="shape.stripe_count", allow_null=True)
    together_bytes_per_second = serializers.FloatField(source="rates.together", allow_null=True)
    one_bytes_per_second = serializers.FloatField(source="rates.one", allow_null=True)
    findings = ShapeFindingSerializer(many=True)
