"""Audits, audit policies and their rounds on the wire."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.audits.models import Audit, AuditPolicy, AuditRound, Repair
from apps.core.serializers import StrictSerializer, WholeNumberField

_MAX_RATE = 2**63 - 1
_THROUGH_CACHE = (
    "Take what the reader's memory holds from there: faster for warm files, but damage on the storage below it stays "
    "unseen."
)
_COUNT: dict[str, Any] = {"min_value": 1, "required": False, "allow_null": True}


class AuditSerializer(serializers.ModelSerializer[Audit]):
    checkpoint = serializers.CharField(source="placement.checkpoint_id", read_only=True)
    run_name = serializers.CharField(source="placement.checkpoint.run.name", read_only=True)
    step = serializers.IntegerField(source="placement.checkpoint.step", read_only=True)
    path = serializers.CharField(source="placement.path", read_only=True)
    policy = serializers.CharField(source="round.policy_id", default=None, allow_null=True, read_only=True)
    mode = serializers.CharField(read_only=True, help_text=", ".join(Audit.Mode.values))
    ran_by = serializers.CharField(read_only=True, help_text="agents or workers.")
    state = serializers.CharField(read_only=True, help_text="queued, running or finished.")
    outcome = serializers.CharField(
        read_only=True, help_text="passed, damaged, refused, failed, cancelled; empty until finished."
    )

    class Meta:
        model = Audit
        fields = [
            "id", "placement", "checkpoint", "run_name", "step", "path", "policy", "round", "agent", "ran_by", "mode",
            "manifest", "sample_ratio", "seed", "turn", "max_bytes_per_second", "through_cache", "state", "outcome",
            "reason", "checked_bytes", "checked_chunks", "total_chunks", "seconds", "requested_by", "created_at",
            "started_at", "finished_at",
        ]  # fmt: skip
        read_only_fields = fields


class CreateAuditSerializer(StrictSerializer):
    placement = serializers.CharField(max_length=40, help_text="The placement's id.")
    mode = serializers.ChoiceField(choices=Audit.Mode.choices, help_text="structure and store read no data.")
    sample_ratio = serializers.FloatField(
        default=1.0, help_text="Above 0 and at most 1; a sample never gives `verified`."
    )
    seed = WholeNumberField(
        min_value=0, max_value=2**31 - 1, required=False, help_text="Chooses the sample; random where absent."
    )
    max_bytes_per_second = WholeNumberField(max_value=_MAX_RATE, **_COUNT)
    through_cache = serializers.BooleanField(default=False, help_text=_THROUGH_CACHE)


class CoverageSerializer(StrictSerializer):
    """`one_chunk`, `one_shard`: the chances that this audit meets the damage where one chunk, or every chunk of one
    shard of median size, is damaged."""

    total_chunks = serializers.IntegerField()
    read_chunks = serializers.IntegerField()
    covered_chunks = serializers.IntegerField(help_text="Read by this turn of the rotation and those before it.")
    covered_ratio = serializers.FloatField()
    turn = serializers.IntegerField()
    turns = serializers.IntegerField(help_text="So many in a row read every chunk.")
    one_chunk = serializers.FloatField()
    one_shard = serializers.FloatField()
    shard_count = serializers.IntegerField()
    shard_chunks = serializers.IntegerField()


@extend_schema_field({"type": "object", "additionalProperties": True})
class ObjectField(serializers.JSONField):
    """An object whose names depend on the case."""


class AuditReportSerializer(StrictSerializer):
    """All evidence of one audit in one document that stands by itself."""

    report_version = serializers.IntegerField()
    audit = serializers.CharField()
    mode = serializers.CharField()
    outcome = serializers.CharField()
    reason = serializers.CharField()
    proves = serializers.CharField(help_text="In one sentence; empty where it did not pass.")
    requested_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    cluster = serializers.CharField()
    run = serializers.CharField()
    step = serializers.IntegerField()
    tier = serializers.CharField()
    path = serializers.CharField()
    sample = ObjectField(allow_null=True, help_text="ratio, seed and turn; null where it was none.")
    checked_bytes = serializers.IntegerField(allow_null=True)
    checked_chunks = serializers.IntegerField(allow_null=True)
    total_chunks = serializers.IntegerField(allow_null=True)
    seconds = serializers.FloatField(allow_null=True)
    max_bytes_per_second = serializers.IntegerField(allow_null=True)
    through_cache = serializers.BooleanField()
    coverage = CoverageSerializer(allow_null=True)
    evidence = ObjectField(help_text="Who read with which version, the manifest, and the digests.")
    findings = serializers.ListField(child=ObjectField())


class AuditPolicySerializer(serializers.ModelSerializer[AuditPolicy]):
    """`next_at` is null for a policy that is off or is only started by hand."""

    cluster_name = serializers.CharField(source="cluster.name")
    run_name = serializers.CharField(source="run.name", default=None, allow_null=True)
    tier_name = serializers.CharField(source="tier.name", default=None, allow_null=True)
    mode = serializers.CharField(help_text=", ".join(AuditPolicy.Mode.values))
    where = serializers.CharField(help_text=", ".join(AuditPolicy.Where.values))
    missed = serializers.CharField(help_text=", ".join(AuditPolicy.Missed.values))

    class Meta:
        model = AuditPolicy
        fields = [
            "id", "cluster", "cluster_name", "name", "run", "run_name", "tier", "tier_name", "newest", "mode",
            "sample_ratio", "seed", "skip_verified_days", "max_bytes_per_second", "at_once", "through_cache", "where",
            "repairs", "cron", "time_zone", "missed", "enabled", "next_at", "created_by", "created_at",
        ]  # fmt: skip
        read_only_fields = fields


class UpdateAuditPolicySerializer(StrictSerializer):
    name = serializers.CharField(max_length=63, required=False)
    run = serializers.CharField(
        max_length=511, required=False, allow_null=True, help_text="The run's id or name; null: every run."
    )
    tier = serializers.CharField(max_length=40, required=False, allow_null=True, help_text="The tier's id; null: all.")
    newest = WholeNumberField(max_value=2**31 - 1, help_text="Steps of each run on each tier; null: all.", **_COUNT)
    mode = serializers.ChoiceField(choices=AuditPolicy.Mode.choices, required=False)
    sample_ratio = serializers.FloatField(
        required=False,
        help_text="Of the chunks, for the mode `sample`; turns rotate, so that 1/ratio of them read all.",
    )
    skip_verified_days = serializers.FloatField(
        required=False, allow_null=True, help_text="Leave out what was proven whole within so many days."
    )
    max_bytes_per_second = WholeNumberField(max_value=_MAX_RATE, help_text="Of all its audits together.", **_COUNT)
    at_once = WholeNumberField(min_value=1, max_value=1000, required=False)
    through_cache = serializers.BooleanField(required=False, help_text=_THROUGH_CACHE)
    where = serializers.ChoiceField(choices=AuditPolicy.Where.choices, required=False)
    repairs = serializers.BooleanField(
        required=False, help_text="Repair what it finds, where another copy is verified."
    )
    cron = serializers.CharField(
        max_length=100, required=False, allow_blank=True, help_text="Five fields; empty: started by hand."
    )
    time_zone = serializers.CharField(max_length=64, required=False)
    missed = serializers.ChoiceField(choices=AuditPolicy.Missed.choices, required=False)
    enabled = serializers.BooleanField(required=False)


class CreateAuditPolicySerializer(UpdateAuditPolicySerializer):
    cluster = serializers.CharField(max_length=63, help_text="The cluster's id or name.")
    name = serializers.CharField(max_length=63)


class AuditRoundSerializer(serializers.ModelSerializer[AuditRound]):
    """One due time: how many audits came of it, and why copies were left out, or all of it was skipped."""

    left_out = ObjectField(help_text="How many copies, by the reason.")

    class Meta:
        model = AuditRound
        fields = [
            "id", "planned_at", "audit_count", "left_out", "skipped_reason", "requested_by", "created_at",
        ]  # fmt: skip
        read_only_fields = fields


class RepairSerializer(serializers.ModelSerializer[Repair]):
    """The rewriting of one damaged copy's bad chunks. `file_count` and `chunk_count` are null until they were found."""

    checkpoint = serializers.CharField(source="placement.checkpoint_id")
    run_name = serializers.CharField(source="placement.checkpoint.run.name")
    step = serializers.IntegerField(source="placement.checkpoint.step")
    path = serializers.CharField(source="placement.path")
    tier_name = serializers.CharField(source="placement.tier.name")
    source_path = serializers.CharField(source="source.path", default=None, allow_null=True)
    source_tier_name = serializers.CharField(source="source.tier.name", default=None, allow_null=True)
    state = serializers.CharField(help_text=", ".join(Repair.State.values))
    verified_after = serializers.BooleanField(
        source="is_proven", help_text="Every byte of the copy was read again afterwards and is as it was sealed."
    )

    class Meta:
        model = Repair
        fields = [
            "id", "placement", "checkpoint", "run_name", "step", "path", "tier_name", "source", "source_path",
            "source_tier_name", "audit", "manifest", "state", "problem", "problem_code", "attempts", "file_count",
            "chunk_count", "read_bytes", "written_bytes", "verified_after",
            "requested_by", "created_at", "started_at", "finished_at", "next_attempt_at",
        ]  # fmt: skip
        read_only_fields = fields


class CreateRepairSerializer(StrictSerializer):
    placement = serializers.CharField(max_length=40, help_text="The damaged copy.")
    from_placement = serializers.CharField(
        max_length=40,
        required=False,
        allow_null=True,
        help_text="The copy to repair from; absent: the fastest that is proven.",
    )
