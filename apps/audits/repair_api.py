"""REST: repairs."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import Role
from apps.audits import repairs, selectors
from apps.audits.api import placement_of
from apps.audits.filters import RepairFilter
from apps.audits.models import Repair
from apps.audits.serializers import CreateRepairSerializer, RepairSerializer
from apps.checkpoints.api import ID
from apps.core.serializers import body_of
from apps.fleet.rest import ReadViewSet


@extend_schema_view(
    list=extend_schema(operation_id="list_repairs", summary="List repairs"),
    retrieve=extend_schema(operation_id="get_repair", summary="One repair"),
)
class RepairViewSet(ReadViewSet):
    queryset = selectors.repairs()
    serializer_class = RepairSerializer
    filterset_class = RepairFilter
    lookup_value_regex = ID
    cluster_path = "placement__tier__cluster"
    needs: ClassVar = {"create": Role.OPERATOR, "cancel": Role.OPERATOR}

    @extend_schema(
        operation_id="create_repair",
        summary="Rewrite the bad chunks of a damaged copy from another one that is verified",
        request=CreateRepairSerializer,
        responses={201: RepairSerializer},
    )
    def create(self, request: Request) -> Response:
        wanted = body_of(request, CreateRepairSerializer)
        placement = placement_of(request, wanted["placement"])
        self.authorize(placement.tier.cluster)
        named = wanted.get("from_placement")
        source = None if named is None else placement_of(request, named, "/from_placement")
        repair = repairs.request_repair(placement=placement, source=source, actor=self.actor)
        return Response(RepairSerializer(repair).data, status=status.HTTP_201_CREATED)

    @extend_schema(
        operation_id="cancel_repair",
        summary="Stop a repair; chunks that were rewritten stay",
        request=None,
        responses=RepairSerializer,
    )
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        repair: Repair = self.get_object()
        self.authorize(repair.placement.tier.cluster)
        return Response(RepairSerializer(repairs.cancel_repair(repair=repair, actor=self.actor)).data)
