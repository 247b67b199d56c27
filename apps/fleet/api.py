"""Clusters, nodes, join tokens, agents and their tasks."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import mixins, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import Role
from apps.core.errors import InvalidInput, NotFound
from apps.core.etags import EDITABLE
from apps.core.serializers import body_of
from apps.fleet import cluster_inventory, services
from apps.fleet.access import visible_clusters
from apps.fleet.filters import (
    AgentFilter,
    AgentTaskFilter,
    ClusterFilter,
    ClusterInventoryFilter,
    JoinTokenFilter,
    NodeFilter,
)
from apps.fleet.models import Agent, AgentEvent, AgentTask, Cluster, ClusterInventory, JoinToken, Node
from apps.fleet.rest import ReadViewSet, ScopedViewSet
from apps.fleet.serializers import (
    AgentEventSerializer,
    AgentSerializer,
    AgentTaskDetailSerializer,
    AgentTaskSerializer,
    ClusterInventoryDetailSerializer,
    ClusterInventorySerializer,
    ClusterSerializer,
    CreateClusterSerializer,
    CreateJoinTokenSerializer,
    JoinTokenSerializer,
    NewJoinTokenSerializer,
    NodeSerializer,
    RevokeAgentSerializer,
    UpdateClusterSerializer,
    new_join_token,
)


@extend_schema_view(
    list=extend_schema(summary="List the clusters that the caller may view"),
    retrieve=extend_schema(summary="One cluster"),
)
class ClusterViewSet(ReadViewSet):
    queryset = Cluster.objects.all()
    serializer_class = ClusterSerializer
    filterset_class = ClusterFilter
    cluster_path = "pk"
    needs = {"create": Role.ADMIN, "partial_update": Role.ADMIN, "take_inventory": Role.OPERATOR}
    guarded = EDITABLE
    sort_fields = ("name", "-created_at")

    @extend_schema(
        summary="Create a cluster (admin)", request=CreateClusterSerializer, responses={201: ClusterSerializer}
    )
    def create(self, request: Request) -> Response:
        self.authorize(None)
        cluster = services.create_cluster(actor=self.actor, **body_of(request, CreateClusterSerializer))
        return Response(ClusterSerializer(cluster).data, status=status.HTTP_201_CREATED)

    @extend_schema(
        summary="Change a cluster's scheduler, size, price or permission to disrupt (admin)",
        request=UpdateClusterSerializer,
        responses=ClusterSerializer,
    )
    def partial_update(self, request: Request, pk: str) -> Response:
        cluster = self.get_object()
        self.authorize(cluster)
        changes = body_of(request, UpdateClusterSerializer)
        return Response(
            ClusterSerializer(services.update_cluster(cluster=cluster, changes=changes, actor=self.actor)).data
        )

    @extend_schema(
        operation_id="take_cluster_inventory",
        summary="Take the cluster's inventory now (operator)",
        request=None,
        responses={202: None},
    )
    @action(detail=True, methods=["post"], url_path="take-inventory")
    def take_inventory(self, request: Request, pk: str) -> Response:
        cluster = self.get_object()
        self.authorize(cluster)
        cluster_inventory.request_inventory(cluster=cluster, actor=self.actor)
        return Response(status=status.HTTP_202_ACCEPTED)


@extend_schema_view(
    list=extend_schema(summary="List inventories of clusters, newest first"),
    retrieve=extend_schema(
        operation_id="get_cluster_inventory",
        summary="One inventory with what changed since the one before",
        responses=ClusterInventoryDetailSerializer,
    ),
)
class ClusterInventoryViewSet(ReadViewSet):
    queryset = ClusterInventory.objects.all()
    serializer_class = ClusterInventorySerializer
    filterset_class = ClusterInventoryFilter
    cluster_path = "cluster"
    sort_fields = ("-taken_at",)

    def get_queryset(self) -> QuerySet[Any]:
        rows = super().get_queryset()
        # of a big cluster these are megabytes; a list shows neither
        return rows.defer("contents", "changes") if self.action == "list" else rows

    def get_serializer_class(self) -> type[Any]:
        return ClusterInventoryDetailSerializer if self.action == "retrieve" else ClusterInventorySerializer


@extend_schema_view(
    list=extend_schema(summary="List nodes with their agents"),
    retrieve=extend_schema(summary="One node with its agent"),
)
class NodeViewSet(ReadViewSet):
    queryset = Node.objects.select_related("agent__node")
    serializer_class = NodeSerializer
    filterset_class = NodeFilter
    cluster_path = "cluster"
    sort_fields = ("name", "-created_at")


@extend_schema_view(
    list=extend_schema(summary="List join tokens; secrets are never shown"),
    retrieve=extend_schema(summary="One join token"),
)
class JoinTokenViewSet(ReadViewSet):
    queryset = JoinToken.objects.all()
    serializer_class = JoinTokenSerializer
    filterset_class = JoinTokenFilter
    cluster_path = "cluster"
    needs = {"create": Role.ADMIN, "destroy": Role.ADMIN}
    sort_fields = ("-created_at",)

    @extend_schema(
        summary="Create a join token; its secret is in this answer only (admin)",
        request=CreateJoinTokenSerializer,
        responses={201: NewJoinTokenSerializer},
    )
    def create(self, request: Request) -> Response:
        wanted = body_of(request, CreateJoinTokenSerializer)
        cluster = visible_clusters(request).filter(pk=wanted.pop("cluster")).first()
        if cluster is None:
            raise InvalidInput("There is no such cluster.", pointer="/cluster")
        self.authorize(cluster)
        token, secret = services.create_join_token(cluster=cluster, actor=self.actor, **wanted)
        return Response(new_join_token(token, secret), status=status.HTTP_201_CREATED)

    @extend_schema(summary="Revoke a join token at once (admin)", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        token = self.get_object()
        self.authorize(token.cluster_id)
        services.revoke_join_token(token=token, actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


@extend_schema_view(list=extend_schema(summary="List agents"), retrieve=extend_schema(summary="One agent"))
class AgentViewSet(ReadViewSet):
    queryset = Agent.objects.select_related("node")
    serializer_class = AgentSerializer
    filterset_class = AgentFilter
    cluster_path = "node__cluster"
    needs = dict.fromkeys(("approve", "revoke", "drain", "resume"), Role.ADMIN)
    sort_fields = ("-enrolled_at",)

    @extend_schema(summary="Let a pending agent take work (admin)", request=None, responses=AgentSerializer)
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: str) -> Response:
        return self._answer(services.approve_agent(agent=self._managed(), actor=self.actor))

    @extend_schema(
        summary="Refuse an agent's credential from now on (admin)",
        request=RevokeAgentSerializer,
        responses=AgentSerializer,
    )
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        agent = self._managed()
        reason = body_of(request, RevokeAgentSerializer)["reason"]
        return self._answer(services.revoke_agent(agent=agent, actor=self.actor, reason=reason))

    @extend_schema(summary="Give an agent no new work (admin)", request=None, responses=AgentSerializer)
    @action(detail=True, methods=["post"])
    def drain(self, request: Request, pk: str) -> Response:
        return self._answer(services.drain_agent(agent=self._managed(), actor=self.actor))

    @extend_schema(summary="Give a drained agent work again (admin)", request=None, responses=AgentSerializer)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        return self._answer(services.resume_agent(agent=self._managed(), actor=self.actor))

    def _managed(self) -> Agent:
        agent: Agent = self.get_object()
        self.authorize(agent.node.cluster_id)
        return agent

    def _answer(self, agent: Agent) -> Response:
        return Response(AgentSerializer(agent).data)


@extend_schema_view(
    list=extend_schema(summary="List the work handed to agents"),
    retrieve=extend_schema(summary="One task with its parameters and result", responses=AgentTaskDetailSerializer),
)
class AgentTaskViewSet(ReadViewSet):
    queryset = AgentTask.objects.select_related("agent__node")
    serializer_class = AgentTaskSerializer
    filterset_class = AgentTaskFilter
    cluster_path = "agent__node__cluster"
    sort_fields = ("-created_at",)

    def get_queryset(self) -> QuerySet[Any]:
        rows = super().get_queryset()
        # a manifest of a big checkpoint is megabytes; a list shows none of these
        return rows.defer("params", "result", "late_results") if self.action == "list" else rows

    def get_serializer_class(self) -> type[Any]:
        return AgentTaskDetailSerializer if self.action == "retrieve" else AgentTaskSerializer


@extend_schema_view(
    list=extend_schema(
        summary="A task's events, oldest first",
        parameters=[OpenApiParameter("task_id", str, OpenApiParameter.PATH, description="The task's id.")],
    )
)
class AgentEventViewSet(mixins.ListModelMixin, ScopedViewSet):
    queryset = AgentEvent.objects.all()
    serializer_class = AgentEventSerializer
    filter_backends = []
    cluster_path = "task__agent__node__cluster"
    sort_fields = ("id",)

    def get_queryset(self) -> QuerySet[Any]:
        if getattr(self, "swagger_fake_view", False):
            return AgentEvent.objects.none()
        task = AgentTask.objects.filter(
            pk=self.kwargs["task_id"], agent__node__cluster__in=visible_clusters(self.request)
        ).first()
        if task is None:
            raise NotFound("There is no such task.")
        return super().get_queryset().filter(task=task)
