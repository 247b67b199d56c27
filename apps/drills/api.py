"""REST: drills, their ranks and events, plans and the switch that stops all drills."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.models import Role
from apps.checkpoints.api import ID, PartsViewSet
from apps.checkpoints.runs import find_run
from apps.core.etags import EDITABLE
from apps.core.serializers import body_of, query_of
from apps.drills import comparing, preview, rules, selectors, services
from apps.drills.coming import coming
from apps.drills.compare_serializers import CompareQuerySerializer, ComparisonSerializer
from apps.drills.filters import DrillFilter, PlanFilter
from apps.drills.finish import OWNER_KIND
from apps.drills.models import Drill, DrillControl, DrillPlan, PlanOccurrence, RankResult
from apps.drills.report import report
from apps.drills.report_serializers import DrillReportSerializer
from apps.drills.rules_serializers import PreviewSerializer
from apps.drills.serializers import (
    CalendarQuerySerializer,
    CalendarSerializer,
    ControlSerializer,
    CreateDrillSerializer,
    CreatePlanSerializer,
    DrillDetailSerializer,
    DrillSerializer,
    OccurrenceSerializer,
    PlanSerializer,
    RankResultSerializer,
    StopDrillsSerializer,
    StoppedSerializer,
    UpdatePlanSerializer,
)
from apps.fleet.access import require_role
from apps.fleet.models import AgentEvent
from apps.fleet.rest import ReadViewSet
from apps.fleet.serializers import AgentEventSerializer


@extend_schema_view(list=extend_schema(operation_id="list_drills", summary="List drills"))
class DrillViewSet(ReadViewSet):
    queryset = selectors.drills()
    serializer_class = DrillSerializer
    filterset_class = DrillFilter
    lookup_value_regex = ID
    cluster_path = "cluster"
    needs: ClassVar = dict.fromkeys(("create", "cancel", "approve", "preview"), Role.OPERATOR)
    sort_fields = ("-created_at",)

    def get_queryset(self) -> QuerySet[Any]:
        rows = super().get_queryset()
        return rows if self.action == "list" else rows.prefetch_related("rungs__placement__tier")

    @extend_schema(operation_id="get_drill", summary="One drill with its rounds", responses=DrillDetailSerializer)
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return Response(DrillDetailSerializer(self.get_object()).data)

    @extend_schema(
        operation_id="create_drill",
        summary="Start a drill",
        request=CreateDrillSerializer,
        responses={201: DrillDetailSerializer},
    )
    def create(self, request: Request) -> Response:
        spec = body_of(request, CreateDrillSerializer)
        run = find_run(request, spec.pop("run"))
        self.authorize(run.cluster_id)
        drill = services.create_drill(run=run, spec=spec, actor=self.actor)
        return Response(DrillDetailSerializer(drill).data, status=status.HTTP_201_CREATED)

    @extend_schema(
        operation_id="cancel_drill",
        summary="Stop a drill within seconds",
        request=None,
        responses=DrillDetailSerializer,
    )
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        drill = self.get_object()
        self.authorize(drill.cluster_id)
        return Response(DrillDetailSerializer(services.cancel_drill(drill=drill, actor=self.actor)).data)

    @extend_schema(
        operation_id="get_drill_report",
        summary="A drill in one document: its story, every figure, each client, and what it does not prove",
        request=None,
        responses=DrillReportSerializer,
    )
    @action(detail=True, methods=["get"])
    def report(self, request: Request, pk: str) -> Response:
        return Response(DrillReportSerializer(report(self.get_object())).data)

    @extend_schema(
        operation_id="approve_drill",
        summary="Let a waiting disruptive drill begin that somebody else asked for",
        request=None,
        responses=DrillDetailSerializer,
    )
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: str) -> Response:
        drill = self.get_object()
        self.authorize(drill.cluster_id)
        return Response(DrillDetailSerializer(rules.approve(drill=drill, actor=self.actor)).data)

    @extend_schema(
        operation_id="preview_drill",
        summary="What a drill would touch, and what would keep it from beginning; nothing is started",
        request=CreateDrillSerializer,
        responses=PreviewSerializer,
    )
    @action(detail=False, methods=["post"])
    def preview(self, request: Request) -> Response:
        spec = body_of(request, CreateDrillSerializer)
        run = find_run(request, spec.pop("run"))
        self.authorize(run.cluster_id)
        return Response(PreviewSerializer(preview.preview(run, spec)).data)

    @extend_schema(
        operation_id="compare_drills",
        summary="Two to eight drills side by side: what was asked, really done, each phase, and a verdict",
        parameters=[CompareQuerySerializer],
        responses=ComparisonSerializer,
        filters=False,
    )
    @action(detail=False, methods=["get"], pagination_class=None, filterset_class=None)
    def compare(self, request: Request) -> Response:
        wanted = query_of(request, CompareQuerySerializer).validated_data["ids"]
        return Response(ComparisonSerializer(comparing.comparison(self.get_queryset(), wanted)).data)


@extend_schema_view(list=extend_schema(operation_id="list_drill_ranks", summary="What each client of a drill measured"))
class RankViewSet(PartsViewSet):
    queryset = RankResult.objects.select_related("rung__drill", "node")
    serializer_class = RankResultSerializer
    cluster_path = "rung__drill__cluster"
    sort_fields = ("rank", "seconds")

    def of_parent(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows.filter(rung__drill=self.parent(Drill.objects.all(), "cluster", self.kwargs["drill"]))


@extend_schema_view(list=extend_schema(operation_id="list_drill_events", summary="What a drill's agents reported"))
class DrillEventViewSet(PartsViewSet):
    queryset = AgentEvent.objects.select_related("task")
    serializer_class = AgentEventSerializer
    cluster_path = "task__agent__node__cluster"
    sort_fields = ("at",)

    def of_parent(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        drill = self.parent(Drill.objects.all(), "cluster", self.kwargs["drill"])
        return rows.filter(task__owner_kind=OWNER_KIND, task__owner_id=drill.pk)


@extend_schema_view(
    list=extend_schema(operation_id="list_plans", summary="List drill plans"),
    retrieve=extend_schema(operation_id="get_plan", summary="One drill plan"),
)
class PlanViewSet(ReadViewSet):
    queryset = selectors.plans()
    serializer_class = PlanSerializer
    filterset_class = PlanFilter
    lookup_value_regex = ID
    cluster_path = "run__cluster"
    needs: ClassVar = dict.fromkeys(("create", "partial_update", "destroy", "start"), Role.OPERATOR)
    guarded = EDITABLE
    sort_fields = ("-created_at", "name")

    @extend_schema(
        operation_id="create_plan",
        summary="Plan a drill",
        request=CreatePlanSerializer,
        responses={201: PlanSerializer},
    )
    def create(self, request: Request) -> Response:
        spec = body_of(request, CreatePlanSerializer)
        run = find_run(request, spec.pop("run"))
        self.authorize(run.cluster_id)
        plan = services.create_plan(run=run, spec=spec, actor=self.actor)
        return Response(PlanSerializer(plan).data, status=status.HTTP_201_CREATED)

    @extend_schema(
        operation_id="update_plan",
        summary="Change a plan; drills that already ran keep their settings",
        request=UpdatePlanSerializer,
        responses=PlanSerializer,
    )
    def partial_update(self, request: Request, pk: str) -> Response:
        plan = self._authorized()
        changes = body_of(request, UpdatePlanSerializer)
        return Response(PlanSerializer(services.update_plan(plan=plan, changes=changes, actor=self.actor)).data)

    @extend_schema(operation_id="delete_plan", summary="Delete a plan; its drills stay", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        services.delete_plan(plan=self._authorized(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(
        operation_id="start_plan",
        summary="Run the plan's drill now",
        request=None,
        responses={201: DrillDetailSerializer},
    )
    @action(detail=True, methods=["post"])
    def start(self, request: Request, pk: str) -> Response:
        drill = services.start_plan(plan=self._authorized(), actor=self.actor)
        return Response(DrillDetailSerializer(drill).data, status=status.HTTP_201_CREATED)

    @extend_schema(
        operation_id="get_plan_calendar",
        summary="When plans fire in the coming days, and which meet on one cluster",
        parameters=[CalendarQuerySerializer],
        responses=CalendarSerializer,
        filters=False,
    )
    @action(detail=False, methods=["get"], pagination_class=None, filterset_class=None)
    def calendar(self, request: Request) -> Response:
        days = query_of(request, CalendarQuerySerializer).validated_data["days"]
        body = {"paused": bool(selectors.paused_reason()), "items": coming(self.get_queryset(), days)}
        return Response(CalendarSerializer(body).data)

    def _authorized(self) -> DrillPlan:
        plan: DrillPlan = self.get_object()
        self.authorize(plan.run.cluster_id)
        return plan


@extend_schema_view(
    list=extend_schema(operation_id="list_plan_occurrences", summary="The due times of a plan and what became of them")
)
class OccurrenceViewSet(PartsViewSet):
    queryset = PlanOccurrence.objects.select_related("drill")
    serializer_class = OccurrenceSerializer
    cluster_path = "plan__run__cluster"
    sort_fields = ("-planned_at",)

    def of_parent(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows.filter(plan=self.parent(DrillPlan.objects.all(), "run__cluster", self.kwargs["plan"]))


class PausePlansView(APIView):
    @extend_schema(
        operation_id="pause_plans",
        summary="Let no plan start a drill by itself, everywhere, until they are resumed",
        request=None,
        responses=ControlSerializer,
    )
    def post(self, request: Request) -> Response:
        require_role(request, Role.OPERATOR)
        services.pause_plans(actor=request.user.get_username())
        return Response(ControlSerializer(DrillControl.objects.get(pk=1)).data)


class ResumePlansView(APIView):
    @extend_schema(
        operation_id="resume_plans",
        summary="Let plans start drills again",
        request=None,
        responses=ControlSerializer,
    )
    def post(self, request: Request) -> Response:
        require_role(request, Role.OPERATOR)
        services.resume_plans(actor=request.user.get_username())
        return Response(ControlSerializer(DrillControl.objects.get(pk=1)).data)


class ControlView(APIView):
    @extend_schema(operation_id="get_drill_control", summary="Whether drills may run", responses=ControlSerializer)
    def get(self, request: Request) -> Response:
        control = DrillControl.objects.filter(pk=1).first() or DrillControl()
        return Response(ControlSerializer(control).data)


class StopView(APIView):
    @extend_schema(
        operation_id="stop_drills",
        summary="Stop all drills, everywhere, until they are allowed again",
        request=StopDrillsSerializer,
        responses=StoppedSerializer,
    )
    def post(self, request: Request) -> Response:
        require_role(request, Role.OPERATOR)
        reason = body_of(request, StopDrillsSerializer)["reason"]
        count = services.stop_all_drills(actor=request.user.get_username(), reason=reason)
        return Response(StoppedSerializer({"cancelled_count": count}).data)


class AllowView(APIView):
    @extend_schema(
        operation_id="allow_drills", summary="Let drills run again", request=None, responses=ControlSerializer
    )
    def post(self, request: Request) -> Response:
        require_role(request, Role.OPERATOR)
        services.allow_drills(actor=request.user.get_username())
        return Response(ControlSerializer(DrillControl.objects.get(pk=1)).data)
