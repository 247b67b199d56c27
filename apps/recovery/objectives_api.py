"""REST: every run against its objectives."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from apps.checkpoints.filters import RunFilter
from apps.fleet.rest import ScopedViewSet
from apps.recovery import objectives, readiness
from apps.recovery.objective_serializers import ObjectiveSerializer


@extend_schema_view(
    list=extend_schema(
        operation_id="list_objectives",
        summary="Every run against its objectives: passes, misses, budget, how sure that is. The worst first",
        responses=ObjectiveSerializer(many=True),
    )
)
class ObjectiveViewSet(ScopedViewSet):
    queryset = readiness.runs_to_judge()
    serializer_class = ObjectiveSerializer
    filterset_class = RunFilter
    cluster_path = "cluster"
    sort_fields = ("standing",)

    def get_queryset(self) -> QuerySet[Any]:
        return objectives.ranked(super().get_queryset().filter(archived_at=None))

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        found = objectives.objectives_of(page or [])
        return self.get_paginated_response(ObjectiveSerializer(found, many=True).data)
