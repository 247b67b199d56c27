"""How lists take their filters from the query."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.views import APIView


class OnceFilterBackend(DjangoFilterBackend):  # type: ignore[misc]  # it ships no types
    """Refuses a parameter that is given twice: which of the values counts would be anybody's guess. Of a word that a
    filter does not take it says which it takes."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: APIView) -> QuerySet[Any]:
        repeated = sorted(name for name, values in request.query_params.lists() if len(values) > 1)
        if repeated:
            said = "Give it once; where a filter takes several values, they go with commas between them."
            raise serializers.ValidationError({name: [said] for name in repeated})
        filtered: QuerySet[Any] = super().filter_queryset(request, queryset, view)
        return filtered

    def get_filterset(self, request: Request, queryset: QuerySet[Any], view: APIView) -> Any:
        filterset = super().get_filterset(request, queryset, view)
        if filterset is not None and not filterset.is_valid():
            form = filterset.form
            raise serializers.ValidationError(
                {
                    name: [_said(form.fields.get(name), str(error)) for error in form.errors[name]]
                    for name in form.errors
                }
            )
        return filterset


def _said(field: Any, error: str) -> str:
    words = [str(value) for value, _label in getattr(field, "choices", ()) if value not in ("", None)]
    return f"{error} Use {'one of ' if len(words) > 1 else ''}{', '.join(words)}." if words else error
