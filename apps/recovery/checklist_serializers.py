"""The validation checklist on the wire."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.core.serializers import StrictSerializer, WholeNumberField
from apps.recovery.checklist import CREDIT, DEFAULT_MAX_AGE, Step, StepVerdict


class ChecklistStepSerializer(serializers.Serializer[Any]):
    """One step. `points` of `weight` count for the score: a stale step half, a failed or missing one nothing."""

    step = serializers.CharField(help_text=", ".join(Step))
    title = serializers.CharField()
    verdict = serializers.CharField(help_text=", ".join(StepVerdict))
    weight = serializers.IntegerField()
    points = serializers.FloatField()
    evidence_kind = serializers.CharField(source="evidence.source_kind", default=None, allow_null=True)
    evidence_id = serializers.CharField(source="evidence.source_id", default=None, allow_null=True)
    evidence_at = serializers.DateTimeField(source="evidence.at", default=None, allow_null=True)
    age_seconds = serializers.FloatField(allow_null=True)
    detail = serializers.CharField()
    next_action = serializers.CharField(allow_blank=True, help_text="Empty where the step has passed.")


class ChecklistSerializer(serializers.Serializer[Any]):
    """A run's five steps. `passed`: all of them, within the age that was asked for."""

    run = serializers.CharField(source="run.pk")
    run_name = serializers.CharField(source="run.name")
    max_age_seconds = serializers.FloatField()
    passed = serializers.BooleanField()
    score = serializers.FloatField(help_text=f"0 to 100; credit: {', '.join(f'{k} {v:g}' for k, v in CREDIT.items())}.")
    steps = ChecklistStepSerializer(many=True)


class ChecklistQuerySerializer(StrictSerializer):
    max_age_seconds = WholeNumberField(
        min_value=1,
        max_value=3650 * 86_400,
        default=int(DEFAULT_MAX_AGE.total_seconds()),
        help_text="Evidence that is older is stale.",
    )
