"""The base of request bodies: an unknown field is a mistake that the caller wants to hear of."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from rest_framework import serializers
from rest_framework.request import Request

_Query = TypeVar("_Query", bound="serializers.Serializer[Any]")
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,20}")


class WholeNumberField(serializers.IntegerField):
    """Digits, and nothing else that Python takes for a number (`1_0`, `1.0`, digits of other scripts)."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, str) and not _WHOLE_NUMBER.fullmatch(data):
            self.fail("invalid")
        return super().to_internal_value(data)


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


def query_of(request: Request, serializer_class: type[_Query]) -> _Query:
    """The validated query; problems become 400 with a pointer to the parameter, one that is given twice too."""
    repeated = sorted(name for name, values in request.query_params.lists() if len(values) > 1)
    if repeated:
        raise serializers.ValidationError({name: ["Give it once."] for name in repeated})
    query = serializer_class(data=request.query_params.dict())
    query.is_valid(raise_exception=True)
    return query
