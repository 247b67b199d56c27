"""REST: what drills may do on a cluster."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.models import Role
from apps.core.errors import NotFound
from apps.core.etags import EDITABLE, ConditionalMixin
from apps.core.serializers import body_of
from apps.drills import rules, safety
from apps.drills.models import DrillRules
from apps.drills.rules_serializers import RulesSerializer, UpdateRulesSerializer
from apps.fleet.access import require_role, visible_clusters
from apps.fleet.models import Cluster


class RulesView(ConditionalMixin, APIView):
    """A cluster's rules for drills; the defaults where nobody set any."""

    guarded = EDITABLE

    def lock(self, request: Request) -> None:
        """The cluster's row, since there may be none of rules yet."""
        pk = _cluster(request, self.kwargs["cluster"]).pk
        Cluster.objects.filter(pk=pk).update(id=pk)

    def shown(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.get(request, **kwargs)

    @extend_schema(operation_id="get_drill_rules", summary="What drills may do here", responses=RulesSerializer)
    def get(self, request: Request, cluster: str) -> Response:
        return Response(_rules_body(safety.rules_of(_cluster(request, cluster))))

    @extend_schema(
        operation_id="update_drill_rules",
        summary="Change what drills may do here (admin)",
        request=UpdateRulesSerializer,
        responses=RulesSerializer,
    )
    def patch(self, request: Request, cluster: str) -> Response:
        found = _cluster(request, cluster)
        require_role(request, Role.ADMIN, found)
        changes = body_of(request, UpdateRulesSerializer)
        actor = request.user.get_username()
        return Response(_rules_body(rules.update_rules(cluster=found, changes=changes, actor=actor)))


class ResetBreakerView(APIView):
    @extend_schema(
        operation_id="reset_drill_breaker",
        summary="Let disruptive drills start again after several went wrong (admin)",
        request=None,
        responses=RulesSerializer,
    )
    def post(self, request: Request, cluster: str) -> Response:
        found = _cluster(request, cluster)
        require_role(request, Role.ADMIN, found)
        return Response(_rules_body(rules.reset_breaker(cluster=found, actor=request.user.get_username())))


def _rules_body(found: DrillRules) -> Any:
    is_open = safety.breaker_is_open(found, timezone.now())
    return RulesSerializer(found, context={"breaker_is_open": is_open}).data


def _cluster(request: Request, pk: str) -> Cluster:
    found = visible_clusters(request).filter(pk=pk).first()
    if found is None:
        raise NotFound(f"There is no cluster {pk} here.")
    return found
