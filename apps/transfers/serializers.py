"""Policies, plans and transfers on the wire."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from muster_agent.decide.retention import Action
from rest_framework import serializers

from apps.core.serializers import StrictSerializer, WholeNumberField
from apps.transfers.models import Migration, RetentionPolicy, TierRateLimit, Transfer
from apps.transfers.selectors import progress_of

_COUNT: dict[str, Any] = {"min_value": 1, "required": False, "allow_null": True}
_DAYS: dict[str, Any] = {"required": False, "allow_null": True}
_MAX_RATE = 2**63 - 1
KINDS = [choice for choice in Transfer.Kind.choices if choice[0] != Transfer.Kind.EXPIRE]


class PolicySerializer(serializers.ModelSerializer[RetentionPolicy]):
    """A retention policy. `plan_only`: it shows what it would do, and does nothing."""

    cluster_name = serializers.CharField(source="cluster.name")
    run_name = serializers.CharField(source="run.name", default=None, allow_null=True)
    hot_tier_name = serializers.CharField(source="hot_tier.name")
    cold_tier_name = serializers.CharField(source="cold_tier.name", default=None, allow_null=True)
    exempt_labels = serializers.ListField(child=serializers.CharField())
    proof = serializers.CharField(help_text=", ".join(RetentionPolicy.Proof.values))
    where = serializers.CharField(help_text=f"Who moves the bytes: {', '.join(RetentionPolicy.Where.values)}")

    class Meta:
        model = RetentionPolicy
        fields = [
            "id", "cluster", "cluster_name", "run", "run_name", "name", "hot_tier", "hot_tier_name", "cold_tier",
            "cold_tier_name", "keep_newest", "keep_every_steps", "exempt_labels", "move_after_days",
            "expire_after_days", "high_water_ratio", "low_water_ratio", "optimizer_newest", "proof",
            "where", "max_bytes_per_second", "plan_only", "enabled", "cron", "time_zone", "on_complete", "next_at",
            "created_by", "created_at",
        ]  # fmt: skip
        read_only_fields = fields


class UpdatePolicySerializer(StrictSerializer):
    name = serializers.CharField(max_length=63, required=False)
    hot_tier = serializers.CharField(max_length=40, required=False, help_text="The tier's id.")
    cold_tier = serializers.CharField(max_length=40, required=False, allow_null=True, help_text="The tier's id.")
    keep_newest = WholeNumberField(min_value=1, max_value=10_000, required=False)
    keep_every_steps = WholeNumberField(max_value=2**31 - 1, **_COUNT)
    exempt_labels = serializers.ListField(child=serializers.CharField(max_length=63), required=False, max_length=50)
    move_after_days = serializers.FloatField(**_DAYS)
    expire_after_days = serializers.FloatField(**_DAYS)
    high_water_ratio = serializers.FloatField(**_DAYS)
    low_water_ratio = serializers.FloatField(**_DAYS)
    optimizer_newest = WholeNumberField(max_value=2**31 - 1, **_COUNT)
    proof = serializers.ChoiceField(choices=RetentionPolicy.Proof.choices, required=False)
    where = serializers.ChoiceField(
        choices=RetentionPolicy.Where.choices, required=False, help_text="Who moves the bytes."
    )
    max_bytes_per_second = WholeNumberField(max_value=_MAX_RATE, **_COUNT)
    plan_only = serializers.BooleanField(required=False, help_text="False lets it act.")
    enabled = serializers.BooleanField(required=False)
    cron = serializers.CharField(max_length=100, required=False, allow_blank=True)
    time_zone = serializers.CharField(max_length=64, required=False)
    on_complete = serializers.BooleanField(
        required=False, help_text="Run after each new complete checkpoint on the hot tier."
    )


class CreatePolicySerializer(UpdatePolicySerializer):
    cluster = serializers.CharField(max_length=63, help_text="The cluster's id or name.")
    run = serializers.CharField(
        max_length=511, required=False, allow_null=True, help_text="The run's id or name; absent: every run."
    )
    name = serializers.CharField(max_length=63)
    hot_tier = serializers.CharField(max_length=40, help_text="The tier's id.")


class PlanLineSerializer(StrictSerializer):
    placement = serializers.CharField()
    checkpoint = serializers.CharField()
    run = serializers.CharField()
    run_name = serializers.CharField()
    step = serializers.IntegerField()
    tier_name = serializers.CharField()
    path = serializers.CharField()
    action = serializers.CharField(help_text=", ".join(action.value for action in Action))
    to_tier_name = serializers.CharField(allow_null=True)
    reasons = serializers.ListField(child=serializers.CharField())
    total_bytes = serializers.IntegerField()
    moved_bytes = serializers.IntegerField()
    freed_bytes = serializers.IntegerField()
    without_optimizer = serializers.BooleanField()
    seconds = serializers.FloatField(allow_null=True, help_text="null is not measured.")


class PolicyPlanSerializer(StrictSerializer):
    """What a policy would do now. `lines` holds what acts first, and at most 1000 of `line_count`."""

    move_count = serializers.IntegerField()
    retire_count = serializers.IntegerField()
    expire_count = serializers.IntegerField()
    stay_count = serializers.IntegerField()
    moved_bytes = serializers.IntegerField()
    freed_bytes = serializers.IntegerField()
    seconds = serializers.FloatField(allow_null=True, help_text="At the measured bandwidth; null is not measured.")
    notes = serializers.ListField(child=serializers.CharField())
    line_count = serializers.IntegerField()
    lines = PlanLineSerializer(many=True)


class MigrationSerializer(serializers.ModelSerializer[Migration]):
    """One run of a policy."""

    policy_name = serializers.CharField(source="policy.name")
    notes = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = Migration
        fields = [
            "id", "policy", "policy_name", "planned_at", "plan_only", "move_count", "retire_count", "expire_count",
            "stay_count", "moved_bytes", "freed_bytes", "estimated_seconds", "notes", "requested_by", "created_at",
        ]  # fmt: skip
        read_only_fields = fields


@extend_schema_field({"type": "object", "additionalProperties": True})
class ProofField(serializers.JSONField):
    """By what a copy was proven, how many bytes, when, and as `note` why by no better check sum; empty until then."""


class TransferSerializer(serializers.ModelSerializer[Transfer]):
    """One transfer. `bytes_per_second` and `eta_seconds` are null where nothing was measured yet."""

    cluster_name = serializers.CharField(source="cluster.name")
    run_name = serializers.CharField(source="checkpoint.run.name")
    step = serializers.IntegerField(source="checkpoint.step")
    kind = serializers.CharField(help_text=", ".join(Transfer.Kind.values))
    state = serializers.CharField(help_text=", ".join(Transfer.State.values))
    source_path = serializers.CharField(source="source.path")
    source_tier_name = serializers.CharField(source="source.tier.name")
    target_tier_name = serializers.CharField(source="target_tier.name", default=None, allow_null=True)
    agent_name = serializers.CharField(
        source="agent.node.name", default=None, allow_null=True, help_text="The node that moves it; null: the workers."
    )
    proof = serializers.CharField(help_text=", ".join(RetentionPolicy.Proof.values))
    proof_detail = ProofField()
    reasons = serializers.ListField(child=serializers.CharField())
    resume_to = serializers.CharField(help_text="The state to which a paused one goes back.")
    bytes_per_second = serializers.SerializerMethodField()
    eta_seconds = serializers.SerializerMethodField()

    class Meta:
        model = Transfer
        fields = [
            "id", "cluster", "cluster_name", "checkpoint", "run_name", "step", "migration", "kind", "state",
            "resume_to", "source", "source_path", "source_tier_name", "target_tier", "target_tier_name",
            "target_path", "target", "agent_name", "without_optimizer", "proof", "proof_detail",
            "max_bytes_per_second", "reasons", "problem", "problem_code", "attempts", "total_bytes", "copied_bytes",
            "proven_bytes", "bytes_per_second", "eta_seconds", "manifest", "requested_by", "created_at",
            "started_at", "finished_at", "next_attempt_at",
        ]  # fmt: skip
        read_only_fields = fields

    def get_bytes_per_second(self, transfer: Transfer) -> float | None:
        return progress_of(transfer).bytes_per_second

    def get_eta_seconds(self, transfer: Transfer) -> float | None:
        return progress_of(transfer).eta_seconds


class CreateTransferSerializer(StrictSerializer):
    placement = serializers.CharField(max_length=40, help_text="The copy to move, copy, stage or retire.")
    kind = serializers.ChoiceField(choices=KINDS)
    tier = serializers.CharField(
        max_length=40, required=False, allow_null=True, help_text="Where to; absent for `retire`."
    )
    proof = serializers.ChoiceField(choices=RetentionPolicy.Proof.choices, required=False)
    where = serializers.ChoiceField(
        choices=RetentionPolicy.Where.choices, required=False, help_text="Who moves the bytes."
    )
    max_bytes_per_second = WholeNumberField(max_value=_MAX_RATE, **_COUNT)


class PinSerializer(StrictSerializer):
    reason = serializers.CharField(max_length=500, help_text="Why it is to be kept for good.")


class LabelsSerializer(StrictSerializer):
    labels = serializers.ListField(child=serializers.CharField(max_length=63), max_length=20)


class MarksSerializer(StrictSerializer):
    """What people said of a checkpoint."""

    pinned = serializers.BooleanField()
    pin_reason = serializers.CharField(allow_null=True)
    pinned_by = serializers.CharField(allow_null=True)
    labels = serializers.ListField(child=serializers.CharField())


class RateLimitSerializer(serializers.ModelSerializer[TierRateLimit]):
    class Meta:
        model = TierRateLimit
        fields = ["id", "tier", "max_bytes_per_second", "begins", "ends", "time_zone", "created_at"]
        read_only_fields = fields


class CreateRateLimitSerializer(StrictSerializer):
    max_bytes_per_second = WholeNumberField(min_value=1, max_value=_MAX_RATE)
    begins = serializers.TimeField(required=False, help_text="Such as 08:00; the same as `ends`: the whole day.")
    ends = serializers.TimeField(required=False)
    time_zone = serializers.CharField(max_length=64, required=False)
