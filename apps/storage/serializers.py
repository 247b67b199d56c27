"""Tiers on the wire."""

from __future__ import annotations

from rest_framework import serializers

from apps.core.serializers import StrictSerializer, WholeNumberField
from apps.storage.models import CeilingRun, StorageTier, TierCeiling


class TierSerializer(serializers.ModelSerializer[StorageTier]):
    cluster_name = serializers.CharField(source="cluster.name", read_only=True)
    scanned_by = serializers.CharField(read_only=True, help_text="agents or workers.")

    class Meta:
        model = StorageTier
        fields = [
            "id", "cluster", "cluster_name", "name", "kind", "uri", "endpoint_url", "credentials_profile",
            "speed_order", "capacity_bytes", "cost_per_tb_month", "scanned_by", "scan_cron", "scan_time_zone",
            "next_scan_at", "created_at",
        ]  # fmt: skip
        read_only_fields = fields


class UpdateTierSerializer(StrictSerializer):
    name = serializers.CharField(max_length=63, required=False)
    kind = serializers.ChoiceField(choices=StorageTier.Kind.choices, required=False)
    uri = serializers.CharField(max_length=1024, required=False, help_text="An absolute path, or s3://bucket/prefix.")
    endpoint_url = serializers.CharField(
        max_length=255,
        required=False,
        allow_blank=True,
        help_text="Where its bucket is served, as https://host:port; empty: as each reader's environment says.",
    )
    credentials_profile = serializers.CharField(
        max_length=63,
        required=False,
        allow_blank=True,
        help_text="The profile, in the readers' own files, whose credentials are used; empty: the environment's.",
    )
    speed_order = WholeNumberField(min_value=0, max_value=1000, required=False, help_text="0 is the fastest.")
    capacity_bytes = WholeNumberField(min_value=0, max_value=2**63 - 1, required=False, allow_null=True)
    cost_per_tb_month = serializers.DecimalField(
        max_digits=10, decimal_places=4, min_value=0, required=False, allow_null=True
    )

    scanned_by = serializers.ChoiceField(
        choices=StorageTier.ScannedBy.choices,
        required=False,
        help_text="workers: the control plane's own, below MUSTER_WORKER_ROOTS.",
    )
    scan_cron = serializers.CharField(
        max_length=100, required=False, allow_blank=True, help_text="When it is scanned, such as 0 3 * * *."
    )
    scan_time_zone = serializers.CharField(max_length=64, required=False, help_text="Such as Europe/Berlin.")


class CreateTierSerializer(UpdateTierSerializer):
    cluster = serializers.CharField(max_length=63, help_text="The cluster's id or name.")
    name = serializers.CharField(max_length=63)
    kind = serializers.ChoiceField(choices=StorageTier.Kind.choices)
    uri = serializers.CharField(max_length=1024, help_text="An absolute path, or s3://bucket/prefix.")


class CeilingSerializer(serializers.ModelSerializer[TierCeiling]):
    class Meta:
        model = TierCeiling
        fields = ["id", "bytes_per_second", "client_count", "method", "measured_at"]
        read_only_fields = fields


class CeilingRunSerializer(serializers.ModelSerializer[CeilingRun]):
    outcome = serializers.CharField(read_only=True, help_text="measured, failed or cancelled; empty until it ends.")
    bytes_per_second = serializers.FloatField(read_only=True, allow_null=True, help_text="Null: not measured.")

    class Meta:
        model = CeilingRun
        fields = [
            "id", "tier", "state", "outcome", "reason", "bytes_per_second", "tries", "requested_by", "created_at",
            "finished_at",
        ]  # fmt: skip
        read_only_fields = fields
