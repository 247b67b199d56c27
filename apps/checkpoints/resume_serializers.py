"""The query and the answer of a resume point on the wire."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_field
from muster_agent.decide.model import ResumeRequest
from muster_agent.formats.explain_words import FORMAT_WORDS
from muster_agent.protocol.trust import Trust
from rest_framework import serializers

from apps.checkpoints.models import TrainingRun
from apps.core.serializers import StrictSerializer, WholeNumberField
from apps.core.units import seconds_of


@extend_schema_field({"type": "string", "example": "90m"})
class AgeField(serializers.CharField):
    """Seconds, or a number with s, m, h or d."""

    def to_internal_value(self, data: Any) -> Any:
        seconds = seconds_of(super().to_internal_value(data))
        if seconds is None:
            raise serializers.ValidationError("Use seconds, or a number with s, m, h or d, such as 90m.")
        return seconds


@extend_schema_field({"type": "string", "example": "dcp"})
class FormatField(serializers.ChoiceField):
    """The word of a format that Muster reads."""

    default_error_messages: ClassVar = {
        "invalid_choice": "There is no format {input}; known are: " + ", ".join(sorted(FORMAT_WORDS)) + "."
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(choices=sorted(FORMAT_WORDS), **options)


class ResumeQuerySerializer(StrictSerializer):
    """The query of a resume point: the options of `muster resume-point`."""

    require = serializers.ChoiceField(
        choices=[trust.value for trust in Trust],
        required=False,
        help_text="The least trust that will do; else the run's own.",
    )
    step = WholeNumberField(min_value=0, max_value=2**63 - 1, required=False, help_text="Only this step.")
    max_age = AgeField(required=False, help_text="How old the saved state may be.")
    world_size = WholeNumberField(min_value=1, max_value=2**31 - 1, required=False)
    dp = WholeNumberField(min_value=1, max_value=2**31 - 1, required=False)
    tp = WholeNumberField(min_value=1, max_value=2**31 - 1, required=False)
    pp = WholeNumberField(min_value=1, max_value=2**31 - 1, required=False)
    checkpoint_format = FormatField(required=False, help_text="Only this format.")
    evidence = serializers.BooleanField(default=False, help_text="Add what is known here about every copy.")

    def resume_request(self, run: TrainingRun) -> ResumeRequest:
        """Of the validated query about the run."""
        asked = self.validated_data
        numbers = {name: asked.get(name) for name in ("step", "world_size", "dp", "tp", "pp")}
        return ResumeRequest(
            require=Trust(asked.get("require", run.required_trust)),
            max_age_seconds=asked.get("max_age"),
            format=asked.get("checkpoint_format"),
            **numbers,
        )


class PointerSerializer(serializers.Serializer[Any]):
    path = serializers.CharField()
    step = serializers.IntegerField(allow_null=True)


class SkippedSerializer(serializers.Serializer[Any]):
    path = serializers.CharField()
    step = serializers.IntegerField(allow_null=True)
    reasons = serializers.ListField(child=serializers.CharField())


class PointerChoiceSerializer(serializers.Serializer[Any]):
    """What the framework would load by itself."""

    rule = serializers.CharField()
    path = serializers.CharField(allow_null=True)
    step = serializers.IntegerField(allow_null=True)
    is_same = serializers.BooleanField(help_text="Whether it is this answer's own choice.")
    reason = serializers.CharField()


class CopyEvidenceSerializer(serializers.Serializer[Any]):
    path = serializers.CharField()
    fingerprint = serializers.CharField()
    manifest_id = serializers.CharField(allow_null=True)
    trust = serializers.CharField()
    as_of = serializers.CharField()
    damage = serializers.ListField(child=serializers.CharField())
    damage_at = serializers.CharField(allow_null=True, help_text="When the newest of that damage was found.")
    tier = serializers.CharField()
    tier_order = serializers.IntegerField()


class ResumePointSerializer(serializers.Serializer[Any]):
    """The JSON of `muster resume-point --json`; `resume.decision_json` makes it."""

    outcome = serializers.CharField(help_text="found, nothing_resumable, no_checkpoints, step_absent or unknown.")
    path = serializers.CharField(allow_null=True)
    step = serializers.IntegerField(allow_null=True)
    tier = serializers.CharField(allow_null=True)
    status = serializers.CharField(allow_null=True)
    trust = serializers.CharField(allow_null=True)
    as_of = serializers.CharField(allow_null=True)
    source = serializers.CharField()  # type: ignore[assignment]  # a field, not the base class's attribute
    predicted_seconds = serializers.FloatField(allow_null=True)
    pointer = PointerSerializer(allow_null=True)
    skipped = SkippedSerializer(many=True)
    nearest_steps = serializers.ListField(
        child=serializers.IntegerField(), help_text="Around a step that is absent, nearest first."
    )
    pointer_choice = PointerChoiceSerializer(allow_null=True)
    evidence = CopyEvidenceSerializer(many=True, required=False, help_text="Only with ?evidence=1.")
