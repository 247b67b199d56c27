"""Runs, checkpoints, placements, findings and scans on the wire."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from msgspec import UnsetType
from muster_agent.manifest.model import TensorDigest
from rest_framework import serializers

from apps.checkpoints.models import (
    Checkpoint,
    Finding,
    InventoryScan,
    Placement,
    RunAttempt,
    ScanChange,
    Shard,
    SteplessCheckpoint,
    StepReport,
    TrainingRun,
    TrustEvidence,
)
from apps.checkpoints.scan_progress import progress_of
from apps.core.serializers import StrictSerializer, WholeNumberField


class RunSerializer(serializers.ModelSerializer[TrainingRun]):
    cluster_name = serializers.CharField(source="cluster.name", read_only=True)
    frozen_tensors = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = TrainingRun
        fields = [
            "id", "cluster", "cluster_name", "name", "rto_objective_seconds", "rpo_objective_seconds", "gpu_count",
            "required_trust", "frozen_tensors", "created_at", "archived_at",
        ]  # fmt: skip
        read_only_fields = fields


class UpdateRunSerializer(StrictSerializer):
    rto_objective_seconds = serializers.FloatField(required=False, allow_null=True)
    rpo_objective_seconds = serializers.FloatField(required=False, allow_null=True)
    gpu_count = WholeNumberField(required=False, allow_null=True, min_value=1, max_value=2**31 - 1)
    required_trust = serializers.ChoiceField(
        choices=TrainingRun.RequiredTrust.choices,
        required=False,
        help_text="What its launch script gives to `muster resume-point --require`.",
    )
    archived = serializers.BooleanField(required=False)
    frozen_tensors = serializers.ListField(
        child=serializers.CharField(max_length=200),
        required=False,
        max_length=50,
        help_text="Patterns (visual.*) of tensors that training leaves as they are: no stale save.",
    )


class AttemptSerializer(serializers.ModelSerializer[RunAttempt]):
    class Meta:
        model = RunAttempt
        fields = [
            "id", "launch_id", "agent", "resumed_from_step", "resumed_from_path", "last_step", "started_at", "ended_at",
            "last_report_at",
        ]  # fmt: skip
        read_only_fields = fields


class StepSerializer(serializers.ModelSerializer[StepReport]):
    class Meta:
        model = StepReport
        fields = ["attempt", "step", "at", "loss"]
        read_only_fields = fields


class CopySerializer(serializers.ModelSerializer[Placement]):
    """A placement, short."""

    tier_name = serializers.CharField(source="tier.name", read_only=True)
    status = serializers.CharField(read_only=True, help_text="One of the status words, or missing.")
    trust = serializers.CharField(read_only=True, help_text="The highest rung of trust that holds.")

    class Meta:
        model = Placement
        fields = [
            "id", "tier", "tier_name", "path", "format", "world_size", "total_bytes", "status", "rotated_away", "trust",
            "trust_at", "resumable",
        ]  # fmt: skip
        read_only_fields = fields


class CheckpointSerializer(serializers.ModelSerializer[Checkpoint]):
    run_name = serializers.CharField(source="run.name", read_only=True)
    cluster_name = serializers.CharField(source="run.cluster.name", read_only=True)
    placements = CopySerializer(many=True, read_only=True)
    must_match = serializers.ListField(
        child=serializers.CharField(),
        read_only=True,
        help_text="Which of world_size, dp, tp and pp the job that resumes must share with the one that saved.",
    )

    class Meta:
        model = Checkpoint
        fields = [
            "id", "run", "run_name", "cluster_name", "step", "format", "world_size", "dp", "tp", "pp", "ep",
            "must_match", "total_bytes", "saved_at", "created_at", "placements",
        ]  # fmt: skip
        read_only_fields = fields


class ShardSerializer(serializers.ModelSerializer[Shard]):
    class Meta:
        model = Shard
        fields = ["placement", "path", "size_bytes", "promised_bytes", "rank", "role", "mtime_ns"]
        read_only_fields = fields


class TensorSerializer(serializers.Serializer[Any]):
    """One range of bytes; a tensor that lies in several pieces has several. `dtype` and `shape` are null where the
    checkpoint was sealed before they were kept."""

    name = serializers.CharField()
    dtype = serializers.SerializerMethodField()
    shape = serializers.SerializerMethodField()
    shard = serializers.CharField()
    offset_bytes = serializers.IntegerField()
    length_bytes = serializers.IntegerField()
    xxh3_64 = serializers.CharField()

    def get_dtype(self, tensor: TensorDigest) -> str | None:
        return tensor.dtype or None

    @extend_schema_field({"type": ["array", "null"], "items": {"type": "integer"}})
    def get_shape(self, tensor: TensorDigest) -> list[int] | None:
        return None if isinstance(tensor.shape, UnsetType) else list(tensor.shape)


class PlacementSerializer(serializers.ModelSerializer[Placement]):
    run = serializers.CharField(source="checkpoint.run_id", read_only=True)
    run_name = serializers.CharField(source="checkpoint.run.name", read_only=True)
    step = serializers.IntegerField(source="checkpoint.step", read_only=True)
    tier_name = serializers.CharField(source="tier.name", read_only=True)
    status = serializers.CharField(read_only=True, help_text="One of the status words, or missing.")
    trust = serializers.CharField(read_only=True, help_text="The highest rung of trust that holds.")
    not_resumable_reasons = serializers.ListField(child=serializers.CharField(), read_only=True)
    must_match = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = Placement
        fields = [
            "id", "checkpoint", "run", "run_name", "step", "tier", "tier_name", "path", "format", "world_size",
            "dp", "tp", "pp", "ep", "must_match", "status", "rotated_away", "trust", "trust_at", "resumable",
            "not_resumable_reasons", "shard_count", "total_bytes", "newest_mtime_at", "fingerprint",
            "manifest", "damaged_at", "first_seen_at", "last_seen_at",
        ]  # fmt: skip
        read_only_fields = fields


class EvidenceSerializer(serializers.ModelSerializer[TrustEvidence]):
    rung = serializers.CharField(read_only=True)
    detail = serializers.DictField(read_only=True)

    class Meta:
        model = TrustEvidence
        fields = ["id", "rung", "source_kind", "source_id", "fingerprint", "detail", "at", "voided_at", "void_reason"]
        read_only_fields = fields


class FindingSerializer(serializers.ModelSerializer[Finding]):
    severity = serializers.CharField(read_only=True, help_text="damage, warning or note.")

    class Meta:
        model = Finding
        fields = [
            "id", "placement", "code", "severity", "path", "detail", "cure", "begin_byte", "end_byte", "tensor",
            "source_kind", "source_id", "found_at", "resolved_at", "resolved_reason",
        ]  # fmt: skip
        read_only_fields = fields


class LineSerializer(serializers.Serializer[Any]):
    heading = serializers.CharField()
    sentence = serializers.CharField()


class RoleSerializer(serializers.Serializer[Any]):
    role = serializers.CharField(help_text="model, optimizer, rng, dataloader, scheduler, metadata or other.")
    expected = serializers.IntegerField(help_text="Files that the metadata names.")
    there = serializers.IntegerField()
    size_bytes = serializers.IntegerField(allow_null=True)


class ExplanationSerializer(serializers.Serializer[Any]):
    """The lines of `muster explain`, and what was proven of the copy since."""

    path = serializers.CharField()
    explanation = LineSerializer(many=True)
    roles = RoleSerializer(many=True)


class ScanProgressSerializer(serializers.Serializer[Any]):
    """Empty unless it runs; what the lister does not tell is left out."""

    checkpoints = serializers.IntegerField(required=False, help_text="Read so far.")
    checkpoints_left = serializers.IntegerField(required=False, help_text="Of those found so far.")
    entries = serializers.IntegerField(required=False, help_text="Names seen in all folders that were listed.")
    entries_per_second = serializers.IntegerField(required=False)
    folders_left = serializers.IntegerField(required=False, help_text="Found so far, and still to be listed.")
    note = serializers.CharField(required=False, help_text="Entries seen, and how many a second.")
    at = serializers.FloatField(required=False, help_text="Unix seconds.")


class ScanSerializer(serializers.ModelSerializer[InventoryScan]):
    tier_name = serializers.CharField(source="tier.name", read_only=True)
    agent = serializers.CharField(source="agent_id", allow_null=True, read_only=True, help_text="null: the workers.")
    state = serializers.CharField(read_only=True, help_text="queued, running, finished, failed or cancelled.")
    progress = serializers.SerializerMethodField()
    findings = serializers.ListField(child=serializers.DictField(), read_only=True)

    class Meta:
        model = InventoryScan
        fields = [
            "id", "tier", "tier_name", "agent", "root", "accepts_loss", "planned_at", "state", "progress",
            "checkpoint_count", "new_count", "changed_count", "missing_count", "entry_count", "unchanged_count",
            "seconds", "doubt", "held_count", "findings", "damage_count", "stepless_count", "error", "error_code",
            "requested_by", "created_at", "started_at", "finished_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(ScanProgressSerializer)
    def get_progress(self, scan: InventoryScan) -> dict[str, Any]:
        return progress_of(scan)


class SteplessCheckpointSerializer(serializers.ModelSerializer[SteplessCheckpoint]):
    tier_name = serializers.CharField(source="tier.name", read_only=True)
    status = serializers.CharField(read_only=True, help_text="As of a copy: complete, corrupt, unreadable ...")
    findings = serializers.ListField(child=serializers.DictField(), read_only=True)

    class Meta:
        model = SteplessCheckpoint
        fields = [
            "id", "tier", "tier_name", "path", "run_name", "format", "status", "world_size", "shard_count",
            "total_bytes", "saved_at", "findings", "damage_count", "first_seen_at", "last_seen_at",
        ]  # fmt: skip
        read_only_fields = fields


class ScanChangeSerializer(serializers.ModelSerializer[ScanChange]):
    path = serializers.CharField(source="placement.path", read_only=True)
    run_name = serializers.CharField(source="placement.checkpoint.run.name", read_only=True)
    step = serializers.IntegerField(source="placement.checkpoint.step", read_only=True)
    kind = serializers.CharField(read_only=True, help_text="appeared, changed or vanished.")
    before = serializers.DictField(read_only=True, help_text="What differs: status, total_bytes, fingerprint ...")
    after = serializers.DictField(read_only=True)

    class Meta:
        model = ScanChange
        fields = ["placement", "path", "run_name", "step", "kind", "before", "after"]
        read_only_fields = fields


class InventoryChangeSerializer(ScanChangeSerializer):
    tier = serializers.CharField(source="scan.tier_id", read_only=True)
    scanned_at = serializers.DateTimeField(source="scan.created_at", read_only=True)

    class Meta(ScanChangeSerializer.Meta):
        fields = ["scan", "scanned_at", "tier", *ScanChangeSerializer.Meta.fields]
        read_only_fields = fields


class DiffQuerySerializer(StrictSerializer):
    since = serializers.CharField(
        max_length=40,
        help_text="An earlier scan of the same tier; or a time, or an age such as 24h counted back from this scan's "
        "end: then the newest scan that had finished by then.",
    )


class DifferenceSerializer(serializers.Serializer[Any]):
    placement = serializers.CharField(source="placement.pk")
    path = serializers.CharField(source="placement.path")
    run_name = serializers.CharField(source="placement.checkpoint.run.name")
    step = serializers.IntegerField(source="placement.checkpoint.step")
    kind = serializers.CharField(help_text="appeared, changed or vanished.")
    before = serializers.DictField()
    after = serializers.DictField()


class InventoryDiffSerializer(serializers.Serializer[Any]):
    """What is not as it was, summed up over the scans in between."""

    since = serializers.CharField(source="since.pk")
    until = serializers.CharField(source="until.pk")
    appeared_count = serializers.IntegerField(source="counts.appeared", default=0)
    changed_count = serializers.IntegerField(source="counts.changed", default=0)
    vanished_count = serializers.IntegerField(source="counts.vanished", default=0)
    changes = DifferenceSerializer(source="shown", many=True)
    left_out = serializers.IntegerField(help_text="How many more differ than `changes` has.")


class CreateScanSerializer(StrictSerializer):
    tier = serializers.CharField(max_length=40, help_text="The tier's id.")
    root = serializers.CharField(  # type: ignore[assignment]  # a field, not the base class's attribute
        max_length=1024, required=False, help_text="A folder inside the tier; the whole tier where absent."
    )
    agent = serializers.CharField(
        max_length=40,
        required=False,
        help_text="The agent that lists; where absent the workers, or the first agent that reaches the root.",
    )
    accepts_loss = serializers.BooleanField(
        default=False, help_text="What is not there any more was removed on purpose, even where it is all at once."
    )
