"""Readiness on the wire."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.checkpoints.resume import decision_json
from apps.checkpoints.resume_serializers import ResumePointSerializer
from apps.core.serializers import StrictSerializer
from apps.drills.models import Drill
from apps.drills.serializers import PhasesField
from apps.recovery.evidence import evidence_of
from apps.recovery.first_steps import Progress, Step
from apps.recovery.next_action import Action
from apps.recovery.readiness import ReadinessRow
from apps.recovery.sentence import About, Known, Part
from apps.recovery.verdict import Verdict


class LastDrillSerializer(serializers.ModelSerializer[Drill]):
    kind = serializers.CharField()
    outcome = serializers.CharField()
    objective_state = serializers.CharField()
    phases = PhasesField()
    efficiency_ratio = serializers.FloatField(
        allow_null=True, help_text="Reached of the tier's measured ceiling with as many clients; null: not measured."
    )

    class Meta:
        model = Drill
        fields = [
            "id", "kind", "outcome", "objective_state", "reason", "seconds", "objective_seconds", "phases",
            "efficiency_ratio", "finished_at",
        ]  # fmt: skip
        read_only_fields = fields


class PartEvidenceSerializer(serializers.Serializer[Any]):
    kind = serializers.CharField(
        help_text="audit, checkpoint, cluster, drill, incident, rto_history (of the run), run, step (of the run), "
        "tier, or whatever else proved a copy."
    )
    id = serializers.CharField()
    step = serializers.IntegerField(allow_null=True)


class SentencePartSerializer(serializers.Serializer[Any]):
    text = serializers.CharField(trim_whitespace=False)
    about = serializers.CharField(help_text=f"{', '.join(filter(None, About))}; empty for the words between.")
    known = serializers.CharField(help_text=f"{', '.join(filter(None, Known))}; empty where it states no figure.")
    evidence = PartEvidenceSerializer(allow_null=True)


class NextActionSerializer(serializers.Serializer[Any]):
    action = serializers.CharField(help_text=f"{', '.join(Action)}.")
    words = serializers.CharField()
    step = serializers.IntegerField(allow_null=True)


class ReadinessSerializer(serializers.Serializer[Any]):
    """One run: what it would resume from if it died now. null is "not measured" or "not known", never 0."""

    run = serializers.CharField(source="run.pk")
    run_name = serializers.CharField(source="run.name")
    cluster = serializers.CharField(source="run.cluster_id")
    cluster_name = serializers.CharField(source="run.cluster.name")
    verdict = serializers.CharField(help_text=f"{', '.join(Verdict)}: the worst first.")
    sentence = serializers.CharField()
    parts = serializers.SerializerMethodField(help_text="The sentence in pieces, each with where its evidence lies.")
    next_action = NextActionSerializer(allow_null=True, help_text="Null where there is nothing to do.")
    ready = serializers.SerializerMethodField()
    decision = serializers.SerializerMethodField()
    placement = serializers.CharField(source="placement.pk", default=None, allow_null=True)
    last_drill = LastDrillSerializer(source="drill", allow_null=True)
    objective_seconds = serializers.FloatField(allow_null=True)
    predicted_seconds = serializers.FloatField(allow_null=True)
    predicted_phases = PhasesField()
    back_seconds = serializers.FloatField(
        allow_null=True, help_text="Until it would train again: predicted, else as last measured; never storage alone."
    )
    back_known = serializers.CharField(help_text="predicted, measured or not_measured.")
    lost_steps = serializers.IntegerField(allow_null=True)
    lost_seconds = serializers.FloatField(allow_null=True)
    lost_cost = serializers.FloatField(allow_null=True, help_text="In the currency of the cluster's GPU-hour cost.")
    inventory_at = serializers.DateTimeField(
        allow_null=True, help_text="When a scan last saw the answer on its storage; what changed since is not known."
    )
    newest_saved_step = serializers.IntegerField(
        allow_null=True, help_text="What the training job reported last as saved, inventoried or not."
    )
    restart_seconds = serializers.FloatField(
        allow_null=True, help_text="Of the last timed restart (a failover drill or a real recovery)."
    )

    @extend_schema_field(SentencePartSerializer(many=True))
    def get_parts(self, row: ReadinessRow) -> list[dict[str, Any]]:
        return [
            {"text": part.text, "about": part.about, "known": part.known, "evidence": _evidence(row, part)}
            for part in row.parts
        ]

    def get_ready(self, row: ReadinessRow) -> bool:
        return row.verdict is Verdict.READY

    @extend_schema_field(ResumePointSerializer)
    def get_decision(self, row: ReadinessRow) -> dict[str, Any]:
        return decision_json(msgspec.structs.replace(row.decision, predicted_seconds=row.predicted_seconds))


def _evidence(row: ReadinessRow, part: Part) -> dict[str, Any] | None:
    found = evidence_of(row, part)
    return asdict(found) if found else None


class FleetSerializer(serializers.Serializer[Any]):
    """All judged runs together. Lost work and cost are of the runs where they are known, which are counted."""

    sentence = serializers.CharField()
    run_count = serializers.IntegerField()
    ready_count = serializers.IntegerField()
    start_over_count = serializers.IntegerField(help_text="Runs with nothing to resume from.")
    unproven_count = serializers.IntegerField()
    skipped_count = serializers.IntegerField(help_text="Runs whose newest checkpoint is passed over.")
    never_drilled_count = serializers.IntegerField()
    slowest = serializers.CharField(help_text="The run that would be back last; empty where none was ever timed.")
    slowest_seconds = serializers.FloatField(allow_null=True)
    lost_known_count = serializers.IntegerField()
    lost_gpu_hours = serializers.FloatField(allow_null=True)
    cost_known_count = serializers.IntegerField()
    lost_cost = serializers.FloatField(allow_null=True)


class UndrilledSerializer(serializers.Serializer[Any]):
    run = serializers.CharField(source="run_id")
    run_name = serializers.CharField(source="name")
    drilled_at = serializers.DateTimeField(allow_null=True, help_text="Null: never.")


class ReadinessListSerializer(serializers.Serializer[Any]):
    items = ReadinessSerializer(many=True)
    fleet = FleetSerializer()
    undrilled = UndrilledSerializer(
        many=True, help_text="Runs whose last drill is older than MUSTER_DRILL_DAYS, never drilled ones first."
    )
    by_verdict = serializers.DictField(child=serializers.IntegerField(), help_text="How many runs have which verdict.")


class ApiRequestSerializer(serializers.Serializer[Any]):
    method = serializers.CharField()
    path = serializers.CharField(help_text="Below /api/v1/.")
    body = serializers.DictField()


class FirstStepSerializer(serializers.Serializer[Any]):
    step = serializers.CharField(help_text=f"{', '.join(Step)}: in order.")
    title = serializers.CharField()
    why = serializers.CharField()
    progress = serializers.CharField(help_text=f"{', '.join(Progress)}.")
    done_at = serializers.DateTimeField(allow_null=True)
    note = serializers.CharField(help_text="What it waits for, or why it cannot go on.")
    request = ApiRequestSerializer(allow_null=True, help_text="What does it; null where it is done or comes too early.")


class FirstStepsSerializer(serializers.Serializer[Any]):
    """The way from an empty installation to a first answer, of one cluster."""

    cluster = serializers.CharField(help_text="Empty where there is none yet.")
    cluster_name = serializers.CharField()
    done = serializers.BooleanField()
    steps = FirstStepSerializer(many=True)


class FirstStepsQuerySerializer(StrictSerializer):
    cluster = serializers.CharField(
        max_length=63, required=False, help_text="The cluster's id or name; else the oldest that is not done."
    )
