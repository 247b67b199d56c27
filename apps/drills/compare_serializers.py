"""Drills side by side on the wire."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.core.serializers import StrictSerializer
from apps.drills.differences import LETTERS, MOST_DRILLS, Topic, Unit
from apps.drills.serializers import DrillSerializer


class CompareQuerySerializer(StrictSerializer):
    ids = serializers.CharField(max_length=400, help_text=f"Ids of 2 to {MOST_DRILLS} drills, separated by commas.")

    def validate_ids(self, text: str) -> list[str]:
        ids = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not 2 <= len(ids) <= MOST_DRILLS:
            raise serializers.ValidationError(f"Give the ids of 2 to {MOST_DRILLS} different drills.")
        return ids


class ComparedFieldSerializer(serializers.Serializer[Any]):
    """One field of all drills: `values` in their order, null where it was not measured or does not apply."""

    name = serializers.CharField(source="field.name")
    label = serializers.CharField(source="field.label")  # type: ignore[assignment]  # the name on the wire
    topic = serializers.CharField(source="field.topic.value", help_text=", ".join(Topic))
    unit = serializers.CharField(source="field.unit.value", help_text=", ".join(Unit))
    differs = serializers.BooleanField(help_text="Times, rates and sizes within 5 % of each other do not differ.")
    values = serializers.SerializerMethodField()

    @extend_schema_field({"type": "array", "items": {"type": ["string", "number", "boolean", "array", "null"]}})
    def get_values(self, row: Any) -> list[Any]:
        return [list(value) if isinstance(value, tuple) else value for value in row.values]


class ComparisonSerializer(serializers.Serializer[Any]):
    """The oldest drill first; `verdict` calls the first A, the second B and so on."""

    letters = serializers.SerializerMethodField()
    items = DrillSerializer(source="drills", many=True)
    differences = ComparedFieldSerializer(many=True)
    verdict = serializers.CharField()

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_letters(self, row: Any) -> list[str]:
        return list(LETTERS[: len(row.drills)])
