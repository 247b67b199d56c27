"""The base of request bodies: an unknown field is a mistake that the caller wants to hear of."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request


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


def body_of(request: Request, serializer_class: type[serializers.Serializer[Any]]) -> dict[str, Any]:
    """The validated request body; problems become 400 with a pointer to the field."""
    serializer = serializer_class(data=request.data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)
