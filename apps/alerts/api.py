"""REST: alerts."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.models import Role
from apps.alerts import own_health, services
from apps.alerts.filters import AlertFilter
from apps.alerts.models import Alert
from apps.alerts.serializers import AlertSerializer, HealthSerializer
from apps.alerts.silences import standing_silences
from apps.fleet.rest import ReadViewSet


@extend_schema_view(
    list=extend_schema(operation_id="list_alerts", summary="List alerts"),
    retrieve=extend_schema(operation_id="get_alert", summary="One alert"),
)
class AlertViewSet(ReadViewSet):
    queryset = Alert.objects.select_related("cluster", "run")
    serializer_class = AlertSerializer
    filterset_class = AlertFilter
    lookup_value_regex = "[a-z0-9_]+"
    cluster_path = "cluster"
    needs: ClassVar = {"acknowledge": Role.OPERATOR}
    sort_fields = ("-opened_at",)

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "silences": standing_silences()}

    @extend_schema(
        operation_id="acknowledge_alert",
        summary="Say that somebody is on it; it stays until its cause is gone",
        request=None,
        responses=AlertSerializer,
    )
    @action(detail=True, methods=["post"])
    def acknowledge(self, request: Request, pk: str) -> Response:
        alert = self.get_object()
        self.authorize(alert.cluster_id)
        return Response(AlertSerializer(services.acknowledge(alert=alert, actor=self.actor)).data)


class HealthView(APIView):
    """Muster's own health."""

    @extend_schema(
        operation_id="get_health", summary="Whether Muster itself is watching, part by part", responses=HealthSerializer
    )
    def get(self, request: Request) -> Response:
        parts = own_health.parts()
        watching = all(part.is_well for part in parts)
        return Response(HealthSerializer({"watching": watching, "parts": parts}).data)
