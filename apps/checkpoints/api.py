"""REST: training runs, checkpoints, their copies and findings."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import Prefetch, QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import mixins
from rest_framework.decorators import action
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import Role
from apps.checkpoints import explanations, runs
from apps.checkpoints.filters import CheckpointFilter, FindingFilter, PlacementFilter, RunFilter, SteplessFilter
from apps.checkpoints.models import (
    Checkpoint,
    Finding,
    Manifest,
    Placement,
    RunAttempt,
    Shard,
    SteplessCheckpoint,
    StepReport,
    TrainingRun,
    TrustEvidence,
)
from apps.checkpoints.serializers import (
    AttemptSerializer,
    CheckpointSerializer,
    EvidenceSerializer,
    ExplanationSerializer,
    FindingSerializer,
    PlacementSerializer,
    RunSerializer,
    ShardSerializer,
    SteplessCheckpointSerializer,
    StepSerializer,
    TensorSerializer,
    UpdateRunSerializer,
)
from apps.checkpoints.tensors import tensors_page
from apps.core.errors import Conflict
from apps.core.etags import EDITABLE
from apps.core.pagination import KeysetPagination
from apps.core.serializers import body_of
from apps.fleet.access import scoped
from apps.fleet.rest import ReadViewSet, ScopedViewSet

ID = "[a-z0-9_]+"
RUN = "[^/]+"
MAX_FINDINGS = 100


class PartsViewSet(mixins.ListModelMixin, ScopedViewSet):
    """Rows that belong to one parent, named by the URL; a parent that is not to be seen is 404."""

    def of_parent(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        raise NotImplementedError

    def get_queryset(self) -> QuerySet[Any]:
        rows = super().get_queryset()
        return rows if getattr(self, "swagger_fake_view", False) else self.of_parent(rows)

    def parent(self, rows: QuerySet[Any], cluster_path: str, pk: str) -> Any:
        return get_object_or_404(scoped(self.request, rows, cluster_path), pk=pk)


# -- runs --------------------------------------------------------------------------------------------------------------
@extend_schema_view(list=extend_schema(operation_id="list_runs", summary="List training runs"))
class RunViewSet(ReadViewSet):
    queryset = TrainingRun.objects.select_related("cluster")
    serializer_class = RunSerializer
    filterset_class = RunFilter
    lookup_value_regex = RUN
    cluster_path = "cluster"
    needs: ClassVar = {"partial_update": Role.OPERATOR}
    guarded = EDITABLE
    sort_fields = ("-created_at", "name")

    def get_object(self) -> TrainingRun:
        return runs.find_run(self.request, self.kwargs["pk"])

    @extend_schema(operation_id="get_run", summary="One training run, by id or name")
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().retrieve(request, *args, **kwargs)

    @extend_schema(
        operation_id="update_run",
        summary="Set a run's objectives",
        request=UpdateRunSerializer,
        responses=RunSerializer,
    )
    def partial_update(self, request: Request, pk: str) -> Response:
        run = self.get_object()
        self.authorize(run.cluster)
        changes = body_of(request, UpdateRunSerializer)
        return Response(RunSerializer(runs.update_run(run=run, actor=self.actor, **changes)).data)


@extend_schema_view(list=extend_schema(operation_id="list_run_steps", summary="Steps that a run reported"))
class StepViewSet(PartsViewSet):
    queryset = StepReport.objects.all()
    serializer_class = StepSerializer
    cluster_path = "attempt__run__cluster"
    sort_fields = ("-at", "step")

    def of_parent(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows.filter(attempt__run=runs.find_run(self.request, self.kwargs["run"]))


@extend_schema_view(list=extend_schema(operation_id="list_run_attempts", summary="Launches of a run"))
class AttemptViewSet(PartsViewSet):
    queryset = RunAttempt.objects.all()
    serializer_class = AttemptSerializer
    cluster_path = "run__cluster"
    sort_fields = ("-started_at", "last_report_at")

    def of_parent(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows.filter(run=runs.find_run(self.request, self.kwargs["run"]))


# -- checkpoints and their copies --------------------------------------------------------------------------------------
COPIES = Prefetch(
    "placements", Placement.objects.select_related("tier").order_by("tier__speed_order", "tier__name", "path")
)


@extend_schema_view(
    list=extend_schema(operation_id="list_checkpoints", summary="List checkpoints"),
    retrieve=extend_schema(operation_id="get_checkpoint", summary="One checkpoint with its copies"),
)
class CheckpointViewSet(ReadViewSet):
    queryset = Checkpoint.objects.select_related("run__cluster").prefetch_related(COPIES)
    serializer_class = CheckpointSerializer
    filterset_class = CheckpointFilter
    lookup_value_regex = ID
    cluster_path = "run__cluster"
    sort_fields = ("-created_at", "step", "total_bytes")


@extend_schema_view(
    list=extend_schema(operation_id="list_stepless_checkpoints", summary="Checkpoints whose step nothing tells"),
    retrieve=extend_schema(operation_id="get_stepless_checkpoint", summary="One checkpoint whose step nothing tells"),
)
class SteplessCheckpointViewSet(ReadViewSet):
    queryset = SteplessCheckpoint.objects.select_related("tier")
    serializer_class = SteplessCheckpointSerializer
    filterset_class = SteplessFilter
    lookup_value_regex = "[a-z0-9_-]+"
    cluster_path = "tier__cluster"
    sort_fields = ("-first_seen_at", "path", "total_bytes")


@extend_schema_view(
    list=extend_schema(operation_id="list_placements", summary="List copies of checkpoints"),
    retrieve=extend_schema(operation_id="get_placement", summary="One copy"),
)
class PlacementViewSet(ReadViewSet):
    queryset = Placement.objects.select_related("checkpoint__run", "tier")
    serializer_class = PlacementSerializer
    filterset_class = PlacementFilter
    lookup_value_regex = ID
    cluster_path = "tier__cluster"
    sort_fields = ("-first_seen_at", "last_seen_at", "total_bytes")

    @extend_schema(
        operation_id="explain_placement",
        summary="Which rule said what about a copy, in words",
        responses=ExplanationSerializer,
        filters=False,
    )
    @action(detail=True, methods=["get"], pagination_class=None)
    def explanation(self, request: Request, pk: str) -> Response:
        copy = self.get_object()
        findings = Finding.objects.filter(placement=copy, resolved_at=None).order_by("pk")[:MAX_FINDINGS]
        lines = explanations.explanation(copy, findings, TrustEvidence.objects.filter(placement=copy, voided_at=None))
        body = {"path": copy.path, "explanation": [line._asdict() for line in lines]}
        return Response(ExplanationSerializer({**body, "roles": explanations.roles_of(copy)}).data)


@extend_schema_view(list=extend_schema(operation_id="list_findings", summary="List findings"))
class FindingViewSet(mixins.ListModelMixin, ScopedViewSet):
    queryset = Finding.objects.all()
    serializer_class = FindingSerializer
    filterset_class = FindingFilter
    cluster_path = "placement__tier__cluster"
    sort_fields = ("-found_at", "code")


@extend_schema_view(list=extend_schema(operation_id="list_checkpoint_placements", summary="The copies of a checkpoint"))
class CheckpointPlacementViewSet(PartsViewSet):
    queryset = Placement.objects.select_related("checkpoint__run", "tier")
    serializer_class = PlacementSerializer
    cluster_path = "tier__cluster"
    sort_fields = ("-first_seen_at", "path")

    def of_parent(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows.filter(checkpoint=self.parent(Checkpoint.objects.all(), "run__cluster", self.kwargs["checkpoint"]))


@extend_schema_view(list=extend_schema(operation_id="list_checkpoint_shards", summary="The files of a checkpoint"))
class CheckpointShardViewSet(PartsViewSet):
    queryset = Shard.objects.all()
    serializer_class = ShardSerializer
    cluster_path = "placement__tier__cluster"
    sort_fields = ("path",)

    def of_parent(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        owner = self.parent(Checkpoint.objects.all(), "run__cluster", self.kwargs["checkpoint"])
        return rows.filter(placement__checkpoint=owner)


class TensorPagination(KeysetPagination):
    """Pages by place in the order of names, the only one that there is."""

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        return [one for one in super().get_schema_operation_parameters(view) if one["name"] != "sort"]


@extend_schema_view(
    list=extend_schema(
        operation_id="list_checkpoint_tensors",
        summary="The tensors of a sealed checkpoint, and where each lies",
        parameters=[
            OpenApiParameter("prefix", str, description="Only tensors whose names begin so."),
            OpenApiParameter("placement", str, description="The copy whose manifest counts; else the newest one."),
        ],
    )
)
class CheckpointTensorViewSet(PartsViewSet):
    queryset = Manifest.objects.filter(tensor_count__gt=0)
    serializer_class = TensorSerializer
    pagination_class = TensorPagination
    cluster_path = "checkpoint__run__cluster"

    def of_parent(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        owner = self.parent(Checkpoint.objects.all(), "run__cluster", self.kwargs["checkpoint"])
        copy = self.request.query_params.get("placement")
        return rows.filter(checkpoint=owner, **({"placements": copy} if copy else {})).order_by("-sealed_at")

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        manifest = self.get_queryset().values_list("pk", flat=True).first()
        if manifest is None:
            raise Conflict("Its tensors are not known: seal a copy of it, of a format that tells its tensors.")
        prefix, pages = request.query_params.get("prefix", ""), TensorPagination()
        tensors = pages.take_page(
            lambda limit, cursor: tensors_page(manifest, prefix=prefix, limit=limit, cursor=cursor), request
        )
        return pages.get_paginated_response(TensorSerializer(tensors, many=True).data)


@extend_schema_view(list=extend_schema(operation_id="list_checkpoint_findings", summary="Findings about a checkpoint"))
class CheckpointFindingViewSet(PartsViewSet):
    queryset = Finding.objects.all()
    serializer_class = FindingSerializer
    filterset_class = FindingFilter
    cluster_path = "placement__tier__cluster"
    sort_fields = ("-found_at", "code")

    def of_parent(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        owner = self.parent(Checkpoint.objects.all(), "run__cluster", self.kwargs["checkpoint"])
        return rows.filter(placement__checkpoint=owner)


@extend_schema_view(list=extend_schema(operation_id="list_placement_shards", summary="The files of a copy"))
class PlacementShardViewSet(PartsViewSet):
    queryset = Shard.objects.all()
    serializer_class = ShardSerializer
    cluster_path = "placement__tier__cluster"
    sort_fields = ("path",)

    def of_parent(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows.filter(placement=self.parent(Placement.objects.all(), "tier__cluster", self.kwargs["placement"]))


@extend_schema_view(
    list=extend_schema(operation_id="list_placement_evidence", summary="Why a copy is trusted, and what voided that")
)
class EvidenceViewSet(PartsViewSet):
    queryset = TrustEvidence.objects.all()
    serializer_class = EvidenceSerializer
    cluster_path = "placement__tier__cluster"
    sort_fields = ("-at",)

    def of_parent(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows.filter(placement=self.parent(Placement.objects.all(), "tier__cluster", self.kwargs["placement"]))
