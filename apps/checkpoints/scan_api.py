"""REST: scans, what each found different, and what differs between two."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import Role
from apps.checkpoints import scan_diffs, scans
from apps.checkpoints.api import ID, PartsViewSet
from apps.checkpoints.filters import InventoryChangeFilter, ScanChangeFilter, ScanFilter
from apps.checkpoints.models import InventoryScan, ScanChange
from apps.checkpoints.serializers import (
    CreateScanSerializer,
    DiffQuerySerializer,
    InventoryChangeSerializer,
    InventoryDiffSerializer,
    ScanChangeSerializer,
    ScanSerializer,
)
from apps.core.errors import InvalidInput
from apps.core.serializers import body_of, query_of
from apps.fleet.access import scoped
from apps.fleet.models import Agent
from apps.fleet.rest import ReadViewSet, ScopedViewSet
from apps.storage.models import StorageTier


@extend_schema_view(
    list=extend_schema(operation_id="list_scans", summary="List inventory scans"),
    retrieve=extend_schema(operation_id="get_scan", summary="One inventory scan"),
)
class ScanViewSet(ReadViewSet):
    queryset = InventoryScan.objects.select_related("tier__cluster", "agent__node")
    serializer_class = ScanSerializer
    filterset_class = ScanFilter
    lookup_value_regex = ID
    cluster_path = "tier__cluster"
    needs: ClassVar = {"create": Role.OPERATOR, "cancel": Role.OPERATOR}

    @extend_schema(
        operation_id="create_scan",
        summary="Have a tier, or a folder of it, listed",
        request=CreateScanSerializer,
        responses={201: ScanSerializer},
    )
    def create(self, request: Request) -> Response:
        wanted = body_of(request, CreateScanSerializer)
        tier = self._visible(StorageTier.objects.select_related("cluster"), "cluster", wanted["tier"], "/tier")
        self.authorize(tier.cluster)
        agent = wanted.get("agent")
        if agent is not None:
            agent = self._visible(Agent.objects.all(), "node__cluster", agent, "/agent")
        scan = scans.request_scan(
            tier=tier,
            root=wanted.get("root"),
            agent=agent,
            accepts_loss=wanted["accepts_loss"],
            actor=self.actor,
        )
        return Response(ScanSerializer(scan).data, status=status.HTTP_201_CREATED)

    @extend_schema(operation_id="cancel_scan", summary="Stop a scan", request=None, responses=ScanSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        scan = self.get_object()
        self.authorize(scan.tier.cluster)
        return Response(ScanSerializer(scans.cancel_scan(scan=scan, actor=self.actor)).data)

    @extend_schema(
        operation_id="get_scan_diff",
        summary="What differs between this inventory of a tier and an earlier one",
        parameters=[DiffQuerySerializer],
        responses=InventoryDiffSerializer,
        filters=False,
    )
    @action(detail=True, methods=["get"], pagination_class=None)
    def diff(self, request: Request, pk: str) -> Response:
        scan = self.get_object()
        wanted = query_of(request, DiffQuerySerializer).validated_data["since"]
        at = scan_diffs.moment(wanted, scan)
        if at is not None:
            since = scan_diffs.newest_before(at, scan)
        else:
            since = self._visible(InventoryScan.objects.select_related("tier"), "tier__cluster", wanted, "/since")
        return Response(InventoryDiffSerializer(scan_diffs.diff(since, scan)).data)

    def _visible(self, rows: QuerySet[Any], cluster_path: str, pk: str, pointer: str) -> Any:
        row = scoped(self.request, rows, cluster_path).filter(pk=pk).first()
        if row is None:
            raise InvalidInput(f"There is no {pointer.lstrip('/')} {pk!r} that you may see.", pointer=pointer)
        return row


@extend_schema_view(list=extend_schema(operation_id="list_scan_changes", summary="What a scan found different"))
class ScanChangeViewSet(PartsViewSet):
    queryset = ScanChange.objects.select_related("placement__checkpoint__run")
    serializer_class = ScanChangeSerializer
    filterset_class = ScanChangeFilter
    cluster_path = "scan__tier__cluster"
    sort_fields = ("-id", "kind")

    def of_parent(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows.filter(scan=self.parent(InventoryScan.objects.all(), "tier__cluster", self.kwargs["scan"]))


@extend_schema_view(
    list=extend_schema(operation_id="list_inventory_changes", summary="What scans of any tier found different")
)
class InventoryChangeViewSet(mixins.ListModelMixin, ScopedViewSet):
    queryset = ScanChange.objects.select_related("scan__tier", "placement__checkpoint__run")
    serializer_class = InventoryChangeSerializer
    filterset_class = InventoryChangeFilter
    cluster_path = "scan__tier__cluster"
    sort_fields = ("-id",)
