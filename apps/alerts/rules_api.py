"""REST: alert rules and silences."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import Q, QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import Role
from apps.alerts import rules, silences
from apps.alerts.filters import AlertRuleFilter, SilenceFilter
from apps.alerts.rules_serializers import (
    AlertRuleSerializer,
    CreateAlertRuleSerializer,
    CreateSilenceSerializer,
    SilenceSerializer,
    UpdateAlertRuleSerializer,
)
from apps.checkpoints.runs import find_run
from apps.core.etags import EDITABLE
from apps.core.serializers import body_of
from apps.fleet.access import visible_clusters
from apps.fleet.rest import ReadViewSet, ScopedViewSet
from apps.storage.api import visible_cluster


class PlacedViewSet(ReadViewSet):
    """Rows of a cluster, or of everywhere: the latter are for everybody to see, and for roles that hold everywhere to
    change."""

    cluster_path = "cluster"

    def get_queryset(self) -> QuerySet[Any]:
        rows = super(ScopedViewSet, self).get_queryset()
        return rows.filter(Q(cluster=None) | Q(cluster__in=visible_clusters(self.request)))

    def _authorized(self) -> Any:
        row = self.get_object()
        self.authorize(row.cluster_id)
        return row


@extend_schema_view(
    list=extend_schema(operation_id="list_alert_rules", summary="List alert rules"),
    retrieve=extend_schema(operation_id="get_alert_rule", summary="One alert rule"),
)
class AlertRuleViewSet(PlacedViewSet):
    queryset = rules.rule_rows()
    serializer_class = AlertRuleSerializer
    filterset_class = AlertRuleFilter
    lookup_value_regex = "[a-z0-9_-]+"
    needs: ClassVar = dict.fromkeys(("create", "partial_update", "destroy"), Role.OPERATOR)
    guarded = EDITABLE
    sort_fields = ("kind", "-updated_at")

    @extend_schema(
        operation_id="create_alert_rule",
        summary="Give a cluster, or one of its runs, a rule of its own",
        request=CreateAlertRuleSerializer,
        responses={201: AlertRuleSerializer},
    )
    def create(self, request: Request) -> Response:
        wanted = body_of(request, CreateAlertRuleSerializer)
        cluster = visible_cluster(request, wanted.pop("cluster"))
        self.authorize(cluster)
        if (run := wanted.pop("run", None)) is not None:
            wanted["run"] = find_run(request, run)
        rule = rules.create_rule(cluster=cluster, actor=self.actor, **wanted)
        return Response(AlertRuleSerializer(rule).data, status=status.HTTP_201_CREATED)

    @extend_schema(
        operation_id="update_alert_rule",
        summary="Change a rule's severity or threshold, or disable it",
        request=UpdateAlertRuleSerializer,
        responses=AlertRuleSerializer,
    )
    def partial_update(self, request: Request, pk: str) -> Response:
        rule = self._authorized()
        changes = body_of(request, UpdateAlertRuleSerializer)
        return Response(AlertRuleSerializer(rules.update_rule(rule=rule, changes=changes, actor=self.actor)).data)

    @extend_schema(
        operation_id="delete_alert_rule",
        summary="Delete a cluster's or run's own rule; the wider one holds again",
        responses={204: None},
    )
    def destroy(self, request: Request, pk: str) -> Response:
        rules.delete_rule(rule=self._authorized(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


@extend_schema_view(
    list=extend_schema(operation_id="list_silences", summary="List silences"),
    retrieve=extend_schema(operation_id="get_silence", summary="One silence"),
)
class SilenceViewSet(PlacedViewSet):
    queryset = silences.silence_rows()
    serializer_class = SilenceSerializer
    filterset_class = SilenceFilter
    lookup_value_regex = "[a-z0-9_-]+"
    needs: ClassVar = dict.fromkeys(("create", "end"), Role.OPERATOR)
    sort_fields = ("-created_at", "ends_at")

    @extend_schema(
        operation_id="create_silence",
        summary="Keep matching alerts from being told to channels for a while",
        request=CreateSilenceSerializer,
        responses={201: SilenceSerializer},
    )
    def create(self, request: Request) -> Response:
        wanted = body_of(request, CreateSilenceSerializer)
        named = wanted.pop("cluster", None)
        cluster = visible_cluster(request, named) if named is not None else None
        self.authorize(cluster)
        if (run := wanted.pop("run", None)) is not None:
            wanted["run"] = find_run(request, run)
        silence = silences.create_silence(cluster=cluster, actor=self.actor, **wanted)
        return Response(SilenceSerializer(silence).data, status=status.HTTP_201_CREATED)

    @extend_schema(
        operation_id="end_silence",
        summary="End a silence now; what is still wrong is told",
        request=None,
        responses=SilenceSerializer,
    )
    @action(detail=True, methods=["post"])
    def end(self, request: Request, pk: str) -> Response:
        silence = silences.end_silence(silence=self._authorized(), actor=self.actor)
        return Response(SilenceSerializer(silence).data)
