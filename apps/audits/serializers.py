"""Audits on the wire."""

from __future__ import annotations

from rest_framework import serializers

from apps.audits.models import Audit
from apps.core.serializers import StrictSerializer, WholeNumberField


class AuditSerializer(serializers.ModelSerializer[Audit]):
    checkpoint = serializers.CharField(source="placement.checkpoint_id", read_only=True)
    run_name = serializers.CharField(source="placement.checkpoint.run.name", read_only=True)
    step = serializers.IntegerField(source="placement.checkpoint.step", read_only=True)
    path = serializers.CharField(source="placement.path", read_only=True)
    mode = serializers.CharField(read_only=True, help_text="seal or verify.")
    state = serializers.CharField(read_only=True, help_text="queued, running or finished.")
    outcome = serializers.CharField(
        read_only=True, help_text="passed, damaged, refused, failed, cancelled; empty until finished."
    )

    class Meta:
        model = Audit
        fields = [
            "id", "placement", "checkpoint", "run_name", "step", "path", "agent", "mode", "sample_ratio", "seed",
            "state", "outcome", "reason", "checked_bytes", "checked_chunks", "total_chunks", "seconds", "requested_by",
            "created_at", "finished_at",
        ]  # fmt: skip
        read_only_fields = fields


class CreateAuditSerializer(StrictSerializer):
    placement = serializers.CharField(max_length=40, help_text="The placement's id.")
    mode = serializers.ChoiceField(choices=Audit.Mode.choices)
    sample_ratio = serializers.FloatField(
        default=1.0, help_text="Above 0 and at most 1; a sample never gives `verified`."
    )
    seed = WholeNumberField(
        min_value=0, max_value=2**31 - 1, required=False, help_text="Chooses the sample; random where absent."
    )
