"""REST: storage tiers and what was measured of them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import Q, QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins, status
from rest_framework.decorators import action
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import Role
from apps.core.errors import InvalidInput, NotFound
from apps.core.etags import EDITABLE
from apps.core.serializers import body_of
from apps.fleet.access import scoped, visible_clusters
from apps.fleet.models import Cluster
from apps.fleet.rest import ReadViewSet, ScopedViewSet
from apps.storage import ceilings, services
from apps.storage.filters import TierFilter
from apps.storage.models import CeilingRun, StorageTier, TierCeiling
from apps.storage.serializers import (
    CeilingRunSerializer,
    CeilingSerializer,
    CreateTierSerializer,
    TierSerializer,
    UpdateTierSerializer,
)


def visible_cluster(request: Request, name_or_id: str) -> Cluster:
    """Raises NotFound for a cluster that is not there or not to be seen."""
    cluster = visible_clusters(request).filter(Q(pk=name_or_id) | Q(name=name_or_id)).first()
    if cluster is None:
        raise NotFound(f"There is no cluster {name_or_id!r} that you may see.", pointer="/cluster")
    return cluster


def visible_tier(request: Request, pk: str, pointer: str) -> StorageTier:
    """The tier of that id, its cluster with it. Raises InvalidInput for one that is not there or not to be seen."""
    tier = scoped(request, StorageTier.objects.select_related("cluster"), "cluster").filter(pk=pk).first()
    if tier is None:
        raise InvalidInput(f"There is no tier {pk!r} that you may see.", pointer=pointer)
    return tier


@extend_schema_view(
    list=extend_schema(operation_id="list_tiers", summary="List storage tiers"),
    retrieve=extend_schema(operation_id="get_tier", summary="One storage tier"),
)
class TierViewSet(ReadViewSet):
    queryset = StorageTier.objects.select_related("cluster")
    serializer_class = TierSerializer
    filterset_class = TierFilter
    lookup_value_regex = "[a-z0-9_]+"
    cluster_path = "cluster"
    needs: ClassVar = {"create": Role.ADMIN, "partial_update": Role.ADMIN, "measure": Role.OPERATOR}
    guarded = EDITABLE
    sort_fields = ("-created_at", "name", "speed_order")

    @extend_schema(
        operation_id="create_tier",
        summary="Add a storage tier",
        request=CreateTierSerializer,
        responses={201: TierSerializer},
    )
    def create(self, request: Request) -> Response:
        wanted = body_of(request, CreateTierSerializer)
        cluster = visible_cluster(request, wanted.pop("cluster"))
        self.authorize(cluster)
        tier = services.create_tier(cluster=cluster, actor=self.actor, **wanted)
        return Response(TierSerializer(tier).data, status=status.HTTP_201_CREATED)

    @extend_schema(
        operation_id="update_tier",
        summary="Change a storage tier",
        request=UpdateTierSerializer,
        responses=TierSerializer,
    )
    def partial_update(self, request: Request, pk: str) -> Response:
        tier = self.get_object()
        self.authorize(tier.cluster)
        changes = body_of(request, UpdateTierSerializer)
        return Response(TierSerializer(services.update_tier(tier=tier, actor=self.actor, **changes)).data)

    @extend_schema(
        operation_id="measure_tier",
        summary="Have an agent measure how fast a tier can be read",
        request=None,
        responses={201: CeilingRunSerializer},
    )
    @action(detail=True, methods=["post"])
    def measure(self, request: Request, pk: str) -> Response:
        tier = self.get_object()
        self.authorize(tier.cluster)
        run = ceilings.request_measurement(tier=tier, actor=self.actor)
        return Response(CeilingRunSerializer(run).data, status=status.HTTP_201_CREATED)


@extend_schema_view(list=extend_schema(operation_id="list_tier_ceilings", summary="Best read rates measured on a tier"))
class CeilingViewSet(mixins.ListModelMixin, ScopedViewSet):
    queryset = TierCeiling.objects.all()
    serializer_class = CeilingSerializer
    cluster_path = "tier__cluster"
    sort_fields = ("-measured_at", "bytes_per_second")

    def get_queryset(self) -> QuerySet[Any]:
        rows = super().get_queryset()
        if getattr(self, "swagger_fake_view", False):
            return rows
        tiers = TierViewSet(request=self.request).get_queryset()
        return rows.filter(tier=get_object_or_404(tiers, pk=self.kwargs["tier_id"]))


@extend_schema_view(
    list=extend_schema(operation_id="list_ceiling_runs", summary="List measurements of tiers' ceilings"),
    retrieve=extend_schema(operation_id="get_ceiling_run", summary="One measurement of a tier's ceiling"),
)
class CeilingRunViewSet(ReadViewSet):
    queryset = CeilingRun.objects.select_related("tier__cluster")
    serializer_class = CeilingRunSerializer
    lookup_value_regex = "[a-z0-9_-]+"
    cluster_path = "tier__cluster"
