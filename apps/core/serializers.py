"""The base of request bodies: an unknown field is a mistake that the caller wants to hear of."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class StrictSerializer(serializers.Serializer[Any]):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            unknown = sorted(set(data) - set(self.fields))
            if unknown:
                known = ", ".join(self.fields) or "none"
                raise serializers.ValidationError(
                    {name: [f"There is no such field; known are: {known}."] for name in unknown}
                )
        return super().to_internal_value(data)
