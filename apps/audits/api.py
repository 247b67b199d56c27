"""REST: audits."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import Role
from apps.audits import services
from apps.audits.filters import AuditFilter
from apps.audits.models import Audit
from apps.audits.serializers import AuditSerializer, CreateAuditSerializer
from apps.checkpoints.models import Placement
from apps.core.errors import InvalidInput
from apps.core.serializers import body_of
from apps.fleet.access import scoped
from apps.fleet.rest import ReadViewSet


@extend_schema_view(
    list=extend_schema(operation_id="list_audits", summary="List audits"),
    retrieve=extend_schema(operation_id="get_audit", summary="One audit"),
)
class AuditViewSet(ReadViewSet):
    queryset = Audit.objects.select_related("placement__checkpoint__run", "placement__tier__cluster")
    serializer_class = AuditSerializer
    filterset_class = AuditFilter
    lookup_value_regex = "[a-z0-9_]+"
    cluster_path = "placement__tier__cluster"
    needs: ClassVar = {"create": Role.OPERATOR, "cancel": Role.OPERATOR}

    @extend_schema(
        operation_id="create_audit",
        summary="Seal or verify a placement",
        request=CreateAuditSerializer,
        responses={201: AuditSerializer},
    )
    def create(self, request: Request) -> Response:
        wanted = body_of(request, CreateAuditSerializer)
        placement = self._placement(wanted.pop("placement"))
        self.authorize(placement.tier.cluster)
        audit = services.request_audit(placement=placement, actor=self.actor, **wanted)
        return Response(AuditSerializer(audit).data, status=status.HTTP_201_CREATED)

    @extend_schema(operation_id="cancel_audit", summary="Stop an audit", request=None, responses=AuditSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        audit = self.get_object()
        self.authorize(audit.placement.tier.cluster)
        return Response(AuditSerializer(services.cancel_audit(audit=audit, actor=self.actor)).data)

    def _placement(self, pk: str) -> Placement:
        rows = Placement.objects.select_related("checkpoint__run", "tier__cluster", "manifest")
        placement = scoped(self.request, rows, "tier__cluster").filter(pk=pk).first()
        if placement is None:
            raise InvalidInput(f"There is no placement {pk!r} that you may see.", pointer="/placement")
        return placement
