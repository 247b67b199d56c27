"""REST: parking a node as a spare, and bringing one back."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters.rest_framework as filters
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import Role
from apps.core.errors import NotFound
from apps.core.serializers import StrictSerializer, body_of
from apps.drills import node_actions
from apps.drills.models import NodeAction
from apps.fleet.access import visible_clusters
from apps.fleet.rest import ReadViewSet


@extend_schema_field(
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "is_fit": {"type": ["boolean", "null"]},
                "detail": {"type": "string"},
            },
        },
        "description": "What the gate found; is_fit null could not be told, and stops nobody.",
    }
)
class ChecksField(serializers.JSONField):
    """The gate's checks."""


class NodeActionSerializer(serializers.ModelSerializer[NodeAction]):
    """One node parked as a spare or brought back. `outcome`: done, refused (nothing was changed; `reason` says why) or
    failed (the scheduler did not come to it in time)."""

    what = serializers.CharField(help_text=", ".join(NodeAction.What.values))
    state = serializers.CharField(help_text=", ".join(NodeAction.State.values))
    outcome = serializers.CharField(help_text="Empty until finished; then done, refused or failed.")
    checks = ChecksField()

    class Meta:
        model = NodeAction
        fields = [
            "id", "cluster", "node_name", "what", "state", "outcome", "reason", "checks", "requested_by", "created_at",
            "finished_at",
        ]  # fmt: skip
        read_only_fields = fields


class CreateNodeActionSerializer(StrictSerializer):
    cluster = serializers.CharField(max_length=64)
    node_name = serializers.RegexField(r"^[A-Za-z0-9._-]{1,253}$", help_text="As the scheduler calls it.")
    what = serializers.ChoiceField(
        choices=NodeAction.What.choices,
        help_text="park: drain it with the reason by which Muster knows its spares; what runs there runs on. "
        "bring_back: through the gate, so only where its agent says that it is fit.",
    )


class NodeActionFilter(filters.FilterSet):  # type: ignore[misc]  # it ships no types
    cluster = filters.CharFilter(field_name="cluster_id")
    node_name = filters.CharFilter()

    class Meta:
        model = NodeAction
        fields: list[str] = []


@extend_schema_view(
    list=extend_schema(operation_id="list_node_actions", summary="Nodes that were parked or brought back"),
    retrieve=extend_schema(operation_id="get_node_action", summary="One of them, with the gate's checks"),
)
class NodeActionViewSet(ReadViewSet):
    queryset = NodeAction.objects.all()
    serializer_class = NodeActionSerializer
    filterset_class = NodeActionFilter
    lookup_value_regex = "[a-z0-9_-]+"
    cluster_path = "cluster"
    needs: ClassVar = {"create": Role.OPERATOR}
    sort_fields = ("-created_at",)

    @extend_schema(
        operation_id="create_node_action",
        summary="Park a node as a spare, or bring one back through the gate (operator)",
        request=CreateNodeActionSerializer,
        responses={201: NodeActionSerializer},
    )
    def create(self, request: Request) -> Response:
        body: dict[str, Any] = body_of(request, CreateNodeActionSerializer)
        cluster = visible_clusters(request).filter(pk=body["cluster"]).first()
        if cluster is None:
            raise NotFound(f"There is no cluster {body['cluster']} here.")
        self.authorize(cluster)
        action = node_actions.request_action(
            cluster=cluster, node_name=body["node_name"], what=body["what"], actor=self.actor
        )
        return Response(NodeActionSerializer(action).data, status=status.HTTP_201_CREATED)
