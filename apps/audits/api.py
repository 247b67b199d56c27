"""REST: audits, their evidence, and the policies that ask for them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import Role
from apps.audits import policies, rounds, selectors, services
from apps.audits.filters import AuditFilter, AuditPolicyFilter
from apps.audits.models import AuditPolicy, AuditRound
from apps.audits.report import report
from apps.audits.serializers import (
    AuditPolicySerializer,
    AuditReportSerializer,
    AuditRoundSerializer,
    AuditSerializer,
    CreateAuditPolicySerializer,
    CreateAuditSerializer,
    UpdateAuditPolicySerializer,
)
from apps.checkpoints.api import ID, PartsViewSet
from apps.checkpoints.models import Placement
from apps.checkpoints.runs import find_run
from apps.core.errors import InvalidInput
from apps.core.etags import EDITABLE
from apps.core.serializers import body_of
from apps.fleet.access import scoped
from apps.fleet.rest import ReadViewSet
from apps.storage.api import visible_cluster, visible_tier


@extend_schema_view(
    list=extend_schema(operation_id="list_audits", summary="List audits"),
    retrieve=extend_schema(operation_id="get_audit", summary="One audit"),
)
class AuditViewSet(ReadViewSet):
    queryset = selectors.audits()
    serializer_class = AuditSerializer
    filterset_class = AuditFilter
    lookup_value_regex = ID
    cluster_path = "placement__tier__cluster"
    needs: ClassVar = {"create": Role.OPERATOR, "cancel": Role.OPERATOR}

    @extend_schema(
        operation_id="create_audit",
        summary="Seal a placement, verify it, or look at its structure",
        request=CreateAuditSerializer,
        responses={201: AuditSerializer},
    )
    def create(self, request: Request) -> Response:
        wanted = body_of(request, CreateAuditSerializer)
        placement = placement_of(request, wanted.pop("placement"))
        self.authorize(placement.tier.cluster)
        audit = services.request_audit(placement=placement, actor=self.actor, **wanted)
        return Response(AuditSerializer(audit).data, status=status.HTTP_201_CREATED)

    @extend_schema(operation_id="cancel_audit", summary="Stop an audit", request=None, responses=AuditSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        audit = self.get_object()
        self.authorize(audit.placement.tier.cluster)
        return Response(AuditSerializer(services.cancel_audit(audit=audit, actor=self.actor)).data)

    @extend_schema(
        operation_id="get_audit_report",
        summary="The evidence of an audit in one document: who, when, against which seal, and what it proves",
        request=None,
        responses=AuditReportSerializer,
    )
    @action(detail=True, methods=["get"])
    def report(self, request: Request, pk: str) -> Response:
        return Response(AuditReportSerializer(report(self.get_object())).data)


def placement_of(request: Request, pk: str, pointer: str = "/placement") -> Placement:
    """A placement that the caller may see. Raises InvalidInput."""
    rows = Placement.objects.select_related("checkpoint__run", "tier__cluster", "manifest").defer("manifest__body")
    placement = scoped(request, rows, "tier__cluster").filter(pk=pk).first()
    if placement is None:
        raise InvalidInput(f"There is no placement {pk!r} that you may see.", pointer=pointer)
    return placement


@extend_schema_view(
    list=extend_schema(operation_id="list_audit_policies", summary="List audit policies"),
    retrieve=extend_schema(operation_id="get_audit_policy", summary="One audit policy"),
)
class AuditPolicyViewSet(ReadViewSet):
    queryset = selectors.policies()
    serializer_class = AuditPolicySerializer
    filterset_class = AuditPolicyFilter
    lookup_value_regex = "[a-z0-9_-]+"
    cluster_path = "cluster"
    needs: ClassVar = dict.fromkeys(("create", "partial_update", "destroy", "run"), Role.OPERATOR)
    guarded = EDITABLE
    sort_fields = ("-created_at", "name")

    @extend_schema(
        operation_id="create_audit_policy",
        summary="Add an audit policy",
        request=CreateAuditPolicySerializer,
        responses={201: AuditPolicySerializer},
    )
    def create(self, request: Request) -> Response:
        wanted = body_of(request, CreateAuditPolicySerializer)
        cluster = visible_cluster(request, wanted.pop("cluster"))
        self.authorize(cluster)
        details = _with_rows(request, wanted)
        policy = policies.create_policy(cluster=cluster, actor=self.actor, **details)
        return Response(AuditPolicySerializer(policy).data, status=status.HTTP_201_CREATED)

    @extend_schema(
        operation_id="update_audit_policy",
        summary="Change an audit policy; another mode or ratio begins a new rotation",
        request=UpdateAuditPolicySerializer,
        responses=AuditPolicySerializer,
    )
    def partial_update(self, request: Request, pk: str) -> Response:
        policy = self._authorized()
        changes = _with_rows(request, body_of(request, UpdateAuditPolicySerializer))
        changed = policies.update_policy(policy=policy, changes=changes, actor=self.actor)
        return Response(AuditPolicySerializer(changed).data)

    @extend_schema(
        operation_id="delete_audit_policy", summary="Delete an audit policy; its audits stay", responses={204: None}
    )
    def destroy(self, request: Request, pk: str) -> Response:
        policies.delete_policy(policy=self._authorized(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(
        operation_id="run_audit_policy",
        summary="Audit now what the policy is for",
        request=None,
        responses={201: AuditRoundSerializer},
    )
    @action(detail=True, methods=["post"])
    def run(self, request: Request, pk: str) -> Response:
        row = rounds.run_policy(policy=self._authorized(), actor=self.actor)
        return Response(AuditRoundSerializer(row).data, status=status.HTTP_201_CREATED)

    def _authorized(self) -> AuditPolicy:
        policy: AuditPolicy = self.get_object()
        self.authorize(policy.cluster_id)
        return policy


def _with_rows(request: Request, wanted: dict[str, Any]) -> dict[str, Any]:
    """Ids replaced by the rows that they name."""
    if wanted.get("run") is not None:
        wanted["run"] = find_run(request, wanted["run"])
    if wanted.get("tier") is not None:
        wanted["tier"] = visible_tier(request, wanted["tier"], "/tier")
    return wanted


@extend_schema_view(
    list=extend_schema(operation_id="list_audit_rounds", summary="The due times of a policy and what became of them")
)
class AuditRoundViewSet(PartsViewSet):
    queryset = AuditRound.objects.all()
    serializer_class = AuditRoundSerializer
    cluster_path = "policy__cluster"
    sort_fields = ("-planned_at",)

    def of_parent(self, rows: QuerySet[AuditRound]) -> QuerySet[AuditRound]:
        return rows.filter(policy=self.parent(AuditPolicy.objects.all(), "cluster", self.kwargs["policy"]))
